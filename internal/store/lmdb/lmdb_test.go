//go:build lmdb && cgo

package lmdb

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"fleetmesh.org/fleetmesh/internal/store"
	"fleetmesh.org/fleetmesh/internal/store/storetest"
	"fleetmesh.org/fleetmesh/nostr"
)

// small begins with a map that the suite soon outgrows.
var small = Options{MapBytes: 128 << 10}

func open(t testing.TB, dir string) store.Store {
	s, err := Open(context.Background(), dir, small)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestSuite(t *testing.T) { storetest.Run(t, open, false) }

func TestDifferential(t *testing.T) { storetest.Differential(t, open) }

const (
	childEnv  = "FLEETMESH_LMDB_CHILD"
	crashSeed = 11
	crashNow  = storetest.Start + 100
)

// TestMain lets the test binary be the child that is killed.
func TestMain(m *testing.M) {
	if dir := os.Getenv(childEnv); dir != "" {
		child(dir)
		return
	}
	os.Exit(m.Run())
}

// child inserts for ever, and says how many batches have been acknowledged.
func child(dir string) {
	s, err := Open(context.Background(), dir, small)
	w := storetest.NewWorld(crashSeed, 40, 5000)
	for i := 1; err == nil; i++ {
		if _, err = s.Insert(context.Background(), w.Batch(1+w.Rand.IntN(40)), crashNow); err == nil {
			fmt.Println("acked", i)
		}
	}
	fmt.Println("error", err)
	os.Exit(1)
}

// TestKill kills a writing process without warning, again and again on one store, and compares what is left with what it had acknowledged.
func TestKill(t *testing.T) {
	rounds := 5
	if testing.Short() {
		rounds = 2
	}
	for round := range rounds {
		dir := t.TempDir()
		acked := killAfter(t, dir, 30+round*61)
		oracle := store.NewMemory()
		w := storetest.NewWorld(crashSeed, 40, 5000)
		for range acked {
			if _, err := oracle.Insert(t.Context(), w.Batch(1+w.Rand.IntN(40)), crashNow); err != nil {
				t.Fatal(err)
			}
		}
		s := open(t, dir)
		for range 2 { // the first may be there or not, as a whole
			batch := w.Batch(1 + w.Rand.IntN(40))
			for _, into := range []store.Store{oracle, s} {
				if _, err := into.Insert(t.Context(), batch, crashNow); err != nil {
					t.Fatal(err)
				}
			}
		}
		storetest.Compare(t, s, oracle, []nostr.Filter{{}}, store.View{}, 0, crashNow)
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// killAfter runs a child and kills it when it has acknowledged so many batches.
func killAfter(t *testing.T, dir string, batches int) (acked int) {
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
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		word, n, _ := strings.Cut(lines.Text(), " ")
		if acked, err = strconv.Atoi(n); err != nil || word != "acked" {
			t.Fatalf("child: %s", lines.Text())
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

// TestFullDisk lets no file of the process grow beyond a size, as a full disk does: a write is refused whole and in a clear sentence, reading
// goes on, and once there is room again so does writing.
func TestFullDisk(t *testing.T) {
	signal.Ignore(syscall.SIGXFSZ)
	s := open(t, t.TempDir())
	defer s.Close()
	oracle := store.NewMemory()
	w := storetest.NewWorld(5, 40, 5000)
	now := storetest.Start + w.Spread
	var before syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_FSIZE, &before); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &syscall.Rlimit{Cur: 2 << 20, Max: before.Max}); err != nil {
		t.Fatal(err)
	}
	defer syscall.Setrlimit(syscall.RLIMIT_FSIZE, &before)
	var refused []*nostr.Event
	for refused == nil {
		batch := w.Batch(50)
		out, err := s.Insert(t.Context(), batch, now)
		if err != nil {
			if !errors.Is(err, store.ErrFull) || !strings.Contains(err.Error(), "takes no more") {
				t.Fatalf("on a full disk: %v", err)
			}
			refused = batch
			continue
		}
		want, err := oracle.Insert(t.Context(), batch, now)
		if err != nil || !slices.Equal(out, want) {
			t.Fatal(out, want, err)
		}
	}
	storetest.Compare(t, s, oracle, []nostr.Filter{{}}, store.View{}, 0, now)
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &before); err != nil {
		t.Fatal(err)
	}
	for _, into := range []store.Store{oracle, s} {
		if _, err := into.Insert(t.Context(), refused, now); err != nil {
			t.Fatal(err)
		}
	}
	storetest.Compare(t, s, oracle, []nostr.Filter{{}}, store.View{}, 0, now)
}

// TestMaxBytes fills a store to its limit: the refusal names the knob, and what was stored stays.
func TestMaxBytes(t *testing.T) {
	opt := Options{MaxBytes: 2 << 20, MapBytes: 128 << 10}
	dir := t.TempDir()
	s, err := Open(t.Context(), dir, opt)
	if err != nil {
		t.Fatal(err)
	}
	oracle := store.NewMemory()
	w := storetest.NewWorld(6, 40, 5000)
	now := storetest.Start + w.Spread
	for {
		batch := w.Batch(50)
		if _, err = s.Insert(t.Context(), batch, now); err != nil {
			break
		}
		if _, err := oracle.Insert(t.Context(), batch, now); err != nil {
			t.Fatal(err)
		}
	}
	if !errors.Is(err, store.ErrFull) || !strings.Contains(err.Error(), "spec.storage.maxBytes, 2097152") {
		t.Fatal(err)
	}
	st, err := s.Stats(t.Context())
	if err != nil || st.Bytes > opt.MaxBytes || st.Events == 0 {
		t.Fatalf("%+v %v", st, err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if s, err = Open(t.Context(), dir, Options{}); err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	storetest.Compare(t, s, oracle, []nostr.Filter{{}}, store.View{}, 0, now)
	if _, err := s.Insert(t.Context(), w.Batch(50), now); err != nil {
		t.Fatal(err)
	}
}
