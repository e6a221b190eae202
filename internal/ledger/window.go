package ledger

import (
	"strconv"

	"fleetmesh.org/fleetmesh/spec"
)

// Window is one accounting window: [Epoch × Length, (Epoch+1) × Length) unix seconds. Both
// parties compute it from the grant they hold; nobody sends it for the other to believe.
type Window struct {
	Epoch  int64 `json:"epoch"`
	Length int64 `json:"length"` // seconds
}

// CheckWindowLength says whether a grant may use a window of so many seconds.
func CheckWindowLength(seconds int64) error {
	if w := spec.C().Window; seconds < w.MinSeconds || seconds > w.MaxSeconds {
		return fault(BadWindow, strconv.FormatInt(seconds, 10)+" s")
	}
	return nil
}

// WindowAt returns the window of a moment.
func WindowAt(t, length int64) Window { return Window{Epoch: floorDiv(t, length), Length: length} }

// AssignWindow returns the window that a message belongs to: that of its own created_time, which both
// ends see alike, or that of its arrival where the two are more than the skew apart.
func AssignWindow(created, arrived, length int64) Window {
	if d := created - arrived; d > spec.C().Window.SkewSeconds || -d > spec.C().Window.SkewSeconds {
		return WindowAt(arrived, length)
	}
	return WindowAt(created, length)
}

// Start is the first second of the window.
func (w Window) Start() int64 { return w.Epoch * w.Length }

// End is the first second after the window.
func (w Window) End() int64 { return (w.Epoch + 1) * w.Length }

// Next is the window after it, under the same length.
func (w Window) Next() Window { return Window{w.Epoch + 1, w.Length} }

// GraceEnd is the first second at which a close is no longer final, and the window
// may be evaluated: a tenth of the window after its end.
func (w Window) GraceEnd() int64 { return w.End() + spec.C().Window.Grace.Floor(w.Length) }

// Open reports whether t lies in the window.
func (w Window) Open(t int64) bool { return t >= w.Start() && t < w.End() }

// Due reports whether the window may be evaluated at t. The skew is waited for too, so
// that a message stamped in the window and still on its way is not held against its sender.
func (w Window) Due(t int64) bool {
	return t >= w.GraceEnd() && t >= w.End()+spec.C().Window.SkewSeconds
}

func floorDiv(a, b int64) int64 {
	q := a / b
	if a%b < 0 {
		q--
	}
	return q
}
