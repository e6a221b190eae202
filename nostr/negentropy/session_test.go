package negentropy

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"math/big"
	"math/rand/v2"
	"slices"
	"testing"

	"fleetmesh.org/fleetmesh/nostr"
)

func randomItems(r *rand.Rand, n, seconds int) []Item {
	items := make([]Item, n)
	for i := range items {
		items[i].Time = 1700000000 + uint64(r.IntN(seconds))
		for k := 0; k < 32; k += 8 {
			binary.LittleEndian.PutUint64(items[i].ID[k:], r.Uint64())
		}
	}
	return items
}

// reconcile runs a session and returns what the client learnt and the number of messages.
func reconcile(t testing.TB, client *Client, server *Server, limit int) (have, need []nostr.ID, messages int) {
	t.Helper()
	msg := client.Initiate()
	for msg != nil {
		answer, err := server.Reconcile(msg)
		if err != nil {
			t.Fatal(err)
		}
		if limit > 0 && len(answer) > limit {
			t.Fatalf("answer of %d bytes, limit %d", len(answer), limit)
		}
		next, h, n, err := client.Reconcile(answer)
		if err != nil {
			t.Fatal(err)
		}
		if limit > 0 && len(next) > limit {
			t.Fatalf("message of %d bytes, limit %d", len(next), limit)
		}
		have, need, msg = append(have, h...), append(need, n...), next
		if messages += 2; messages > 100000 {
			t.Fatal("the session does not end")
		}
	}
	return have, need, messages
}

func ids(items []Item) []nostr.ID {
	out := make([]nostr.ID, len(items))
	for i := range items {
		out[i] = items[i].ID
	}
	return out
}

func sameIDs(t *testing.T, what string, got, want []nostr.ID) {
	t.Helper()
	cmp := func(a, b nostr.ID) int { return slices.Compare(a[:], b[:]) }
	got, want = slices.Clone(got), slices.Clone(want)
	slices.SortFunc(got, cmp)
	slices.SortFunc(want, cmp)
	if !slices.Equal(got, want) {
		t.Fatalf("%s: got %d ids, want %d", what, len(got), len(want))
	}
}

// TestReconcile compares sessions over random sets with the plain difference.
func TestReconcile(t *testing.T) {
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 7))
		seconds := []int{1, 3, 100, 1000000}[r.IntN(4)]
		common := randomItems(r, r.IntN(2000), seconds)
		ours := randomItems(r, r.IntN(1+r.IntN(1500)), seconds)
		theirs := randomItems(r, r.IntN(1+r.IntN(1500)), seconds)
		a := NewVector(slices.Concat(common, ours))
		b := NewVector(slices.Concat(theirs, common))
		limit := []int{0, MinFrameLimit, 5000, 60000}[r.IntN(4)]
		have, need, _ := reconcile(t, NewClient(a, limit), NewServer(b, limit), limit)
		t.Logf("seed %d", seed)
		sameIDs(t, "have", have, ids(ours))
		sameIDs(t, "need", need, ids(theirs))
	}
}

func TestFrameLimitIsRaised(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	v := NewVector(randomItems(r, 5000, 10))
	got, err := NewServer(v, 10).Reconcile([]byte{Version, 0, 0, modeIDList, 0})
	if err != nil {
		t.Fatal(err)
	}
	if len(got) > MinFrameLimit || len(got) < MinFrameLimit/2 {
		t.Errorf("answer of %d bytes", len(got))
	}
}

// TestExactFrames is the table of frames that every relay must answer alike.
func TestExactFrames(t *testing.T) {
	item := func(time uint64, id string) Item {
		it := Item{Time: time}
		if _, err := hex.Decode(it.ID[:], []byte(id)); err != nil {
			t.Fatal(err)
		}
		return it
	}
	v := NewVector([]Item{
		item(1700000001, "ed4c6081862ff336c4914ffc6671f54f3ac704a9693b625703d345f829438201"),
		item(1700000000, "2d1fcfcbfaabf71c100f154f0716a25b520152bec558560c033138f3ca8f848b"),
		item(1700000001, "24a1b50f5b439c17f227639922f2115163ffd4aa28fbaad83af6d33a5d22fb55"),
	})
	list := "6100000203" + "2d1fcfcbfaabf71c100f154f0716a25b520152bec558560c033138f3ca8f848b" +
		"24a1b50f5b439c17f227639922f2115163ffd4aa28fbaad83af6d33a5d22fb55" +
		"ed4c6081862ff336c4914ffc6671f54f3ac704a9693b625703d345f829438201"
	for _, tc := range [][2]string{
		{"6100000200", list},
		{"61000001503d8e35c22381eaca224051d3239a8a", "61"},
		{"6100000100000000000000000000000000000000", list},
		{"6200000200", "61"},
		{"61", "61"},
	} {
		msg, _ := hex.DecodeString(tc[0])
		got, err := NewServer(v, 0).Reconcile(msg)
		if err != nil {
			t.Fatal(err)
		}
		if hex.EncodeToString(got) != tc[1] {
			t.Errorf("%s is answered by\n%x, want\n%s", tc[0], got, tc[1])
		}
	}
}

