package negentropy

import (
	"bytes"
	"encoding/hex"
	"math/rand/v2"
	"testing"
)

func addSeeds(f *testing.F) {
	for _, s := range []string{
		"61", "6100000200", "6200000200", "61000001503d8e35c22381eaca224051d3239a8a", "6181ffffffffffffffffff7f0000",
		"6186aacee50105aabbccddee000002010000000000000000000000000000000000000000000000000000000000000000",
		"6100000281ffffffffffffffff7f",
	} {
		b, err := hex.DecodeString(s)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b, uint16(100), uint16(0))
		f.Add(b, uint16(1000), uint16(MinFrameLimit))
	}
	v := NewVector(randomItems(rand.New(rand.NewPCG(9, 9)), 300, 5))
	f.Add(NewClient(v, 0).Initiate(), uint16(200), uint16(MinFrameLimit))
}

func fuzzSets() []*Vector {
	var sets []*Vector
	for _, n := range []int{0, 1, 31, 32, 100, 1000, 5000} {
		sets = append(sets, NewVector(randomItems(rand.New(rand.NewPCG(5, uint64(n))), n, 50)))
	}
	return sets
}

// FuzzServer feeds the server any message: it answers within its limit, with
// something that a client can read, or gives an error.
func FuzzServer(f *testing.F) {
	addSeeds(f)
	sets := fuzzSets()
	f.Fuzz(func(t *testing.T, msg []byte, n, limit uint16) {
		v := sets[int(n)%len(sets)]
		kept := bytes.Clone(msg)
		got, err := NewServer(v, int(limit)).Reconcile(msg)
		if !bytes.Equal(kept, msg) {
			t.Fatal("the message was changed")
		}
		if err != nil {
			return
		}
		if limit > 0 && len(got) > max(int(limit), MinFrameLimit) {
			t.Fatalf("answer of %d bytes, limit %d", len(got), limit)
		}
		if _, _, _, err := NewClient(v, 0).Reconcile(got); err != nil {
			t.Fatalf("our answer %x to %x cannot be read: %v", got, msg, err)
		}
	})
}

// FuzzClient feeds the client any answer.
func FuzzClient(f *testing.F) {
	addSeeds(f)
	sets := fuzzSets()
	f.Fuzz(func(t *testing.T, msg []byte, n, limit uint16) {
		v := sets[int(n)%len(sets)]
		next, have, need, err := NewClient(v, int(limit)).Reconcile(msg)
		if err != nil {
			return
		}
		if len(have) > v.Len() || len(need) > len(msg)/32 {
			t.Fatalf("%d have of %d, %d need from %d bytes", len(have), v.Len(), len(need), len(msg))
		}
		if next == nil {
			return
		}
		if _, err := NewServer(v, 0).Reconcile(next); err != nil {
			t.Fatalf("our message %x cannot be read: %v", next, err)
		}
	})
}
