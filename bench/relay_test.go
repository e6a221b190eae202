package main

import (
	"bufio"
	"bytes"
	"context"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"fleetmesh.org/fleetmesh/internal/relay"
	"fleetmesh.org/fleetmesh/internal/relay/relaytest"
	"fleetmesh.org/fleetmesh/internal/store"
)

func serve(t *testing.T) string {
	t.Helper()
	r := relaytest.Start(t, store.NewMemory(), func(c *relay.Config) {
		l := &c.Limits
		l.EventsPerSecond, l.RequestsPerSecond, l.BytesPerSecond, l.ConnectionsPerIP = -1, -1, -1, -1
	})
	return "ws://" + r.Addr
}

func newRun(t *testing.T, cmd *relayCmd) *run {
	t.Helper()
	targets, err := cmd.targets()
	if err != nil {
		t.Fatal(err)
	}
	return &run{app: &app{ctx: t.Context()}, cmd: cmd, targets: targets, corpus: newCorpus(cmd.Seed), id: "test"}
}

// TestPhases runs everything but the idle phase, which waits for memory to settle, on two relays.
func TestPhases(t *testing.T) {
	cmd := &relayCmd{Target: []string{"a=" + serve(t), "b=" + serve(t)}, Phases: []string{"ingest", "query", "fanout", "neg"},
		PID:    []string{"a=" + strconv.Itoa(os.Getpid())},
		Rounds: 2, Events: 300, Ingest: 200, Seed: 5, Cache: t.TempDir(), Queries: 10, Live: 4, Rate: 1000, Subs: []int{3}, Share: 2}
	r := newRun(t, cmd)
	if err := r.phases(); err != nil {
		t.Fatal(err)
	}
	r.report.summarise(r.targets)
	seen := map[string]int{}
	for _, s := range r.report.Samples {
		seen[s.Phase]++
		if s.Note != "" {
			t.Errorf("%s, %s, %s: %s", s.Phase, s.Cell, s.Target, s.Note)
		}
		if s.Values["refused"]+s.Values["duplicates"] > 0 {
			t.Errorf("%s of %s: %v", s.Cell, s.Target, s.Values)
		}
		if !(s.Values["ops_per_s"] > 0) {
			t.Errorf("%s, %s: %v", s.Phase, s.Cell, s.Values)
		}
	}
	const cells, rounds = 2 * 2, 2 // targets and rounds; kinds of fan-out
	if seen["ingest"] != 4*cells || seen["query"] != 12*cells || seen["fanout"] != 2*rounds*cells || seen["neg"] != 2*cells {
		t.Errorf("samples: %v", seen)
	}
	events := map[string]float64{}
	for _, row := range r.report.Rows {
		if row.Value == "events_per_op" {
			events[row.Cell] = row.Medians["a"]
			if row.Medians["a"] != row.Medians["b"] {
				t.Errorf("%s: the relays gave different numbers of events: %v", row.Cell, row.Medians)
			}
		}
	}
	if events["time range, 1 conns"] == 0 || events["ids, 8 conns"] < 9 {
		t.Errorf("events: %v", events)
	}
}

func TestGrow(t *testing.T) {
	plot := filepath.Join(t.TempDir(), "growth.svg")
	r := newRun(t, &relayCmd{Target: []string{"a=" + serve(t)}, Rounds: 2, Seed: 5, Cache: t.TempDir(), Queries: 3, Grow: []int{2500, 1000}, Plot: plot})
	if err := r.grow(); err != nil {
		t.Fatal(err)
	}
	for _, s := range r.report.Samples {
		if s.Note != "" || s.Values["refused"]+s.Values["duplicates"] > 0 {
			t.Errorf("%s, %s: %v %s", s.Phase, s.Cell, s.Values, s.Note)
		}
	}
	text, err := os.ReadFile(plot)
	if err != nil || !bytes.Contains(text, []byte("at 2500")) {
		t.Errorf("the plot: %v\n%.300s", err, text)
	}
}