func TestBadMessages(t *testing.T) {
	v := NewVector(randomItems(rand.New(rand.NewPCG(1, 1)), 100, 10))
	for name, msg := range map[string]string{
		"empty":                        "",
		"version byte out of range":    "50",
		"version byte out of range, 2": "7000000200",
		"no mode":                      "610000",
		"no prefix length":             "6100",
		"prefix cut":                   "61010500",
		"prefix of 33":                 "610121" + fmt.Sprintf("%066d", 0) + "00",
		"mode 3":                       "61000003",
		"fingerprint cut":              "61000001aabb",
		"list cut":                     "6100000201aa",
		"list count of 2^64-1":         "6100000281ffffffffffffffff7f",
		"list count of 2^59":           "610000028880808080808080808000",
		"varint of 71 bits":            "6181ffffffffffffffffff7f0000",
		"varint without an end":        "61ffff",
		"leading zero digit":           "6180010000",
		"time beyond 64 bits":          "6181ffffffffffffffff7f0000" + "030000",
		"bounds descend":               "61020180" + "00" + "01017f" + "00",
		"range after infinity":         "61000000" + "000000",
	} {
		raw, err := hex.DecodeString(msg)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if got, err := NewServer(v, 0).Reconcile(raw); !errors.Is(err, ErrSyntax) {
			t.Errorf("%s: server answers %x, error %v", name, got, err)
		}
		if _, _, _, err := NewClient(v, 0).Reconcile(raw); !errors.Is(err, ErrSyntax) {
			t.Errorf("%s: client gives error %v", name, err)
		}
	}
	var ve *VersionError
	if _, _, _, err := NewClient(v, 0).Reconcile([]byte{0x62}); !errors.As(err, &ve) || ve.Byte != 0x62 {
		t.Errorf("version 2: %v", err)
	}
}

func TestVector(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 3))
	items := randomItems(r, 1000, 20)
	v := NewVector(slices.Concat(items, items[:100]))
	if v.Len() != len(items) {
		t.Fatalf("%d items, want %d", v.Len(), len(items))
	}
	if !slices.IsSortedFunc(v.Items(), Item.Compare) {
		t.Fatal("not sorted")
	}
	mod := new(big.Int).Lsh(big.NewInt(1), 256)
	for range 2000 {
		lo := r.IntN(v.Len() + 1)
		hi := lo + r.IntN(v.Len()+1-lo)
		want := new(big.Int)
		for _, it := range v.Items()[lo:hi] {
			be := slices.Clone(it.ID[:])
			slices.Reverse(be)
			want.Add(want, new(big.Int).SetBytes(be))
		}
		want.Mod(want, mod)
		got := new(big.Int)
		sum := v.Sum(lo, hi)
		for i := 3; i >= 0; i-- {
			got.Lsh(got, 64).Or(got, new(big.Int).SetUint64(sum[i]))
		}
		if got.Cmp(want) != 0 {
			t.Fatalf("sum of [%d,%d) is %x, want %x", lo, hi, got, want)
		}
	}
	for i, it := range v.Items() {
		if got := v.Search(it); got != i {
			t.Fatalf("search of item %d gives %d", i, got)
		}
	}
	if got := v.Search(Item{Time: math.MaxUint64}); got != v.Len() {
		t.Errorf("search beyond the end gives %d", got)
	}
	if NewVector(nil).Sum(0, 0) != (Sum{}) {
		t.Error("the empty set has a sum")
	}
}

func TestSumArithmetic(t *testing.T) {
	r := rand.New(rand.NewPCG(4, 4))
	var s Sum
	items := randomItems(r, 50, 5)
	for i := range items {
		s.Add(&items[i].ID)
	}
	for i := range items {
		s.Sub(&items[i].ID)
	}
	if s != (Sum{}) {
		t.Errorf("what was added and taken away leaves %x", s)
	}
	ones := Sum{math.MaxUint64, math.MaxUint64, math.MaxUint64, math.MaxUint64}
	if got := ones.Plus(Sum{1}); got != (Sum{}) {
		t.Errorf("2^256-1 + 1 is %x", got)
	}
	if got := (Sum{}).Minus(Sum{1}); got != ones {
		t.Errorf("0 - 1 is %x", got)
	}
}

func TestVarint(t *testing.T) {
	for _, v := range []uint64{0, 1, 127, 128, 129, 16383, 16384, 1 << 32, math.MaxUint64 >> 1, math.MaxUint64} {
		b := appendVarint(nil, v)
		d := decoder{rest: b}
		got, err := d.varint()
		if err != nil || got != v || len(d.rest) != 0 {
			t.Errorf("%d: got %d, %v, %d bytes left", v, got, err, len(d.rest))
		}
	}
}
