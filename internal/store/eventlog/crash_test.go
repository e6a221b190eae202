package eventlog

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"

	"fleetmesh.org/fleetmesh/internal/store"
	"fleetmesh.org/fleetmesh/internal/store/storetest"
	"fleetmesh.org/fleetmesh/nostr"
)

const childEnv = "FLEETMESH_EVENTLOG_CHILD"

// TestMain lets the test binary be the child that is killed.
func TestMain(m *testing.M) {
	if dir := os.Getenv(childEnv); dir != "" {
		child(dir)
		return
	}
	code := m.Run()
	unload()
	os.Exit(code)
}

func crashOptions() Options {
	return Options{headDocs: 64, FlushDocs: 500, LogFileBytes: 64 << 10}
}

// child inserts for ever, and says how many batches have been acknowledged.
func child(dir string) {
	s, err := Open(dir, crashOptions())
	if err != nil {
		fmt.Println("error", err)
		os.Exit(1)
	}
	w := storetest.NewWorld(crashSeed, 40, 5000)
	for i := 1; ; i++ {
		if _, err := s.Insert(noContext, w.Batch(1+w.Rand.IntN(40)), crashNow); err != nil {
			fmt.Println("error", err)
			os.Exit(1)
		}
		fmt.Println("acked", i)
	}
}

const (
	crashSeed = 11
	crashNow  = storetest.Start + 100
)