func TestTargets(t *testing.T) {
	for _, c := range []struct {
		cmd  relayCmd
		want string
	}{
		{relayCmd{Target: []string{"ws://a"}}, "want NAME=ws://"},
		{relayCmd{Target: []string{"a=http://a"}}, "want NAME=ws://"},
		{relayCmd{Target: []string{"a=ws://a", "a=ws://b"}}, "two are named"},
		{relayCmd{Target: []string{"a=ws://a"}, PID: []string{"b=1"}}, "no target has that name"},
		{relayCmd{Target: []string{"a=ws://a"}, PID: []string{"a=x"}}, "want NAME=NUMBER"},
		{relayCmd{Target: []string{"a=ws://a"}, Dir: []string{"a=/does/not/exist"}}, "no such file"},
	} {
		if _, err := c.cmd.targets(); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v: %v, want %q", c.cmd.Target, err, c.want)
		}
	}
}

func TestNobodyListens(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	l.Close()
	if _, err := dial(context.Background(), "ws://"+addr, 512); err == nil || !strings.Contains(err.Error(), addr) {
		t.Errorf("dial: %v", err)
	}
}

// pipe is a connection that gets what a server is said to have sent; what it answers is thrown away.
func pipe(sent []byte) (*conn, func()) {
	a, b := net.Pipe()
	go func() {
		buf := make([]byte, 1024)
		for {
			if _, err := b.Read(buf); err != nil {
				return
			}
		}
	}()
	return &conn{net: a, br: bufio.NewReader(bytes.NewReader(sent))}, func() { a.Close(); b.Close() }
}

func TestFrames(t *testing.T) {
	long := strings.Repeat("x", 70_000)
	var sent []byte
	sent = append(sent, 0x81, 2, 'h', 'i')                                        // whole
	sent = append(sent, 0x01, 1, 'a', 0x89, 1, 'p', 0x00, 1, 'b', 0x80, 1, 'c')   // in three parts, a ping between
	sent = append(append(sent, 0x81, 126, 0, 200), long[:200]...)                 // 16 bits of length
	sent = append(append(sent, 0x81, 127, 0, 0, 0, 0, 0, 1, 0x11, 0x70), long...) // 64 bits
	sent = append(append(sent, 0x88, 6, 0x03, 0xe8), "done"...)                   // close
	c, end := pipe(sent)
	defer end()
	for _, want := range []string{"hi", "abc", long[:200], long} {
		got, err := c.read()
		if err != nil || string(got) != want {
			t.Fatalf("read %.20q, %v, want %.20q", got, err, want)
		}
	}
	if _, err := c.read(); err == nil || !strings.Contains(err.Error(), "1000 done") {
		t.Errorf("the close was read as %v", err)
	}
}

func FuzzFrames(f *testing.F) {
	for _, seed := range []string{"\x81\x02hi", "\x01\x01a\x80\x01b", "\x89\x00\x81\x00", "\x88\x02\x03\xe8", "\x81\x7f\xff\xff\xff\xff\xff\xff\xff\xff", "\x81\x7e\x00", "\xc1\x01x", "\x81\x81\x00\x00\x00\x00x"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, sent []byte) {
		c, end := pipe(sent)
		defer end()
		total := 0
		for {
			m, err := c.read()
			if err != nil {
				return
			}
			if total += len(m); total > len(sent) {
				t.Fatalf("%d octets came out of %d", total, len(sent))
			}
		}
	})
}

func FuzzParseOK(f *testing.F) {
	id := strings.Repeat("ab", 32)
	for _, seed := range []string{`["OK","` + id + `",true,""]`, `["OK","` + id + `",false,"duplicate: x"]`, `["OK"]`, `["OK","`, `["NOTICE","x"]`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, m []byte) {
		if v, is := parseOK(m); is && len(v.id) == 0 && bytes.HasPrefix(m, okPrefix) && m[len(okPrefix)] != '"' {
			t.Fatalf("%s: an OK without an id", m)
		}
	})
}

func FuzzReadItems(f *testing.F) {
	c := newCorpus(1)
	var text []byte
	for i := range 3 {
		text = append(append(text, c.event(i).JSON()...), '\n')
	}
	f.Add(text)
	f.Add(text[:len(text)-20])
	f.Add([]byte("\n{}\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		items, length, err := readItems(bytes.NewReader(b), 10)
		if err == nil && (length > int64(len(b)) || len(items) > 10) {
			t.Fatalf("%d items in %d of %d octets", len(items), length, len(b))
		}
	})
}
