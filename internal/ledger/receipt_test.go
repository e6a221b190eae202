package ledger

import (
	"bytes"
	"testing"

	"pgregory.net/rapid"

	"fleetmesh.org/fleetmesh/internal/identity"
	"fleetmesh.org/fleetmesh/nostr"
	"fleetmesh.org/fleetmesh/spec"
)

// TestReceiptIsWrittenCanonically holds the hand-written form against the one that everything else is written in.
func TestReceiptIsWrittenCanonically(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		count := rapid.Int64Range(0, maxCount)
		r := &Receipt{Grant: nostr.ID(seed("grant")), Window: count.Draw(t, "window"), Seq: count.Draw(t, "seq"), Prev: seed("prev"), Counters: Counters{}, At: count.Draw(t, "at")}
		r.Sig = nostr.Sig(bytes.Repeat([]byte{7}, 64))
		for _, n := range spec.C().Counters {
			if rapid.Bool().Draw(t, "counted") {
				r.Counters[n] = count.Draw(t, string(n))
			}
		}
		for i := range rapid.IntRange(0, 3).Draw(t, "origins") {
			r.ForwardedFor = append(r.ForwardedFor, nostr.PubKey(seed(string(rune('a'+i)))))
		}
		w := receiptJSON{Grant: r.Grant.String(), Window: r.Window, Seq: r.Seq, Prev: spec32(r.Prev), Counters: r.Counters.Clone(), ForwardedFor: []string{}, At: r.At}
		for _, k := range r.ForwardedFor {
			w.ForwardedFor = append(w.ForwardedFor, identity.FormatDID(k))
		}
		if want := must(spec.Canonical(w)); !bytes.Equal(r.Body(), want) {
			t.Fatalf("the body is\n%s\nand not\n%s", r.Body(), want)
		}
		w.Sig = r.Sig.String()
		if want := must(spec.Canonical(w)); !bytes.Equal(r.JSON(), want) {
			t.Fatalf("it travels as\n%s\nand not\n%s", r.JSON(), want)
		}
	})
}

func spec32(b [32]byte) string { return nostr.ID(b).String() }
