package host

import (
	"encoding/json"

	"fleetmesh.org/fleetmesh/internal/didcomm"
	"fleetmesh.org/fleetmesh/spec"
)

// What a session carries is public: events, signatures and names. So it may be compressed before it is sealed, which no carrier could do
// afterwards, and both ends go on counting the octets of the envelope. A node says in the headers of its frames, wants and opens that it reads
// compressed envelopes; one that does not know the header passes over it, and gets none that is compressed.

// offerZip says in a message of a session that we read compressed envelopes.
func (s *session) offerZip(m *didcomm.Message) {
	if !s.h.cfg.tamper.reads() {
		return
	}
	z := spec.C().Transport.Zip
	switch spec.MessageType(m.Type) {
	case spec.MsgSyncOpen, spec.MsgSyncFrame, spec.MsgSyncWant:
		text, _ := json.Marshal(z.Alg) // a string
		m.Extra = map[string]didcomm.RawAny{z.Header: text}
	}
}

// hearZip takes note of what the peer reads.
func (s *session) hearZip(m *didcomm.Message) {
	if s.zip.Load() {
		return
	}
	z := spec.C().Transport.Zip
	var alg string
	if json.Unmarshal(m.Extra[z.Header], &alg) == nil && alg == z.Alg && alg == didcomm.ZipDeflate {
		s.zip.Store(true)
	}
}
