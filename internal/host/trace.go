package host

// SyncTrace follows one sync for whoever traces. It is told no peer, no event and no address.
type SyncTrace interface {
	Live(delivered, taken int64)             // the ends have reconciled
	End(code string, delivered, taken int64) // code is "" where both ends were done with it
}

// The roles of a node in a sync.
const (
	roleInitiator = "initiator"
	roleResponder = "responder"
)

// untraced is the trace of a sync that nobody follows.
type untraced struct{}

func (untraced) Live(int64, int64)        {}
func (untraced) End(string, int64, int64) {}

// traced begins the trace of a sync.
func (h *Host) traced(role, mode string) SyncTrace {
	if h.cfg.Trace == nil {
		return untraced{}
	}
	return h.cfg.Trace(role, mode)
}
