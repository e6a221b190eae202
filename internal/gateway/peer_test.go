package gateway

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"fleetmesh.org/fleetmesh/nostr"
)

func openPeer(t testing.TB, dir string, now int64) *PeerMemory {
	t.Helper()
	m, err := OpenPeerMemory(dir, "wss://Relay.Test", now)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func fact(n byte) PeerFact { return PeerFact{Upload, nostr.ID{n}, "blocked", 100} }

func TestPeerMemory(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "peers")
	m := openPeer(t, dir, 100)
	if err := m.Remember(fact(1), PeerFact{Download, nostr.ID{2}, "bad signature\n", 100}, PeerFact{Upload, nostr.ID{3}, "", 100}); err != nil {
		t.Fatal(err)
	}
	if err := m.Close(); err != nil {
		t.Fatal(err)
	}
	m = openPeer(t, dir, 200)
	for _, tc := range []struct {
		way  Way
		id   byte
		word string
	}{{Upload, 1, "blocked"}, {Download, 1, ""}, {Download, 2, "badsignature"}, {Upload, 3, "refused"}} {
		if word, ok := m.Known(tc.way, nostr.ID{tc.id}); word != tc.word || ok != (tc.word != "") {
			t.Errorf("%c %d: %q", tc.way, tc.id, word)
		}
	}
	other, err := OpenPeerMemory(dir, "wss://other.test", 200)
	if err != nil || other.Len() != 0 {
		t.Errorf("another relay: %v, %d facts", err, other.Len())
	}
	if m := openPeer(t, dir, 101+peerMemory); m.Len() != 0 {
		t.Errorf("%d facts never grow old", m.Len())
	}
	var none *PeerMemory
	if err := none.Remember(fact(1)); err != nil || none.Len() != 0 || none.Close() != nil {
		t.Error("a nil memory")
	}
	if _, err := OpenPeerMemory(dir, "mailto:x", 0); !errors.Is(err, ErrURL) {
		t.Error(err)
	}
	if _, err := OpenPeerMemory(m.path, "wss://relay.test", 0); err == nil {
		t.Error("a file is no directory")
	}
}

// TestPeerMemoryTorn cuts the file at every length and flips every bit: what is whole is kept, the rest is
// ignored, and later facts are not lost to the damage.
func TestPeerMemoryTorn(t *testing.T) {
	dir := t.TempDir()
	m := openPeer(t, dir, 100)
	if err := m.Remember(fact(1), fact(2)); err != nil {
		t.Fatal(err)
	}
	m.Close()
	whole, err := os.ReadFile(m.path)
	if err != nil {
		t.Fatal(err)
	}
	try := func(text []byte, least int, what string) {
		if err := os.WriteFile(m.path, text, 0o600); err != nil {
			t.Fatal(err)
		}
		m := openPeer(t, dir, 100)
		if m.Len() < least || m.Len() > 2 {
			t.Fatalf("%s: %d facts", what, m.Len())
		}
		had := m.Len()
		if err := m.Remember(fact(9)); err != nil {
			t.Fatal(err)
		}
		m.Close()
		if m = openPeer(t, dir, 100); m.Len() != had+1 {
			t.Fatalf("%s: %d facts, then %d", what, had, m.Len())
		}
	}
	line := bytes.IndexByte(whole, '\n') + 1
	for n := range len(whole) {
		try(whole[:n], n/line, fmt.Sprintf("cut at %d", n))
	}
	for i := range whole {
		flipped := bytes.Clone(whole)
		flipped[i] ^= 1 << (i % 8)
		try(flipped, 0, fmt.Sprintf("bit in byte %d", i))
	}
}

// faultyFile fails its n-th operation, either before or after it took effect.
type faultyFile struct {
	peerFile
	after bool
	in    *int
}

var errDisk = errors.New("disk on fire")

func (f *faultyFile) strike() bool { *f.in--; return *f.in == 0 }

func (f *faultyFile) Write(b []byte) (int, error) {
	if f.strike() {
		if f.after {
			_, _ = f.peerFile.Write(b)
		} else {
			_, _ = f.peerFile.Write(b[:len(b)/2])
		}
		return 0, errDisk
	}
	return f.peerFile.Write(b)
}

func (f *faultyFile) Sync() error {
	if f.strike() {
		if f.after {
			_ = f.peerFile.Sync()
		}
		return errDisk
	}
	return f.peerFile.Sync()
}

// TestPeerMemoryFaults fails each write and each sync, not done and done but reported failed. The facts hold in
// memory, those written later are on disk, and a fact never turns into another.
func TestPeerMemoryFaults(t *testing.T) {
	for _, after := range []bool{false, true} {
		for strike := 1; strike <= 4; strike++ {
			dir := t.TempDir()
			m := openPeer(t, dir, 100)
			in := strike
			open := m.open
			m.open = func(path string) (peerFile, error) {
				f, err := open(path)
				return &faultyFile{f, after, &in}, err
			}
			failed := 0
			for n := byte(1); n <= 4; n++ {
				if err := m.Remember(fact(n)); errors.Is(err, errDisk) {
					failed++
				} else if err != nil {
					t.Fatal(err)
				}
				if _, ok := m.Known(Upload, nostr.ID{n}); !ok {
					t.Fatal("forgotten at once")
				}
			}
			if failed != 1 {
				t.Fatalf("%d failures", failed)
			}
			m.Close()
			if got := openPeer(t, dir, 100).Len(); got < 3 {
				t.Errorf("after %v, strike %d: %d facts on disk", after, strike, got)
			}
		}
	}
	dir := t.TempDir()
	m := openPeer(t, dir, 100)
	m.open = func(string) (peerFile, error) { return nil, errDisk }
	if err := m.Remember(fact(1)); !errors.Is(err, errDisk) {
		t.Error(err)
	}
}

func TestPeerMemoryIsRewritten(t *testing.T) {
	dir := t.TempDir()
	m := openPeer(t, dir, 100)
	for range 300 {
		if err := m.Remember(fact(1)); err != nil {
			t.Fatal(err)
		}
	}
	m.Close()
	m = openPeer(t, dir, 100)
	text, err := os.ReadFile(m.path)
	if err != nil || bytes.Count(text, []byte("\n")) != 1 || m.Len() != 1 {
		t.Errorf("%v, %d lines", err, bytes.Count(text, []byte("\n")))
	}
}

func FuzzPeerFact(f *testing.F) {
	f.Add(bytes.TrimSpace(appendFact(nil, fact(1))))
	f.Add([]byte("00000000 u 00 1 x"))
	f.Add([]byte(""))
	f.Fuzz(func(t *testing.T, line []byte) {
		got, ok := parseFact(line)
		if !ok {
			return
		}
		again, ok := parseFact(bytes.TrimSuffix(appendFact(nil, got), []byte("\n")))
		if !ok || again != got {
			t.Errorf("%q gives %+v, and that %+v", line, got, again)
		}
	})
}
