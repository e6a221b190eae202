package mesh

import (
	"encoding/json"
	"strconv"

	"fleetmesh.org/fleetmesh/internal/ledger"
	"fleetmesh.org/fleetmesh/spec"
)

// The accounts with a peer are written for every message, so they are written by hand. They are read by encoding/json:
// a test holds the two against each other.

// encode writes the record.
func (k books) encode() json.RawMessage {
	b := make([]byte, 0, 512+768*(len(k.Measured)+len(k.Used)))
	b = append(b, `{"Key":"`...)
	b = append(b, k.Key.String()...)
	b = append(b, `","Back":`...)
	b = strconv.AppendInt(b, k.Back, 10)
	b = append(b, `,"Alive":`...)
	b = strconv.AppendInt(b, k.Alive, 10)
	b = append(b, `,"Forgot":`...)
	b = strconv.AppendInt(b, k.Forgot, 10)
	b = append(b, `,"Measured":[`...)
	b = appendBooks(b, k.Measured)
	b = append(b, `],"Used":[`...)
	b = appendBooks(b, k.Used)
	return append(b, "]}"...)
}

func appendBooks(b []byte, list []*book) []byte {
	for i, k := range list {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, `{"Window":{"epoch":`...)
		b = strconv.AppendInt(b, k.Window.Epoch, 10)
		b = append(b, `,"length":`...)
		b = strconv.AppendInt(b, k.Window.Length, 10)
		b = append(b, `},"Grant":"`...)
		b = append(b, k.Grant.String()...)
		b = append(b, `","Counters":`...)
		b = appendCounters(b, k.Counters)
		if k.Pending != nil {
			b = append(b, `,"Pending":`...)
			b = appendCounters(b, k.Pending)
		}
		if k.Ahead != nil {
			b = append(b, `,"Ahead":`...)
			b = appendCounters(b, k.Ahead)
		}
		if k.Last != nil {
			b = append(b, `,"Last":`...)
			b = append(b, k.text()...)
		}
		b = appendTrue(b, "Acked", k.Acked)
		b = appendTrue(b, "Settled", k.Settled)
		b = appendTrue(b, "Closed", k.Closed)
		b = append(b, '}')
	}
	return b
}

func appendTrue(b []byte, name string, v bool) []byte {
	if !v {
		return b
	}
	b = append(b, `,"`...)
	b = append(b, name...)
	return append(b, `":true`...)
}

func appendCounters(b []byte, c ledger.Counters) []byte {
	b = append(b, '{')
	first := true
	for _, n := range spec.C().Counters {
		if c[n] == 0 {
			continue
		}
		if !first {
			b = append(b, ',')
		}
		first = false
		b = append(b, '"')
		b = append(b, n...)
		b = append(b, `":`...)
		b = strconv.AppendInt(b, c[n], 10)
	}
	return append(b, '}')
}

// text is the last receipt as it travels, encoded once.
func (b *book) text() []byte {
	if b.textOf != b.Last {
		b.lastText, b.textOf = b.Last.JSON(), b.Last
	}
	return b.lastText
}
