package mediate

import (
	"encoding/json"
	"testing"

	"fleetmesh.org/fleetmesh/internal/didcomm"
)

// FuzzJournal applies whatever a journal may hold: records are refused or applied,
// the books stay balanced, and the compact form rebuilds the same state.
func FuzzJournal(f *testing.F) {
	f.Add([]byte(`[{"op":"register","client":"a"},{"op":"add","client":"a"},{"op":"queue","client":"a","time":5,"ids":["x"],"envelope":"e30=","expires":99}]`))
	f.Add([]byte(`[{"op":"register","client":"a"},{"op":"queue","client":"a","ids":["x"],"envelope":"e30=","expires":9,"tries":5},{"op":"try","client":"a","ids":["x","y"]},{"op":"ack","client":"a","ids":["x","z"],"time":7},{"op":"drop","client":"a","ids":["x"]}]`))
	lim := DefaultLimits()
	lim.QueueMessages = 8
	f.Fuzz(func(t *testing.T, text []byte) {
		var records []Record
		if json.Unmarshal(text, &records) != nil {
			return
		}
		m := New(mia, lim)
		for _, r := range records {
			_ = m.Apply(r) // an unfit record changes nothing
		}
		var sum int64
		for name, c := range m.clients {
			var bytes int64
			for it := range c.all() {
				bytes += int64(len(it.envelope))
			}
			if bytes != c.bytes || c.waiting.Len()+c.aside.Len() != len(c.items) {
				t.Fatalf("%s: %d octets counted as %d, %d items of %d", name, bytes, c.bytes, c.waiting.Len()+c.aside.Len(), len(c.items))
			}
			sum += bytes
		}
		if sum != m.total {
			t.Fatalf("%d octets counted as %d", sum, m.total)
		}
		again := New(mia, lim)
		if err := again.Apply(m.Records()...); err != nil {
			t.Fatalf("the compact form does not apply: %v", err)
		}
		if again.total != m.total || len(again.clients) != len(m.clients) {
			t.Fatalf("rebuilt %d octets of %d", again.total, m.total)
		}
		m.Expire(t0)
		m.Forward(t0, didcomm.Forward{Next: "a", Envelope: text})
	})
}