// TestKill kills a writing process without warning, again and again, and compares what is left
// with what it had acknowledged.
func TestKill(t *testing.T) {
	rounds := 6
	if testing.Short() {
		rounds = 2
	}
	for round := range rounds {
		dir := t.TempDir()
		acked := killAfter(t, dir, 40+round*97)
		oracle := store.NewMemory()
		w := storetest.NewWorld(crashSeed, 40, 5000)
		for range acked {
			if _, err := oracle.Insert(t.Context(), w.Batch(1+w.Rand.IntN(40)), crashNow); err != nil {
				t.Fatal(err)
			}
		}
		next := w.Batch(1 + w.Rand.IntN(40)) // may be there or not, in part
		after := w.Batch(1 + w.Rand.IntN(40))
		s, err := Open(dir, crashOptions())
		if err != nil {
			t.Fatal(err)
		}
		for _, batch := range [][]*nostr.Event{next, after} {
			if _, err := oracle.Insert(t.Context(), batch, crashNow); err != nil {
				t.Fatal(err)
			}
			if _, err := s.Insert(t.Context(), batch, crashNow); err != nil {
				t.Fatal(err)
			}
		}
		storetest.Compare(t, s, oracle, []nostr.Filter{{}}, store.View{}, 0, crashNow)
		r, err := s.Check(t.Context())
		if err != nil || len(r.Problems)+len(r.Damaged) > 0 {
			t.Fatalf("check: %+v %v", r, err)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// killAfter runs a child and kills it when it has acknowledged so many batches.
func killAfter(t *testing.T, dir string, batches int) int {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childEnv+"="+dir)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	acked := 0
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		word, n, _ := strings.Cut(lines.Text(), " ")
		if word != "acked" {
			t.Fatalf("child: %s", lines.Text())
		}
		if acked, err = strconv.Atoi(n); err != nil {
			t.Fatal(err)
		}
		if acked == batches {
			if err := cmd.Process.Kill(); err != nil {
				t.Fatal(err)
			}
		}
	}
	var exit *exec.ExitError
	if err := cmd.Wait(); !errors.As(err, &exit) {
		t.Fatalf("child ended by itself: %v", err)
	}
	return acked
}

func TestLocked(t *testing.T) {
	dir := t.TempDir()
	s, err := Open(dir, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Open(dir, Options{}); !errors.Is(err, ErrLocked) {
		t.Fatalf("second opener: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Insert(t.Context(), []*nostr.Event{{}}, now); !errors.Is(err, store.ErrClosed) {
		t.Fatalf("insert after Close: %v", err)
	}
	if s, err = Open(dir, Options{}); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestNewerFormat checks that files of a newer program are refused and left alone.
func TestNewerFormat(t *testing.T) {
	for _, name := range []string{"MANIFEST", "log-", "seg-", "sta-"} {
		d := newFaultFS(1)
		s, err := Open("", tiny(d))
		if err != nil {
			t.Fatal(err)
		}
		if _, _, err := workload(t, s, 1, 12); err != nil {
			t.Fatal(err)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		d = d.afterPower("keep")
		for file, n := range d.names {
			if !strings.HasPrefix(file, name) {
				continue
			}
			switch name {
			case "MANIFEST":
				m := manifest{}
				if err := m.decode(n.data); err != nil {
					t.Fatal(err)
				}
				m.Version++
				if n.data, err = m.encode(); err != nil {
					t.Fatal(err)
				}
			case "seg-":
				n.data[len(n.data)-footerSize+8]++
				mendSums(n.data)
			case "sta-":
				n.data[8]++
				n.data = sealed(n.data[:len(n.data)-4])
			default:
				n.data[8]++
				binary.LittleEndian.PutUint32(n.data[28:], crc32.Checksum(n.data[:28], castagnoli))
			}
		}
		before := d.afterPower("keep")
		if _, err := Open("", tiny(d)); !errors.Is(err, ErrVersion) {
			t.Fatalf("%s of a newer version: %v", name, err)
		}
		for file, n := range before.names {
			if d.names[file] == nil || !slices.Equal(d.names[file].data, n.data) {
				t.Fatalf("%s was changed", file)
			}
		}
	}
}

// TestTornTail cuts the log at every byte of its last record.
func TestTornTail(t *testing.T) {
	d := newFaultFS(1)
	s, err := Open("", Options{FS: d})
	if err != nil {
		t.Fatal(err)
	}
	w := storetest.NewWorld(5, 3, 50)
	first, second := w.Event(), w.Event()
	for _, e := range []*nostr.Event{first, second} {
		if _, err := s.Insert(t.Context(), []*nostr.Event{e}, now); err != nil {
			t.Fatal(err)
		}
	}
	whole := d.afterPower("keep") // as a crash leaves it: no checkpoint
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	data := whole.names["log-00000001"].data
	one := logHeader
	r, err := parseRecord(data[one:])
	if err != nil {
		t.Fatal(err)
	}
	one += r.size
	for cut := one; cut < len(data); cut++ {
		torn := whole.afterPower("keep")
		torn.names["log-00000001"].data = slices.Clone(data[:cut])
		s, err := Open("", Options{FS: torn})
		if err != nil {
			t.Fatalf("cut at %d: %v", cut, err)
		}
		if got := all(t, s); len(got) != 1 || got[0] != first.ID {
			t.Fatalf("cut at %d: %d events", cut, len(got))
		}
		if s.Report().TornBytes != int64(cut-one) {
			t.Fatalf("cut at %d: report %+v", cut, s.Report())
		}
		if out, err := s.Insert(t.Context(), []*nostr.Event{second}, now); err != nil || out[0] != store.Stored {
			t.Fatal(out, err)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestVanishCutOff loses the removals of a vanish request, but not the request: opening does
// them again.
func TestVanishCutOff(t *testing.T) {
	d := newFaultFS(1)
	s, err := Open("", Options{FS: d})
	if err != nil {
		t.Fatal(err)
	}
	var events []*nostr.Event
	for i := range int64(30) {
		e := &nostr.Event{PubKey: nostr.PubKey{1}, Kind: 1, CreatedAt: i}
		e.ID = e.ComputeID()
		events = append(events, e)
	}
	request := &nostr.Event{PubKey: nostr.PubKey{1}, Kind: 62, CreatedAt: 20, Tags: []nostr.Tag{{"relay", "ALL_RELAYS"}}}
	request.ID = request.ComputeID()
	for _, batch := range [][]*nostr.Event{events, {request}} {
		if _, err := s.Insert(t.Context(), batch, now); err != nil {
			t.Fatal(err)
		}
	}
	crashed := d.afterPower("keep")
	want := all(t, s)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if len(want) != 10 {
		t.Fatalf("%d events left, want the request and 9 newer ones", len(want))
	}
	data := crashed.names["log-00000001"].data
	end := 0
	for off := logHeader; off < len(data); {
		r, err := parseRecord(data[off:])
		if err != nil {
			t.Fatal(err)
		}
		off += r.size
		if len(r.effects.vanished) > 0 {
			end = off
		}
	}
	if end == len(data) {
		t.Fatal("the removals are not records of their own")
	}
	crashed.names["log-00000001"].data = data[:end]
	for range 2 {
		if s, err = Open("", Options{FS: crashed}); err != nil {
			t.Fatal(err)
		}
		if got := all(t, s); !slices.Equal(got, want) {
			t.Fatalf("%d events after the cut, want %d", len(got), len(want))
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
