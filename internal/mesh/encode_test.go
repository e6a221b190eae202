package mesh

import (
	"encoding/json"
	"reflect"
	"testing"

	"fleetmesh.org/fleetmesh/internal/ledger"
	"fleetmesh.org/fleetmesh/nostr"
	"fleetmesh.org/fleetmesh/spec"
)

// What is written by hand is read back whole.
func TestAccountsAreReadAsWritten(t *testing.T) {
	r := &ledger.Receipt{Grant: nostr.ID{2}, Window: 7, Seq: 3, Counters: ledger.Counters{spec.CounterReq: 4}.Clone(), At: 9, Sig: nostr.Sig{5}}
	k := books{Key: nostr.PubKey{1}, Back: 12, Alive: 13, Forgot: 14,
		Measured: []*book{{Window: ledger.Window{Epoch: 7, Length: 60}, Grant: nostr.ID{2}, Counters: ledger.Counters{spec.CounterBytesIn: 1 << 50}, Last: r}},
		Used: []*book{
			{Window: ledger.Window{Epoch: 8, Length: 60}, Grant: nostr.ID{3}, Counters: ledger.Counters{}, Pending: ledger.Counters{spec.CounterErrors: 1, spec.CounterReq: 2}, Ahead: ledger.Counters{}},
			{Window: ledger.Window{Epoch: 9, Length: 60}, Counters: ledger.Counters{}, Last: r, Acked: true, Settled: true, Closed: true},
		}}
	var got books
	if err := json.Unmarshal(k.encode(), &got); err != nil {
		t.Fatalf("%v\n%s", err, k.encode())
	}
	plain, err := json.Marshal(k)
	if err != nil {
		t.Fatal(err)
	}
	var want books
	if err := json.Unmarshal(plain, &want); err != nil {
		t.Fatal(err)
	}
	for _, list := range [][]*book{want.Used, want.Measured, got.Used, got.Measured} {
		for _, b := range list { // an empty map and none say the same
			if len(b.Ahead) == 0 {
				b.Ahead = nil
			}
			if len(b.Pending) == 0 {
				b.Pending = nil
			}
		}
	}
	if !reflect.DeepEqual(got, want) {
		a, _ := json.Marshal(got)
		t.Errorf("got\n%s\nwant\n%s", a, plain)
	}
}
