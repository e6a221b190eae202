package host

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"fleetmesh.org/fleetmesh/internal/didcomm/mediate"
)

func mediationLogAt(t *testing.T, path string) (*mediationLog, *mediate.Mediator) {
	t.Helper()
	state := mediate.New("did:example:mediator", mediate.DefaultLimits())
	l, err := openMediationLog(path, state)
	if err != nil {
		t.Fatal(err)
	}
	return l, state
}

func record(t *testing.T, l *mediationLog, state *mediate.Mediator, records ...mediate.Record) {
	t.Helper()
	if err := l.Append(records, true); err != nil {
		t.Fatal(err)
	}
	if err := state.Apply(records...); err != nil {
		t.Fatal(err)
	}
}

const leafDID = "did:example:leaf"

func queued(i int, octets int) mediate.Record {
	return mediate.Record{Op: mediate.OpQueue, Time: 1, Client: leafDID, IDs: []string{fmt.Sprint(i)}, Envelope: make([]byte, octets), Expires: 1 << 40}
}

// TestMediationLogTornAnywhere cuts the log at every octet: what was whole is there, and the log goes on.
func TestMediationLogTornAnywhere(t *testing.T) {
	path := filepath.Join(t.TempDir(), "m")
	l, state := mediationLogAt(t, path)
	record(t, l, state, mediate.Record{Op: mediate.OpRegister, Client: leafDID}, mediate.Record{Op: mediate.OpAdd, Client: leafDID})
	sizes := []int64{l.size}
	for i := range 2 {
		record(t, l, state, queued(i, 5))
		sizes = append(sizes, l.size)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for cut := sizes[0]; cut <= int64(len(text)); cut++ {
		if err := os.WriteFile(path, text[:cut], 0o600); err != nil {
			t.Fatal(err)
		}
		want := 0
		for want < 2 && cut >= sizes[want+1] {
			want++
		}
		l, state := mediationLogAt(t, path)
		if got, _ := state.Waiting(leafDID); got != want {
			t.Fatalf("cut at %d: %d wait, want %d", cut, got, want)
		}
		record(t, l, state, queued(9, 5))
		l.Close()
		if _, state = mediationLogAt(t, path); func() int { n, _ := state.Waiting(leafDID); return n }() != want+1 {
			t.Fatalf("cut at %d: the log does not go on", cut)
		}
	}
	text[12] ^= 1
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := openMediationLog(path, mediate.New("did:example:mediator", mediate.DefaultLimits())); err == nil {
		t.Error("a log that is damaged in the middle opened")
	}
}

// TestMediationLogCompacts lets much come and go, and wants a file that holds what waits and little more.
func TestMediationLogCompacts(t *testing.T) {
	path := filepath.Join(t.TempDir(), "m")
	l, state := mediationLogAt(t, path)
	record(t, l, state, mediate.Record{Op: mediate.OpRegister, Client: leafDID}, mediate.Record{Op: mediate.OpAdd, Client: leafDID})
	for i := range 3000 {
		record(t, l, state, queued(i, 4000))
		if i >= 10 {
			record(t, l, state, mediate.Record{Op: mediate.OpAck, Time: 2, Client: leafDID, IDs: []string{fmt.Sprint(i - 10)}})
		}
		if err := l.Compact(state); err != nil {
			t.Fatal(err)
		}
	}
	if l.size > 5*compactAt {
		t.Errorf("the log holds %d octets", l.size)
	}
	l.Close()
	if _, again := mediationLogAt(t, path); again.Bytes() != state.Bytes() {
		t.Errorf("%d octets wait after opening again, %d before", again.Bytes(), state.Bytes())
	}
}

func FuzzMediationLog(f *testing.F) {
	text, err := mediationText([]mediate.Record{{Op: mediate.OpRegister, Client: leafDID}, {Op: mediate.OpAdd, Client: leafDID}, queued(1, 3), {Op: mediate.OpAck, Client: leafDID, IDs: []string{"1"}}})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(text)
	f.Add(text[:len(text)-3])
	f.Fuzz(func(t *testing.T, b []byte) {
		state := mediate.New("did:example:mediator", mediate.DefaultLimits())
		whole, err := replayMediation(b, state)
		if err != nil {
			return
		}
		again := mediate.New("did:example:mediator", mediate.DefaultLimits())
		if n, err := replayMediation(b[:whole], again); err != nil || n != whole || again.Bytes() != state.Bytes() {
			t.Fatalf("%d of %d octets, %v", n, whole, err)
		}
	})
}

func FuzzOutRecord(f *testing.F) {
	f.Add([]byte(`{"to":"79be667ef9dcbbac55a06295ce870b07029bfcdb2dce28d959f2815b16f81798","message":{"id":"1","type":"a/b","body":{}}}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		if !json.Valid(b) {
			return
		}
		records := map[string]json.RawMessage{outKey + "1": b, wayKey + "1": b, seenKey + "1": b}
		takeOut(records)
		takeWays(records)
		takeSeen(records)
		if len(records) != 0 {
			t.Fatal("a record of the host's is left for mesh")
		}
	})
}
