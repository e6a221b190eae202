package transport_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"fleetmesh.org/fleetmesh/internal/transport"
	"fleetmesh.org/fleetmesh/nostr"
	"pgregory.net/rapid"
)

func ep(scheme, address string, preference int) transport.Endpoint {
	return transport.Endpoint{Scheme: scheme, Address: address, Preference: preference}
}

func schemes(rungs []transport.Rung) []string {
	var s []string
	for _, r := range rungs {
		if len(s) == 0 || s[len(s)-1] != r.Endpoint.Scheme {
			s = append(s, r.Endpoint.Scheme)
		}
	}
	return s
}

func TestLadder(t *testing.T) {
	for _, c := range []struct {
		name         string
		ours, theirs []transport.Endpoint
		want         string
	}{
		{"nothing in common", []transport.Endpoint{ep("wss", "a", 1)}, []transport.Endpoint{ep("https", "b", 1)}, "[]"},
		{"empty", nil, nil, "[]"},
		{"sum decides", []transport.Endpoint{ep("iroh", "a", 10), ep("wss", "a", 1)},
			[]transport.Endpoint{ep("iroh", "b", 1), ep("wss", "b", 20)}, "[{{iroh b 1} 11} {{wss b 20} 21}]"},
		{"tie by name, bytewise", []transport.Endpoint{ep("wss", "a", 5), ep("iroh", "a", 5), ep("Zeta", "a", 5)},
			[]transport.Endpoint{ep("iroh", "b", 5), ep("wss", "b", 5), ep("Zeta", "b", 5)},
			"[{{Zeta b 5} 10} {{iroh b 5} 10} {{wss b 5} 10}]"},
		{"several endpoints of a scheme", []transport.Endpoint{ep("wss", "a", 1), ep("wss", "a2", 9), ep("unix", "a", 3)},
			[]transport.Endpoint{ep("wss", "b", 2), ep("unix", "b", 3), ep("wss", "b2", 1), ep("wss", "b2", 1)},
			"[{{wss b2 1} 2} {{wss b 2} 2} {{unix b 3} 6}]"},
		{"as the descriptor's example has it", []transport.Endpoint{ep("iroh", "a", 10), ep("libp2p", "a", 20), ep("wss", "a", 40)},
			[]transport.Endpoint{ep("wss", "b", 40), ep("libp2p", "b", 20), ep("iroh", "b", 10)},
			"[{{iroh b 10} 20} {{libp2p b 20} 40} {{wss b 40} 80}]"},
		{"negative preference", []transport.Endpoint{ep("wss", "a", -100), ep("giftwrap", "a", 0)},
			[]transport.Endpoint{ep("giftwrap", "b", 0), ep("wss", "b", 0)}, "[{{wss b 0} -100} {{giftwrap b 0} 0}]"},
	} {
		if got := fmt.Sprint(transport.Ladder(c.ours, c.theirs)); got != c.want {
			t.Errorf("%s: %s, wanted %s", c.name, got, c.want)
		}
	}
}

// TestLadderAgrees: both ends order the schemes alike, whatever they advertise and
// in whatever order.
func TestLadderAgrees(t *testing.T) {
	endpoint := rapid.Custom(func(t *rapid.T) transport.Endpoint {
		return ep(rapid.SampledFrom([]string{"wss", "https", "unix", "iroh", "libp2p", "giftwrap"}).Draw(t, "scheme"),
			rapid.StringMatching(`[a-c]`).Draw(t, "address"), rapid.IntRange(-3, 3).Draw(t, "preference"))
	})
	rapid.Check(t, func(t *rapid.T) {
		a := rapid.SliceOf(endpoint).Draw(t, "a")
		b := rapid.SliceOf(endpoint).Draw(t, "b")
		ab, ba := schemes(transport.Ladder(a, b)), schemes(transport.Ladder(b, a))
		if !slices.Equal(ab, ba) {
			t.Fatalf("one sees %v, the other %v", ab, ba)
		}
		mixed := rapid.Permutation(b).Draw(t, "mixed")
		if x, y := transport.Ladder(a, b), transport.Ladder(a, mixed); !slices.Equal(x, y) {
			t.Fatalf("order of advertising matters: %v, %v", x, y)
		}
	})
}

func TestLastResort(t *testing.T) {
	theirs := []transport.Endpoint{ep("wss", "wss://r.test", 40), ep("iroh", "x", 90)}
	ours := []transport.Endpoint{ep("wss", "", 0), ep("iroh", "", 0), ep("giftwrap", "", transport.LastPreference)}
	got := transport.Ladder(ours, transport.LastResort(theirs))
	if s := fmt.Sprint(schemes(got)); s != "[wss iroh giftwrap]" || got[2].Endpoint.Address != "wss://r.test" {
		t.Errorf("ladder %v", got)
	}
	if len(theirs) != 2 {
		t.Error("the argument was changed")
	}
}

func TestRemembered(t *testing.T) {
	rungs := transport.Ladder([]transport.Endpoint{ep("a", "", 1), ep("b", "", 2), ep("c", "", 3)},
		[]transport.Endpoint{ep("a", "x", 0), ep("b", "y", 0), ep("c", "z", 0)})
	for _, c := range []struct {
		last transport.Endpoint
		want string
	}{
		{ep("c", "z", 77), "[c a b]"},
		{ep("a", "x", 0), "[a b c]"},
		{ep("b", "moved", 0), "[a b c]"},
		{transport.Endpoint{}, "[a b c]"},
	} {
		if got := fmt.Sprint(schemes(transport.Remembered(rungs, c.last))); got != c.want {
			t.Errorf("after %v: %s, wanted %s", c.last, got, c.want)
		}
	}
}

// TestClimb: black holes cost five seconds each, refusals nothing, and the session
// takes the first rung that holds.
func TestClimb(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := transport.NewMemory("memory")
		rungs := make([]transport.Rung, 4)
		for i, name := range []string{"hole", "refuses", "good", "better-never-tried"} {
			rungs[i].Endpoint = ep("memory", name, 0)
			if _, err := m.Listen(t.Context(), rungs[i].Endpoint); err != nil {
				t.Fatal(err)
			}
		}
		refused := errors.New("refused")
		m.Cut("hole", transport.BlackHole)
		m.Cut("refuses", func(context.Context) error { return refused })
		dial := func(ctx context.Context, e transport.Endpoint) (transport.Stream, error) {
			return m.Dial(ctx, e, nostr.PubKey{})
		}
		s, attempts, err := transport.Climb(t.Context(), rungs, dial)
		if err != nil {
			t.Fatal(err)
		}
		s.Close()
		if len(attempts) != 3 || attempts[0].Took != transport.RungTimeout || attempts[1].Took != 0 ||
			!errors.Is(attempts[1].Err, refused) || attempts[2].Err != nil {
			t.Errorf("attempts: %+v", attempts)
		}

		m.Cut("good", transport.BlackHole)
		m.Cut("better-never-tried", transport.BlackHole)
		start := time.Now()
		var gone *transport.UnreachableError
		if _, _, err = transport.Climb(t.Context(), rungs, dial); !errors.As(err, &gone) || len(gone.Attempts) != 4 {
			t.Fatalf("all cut: %v", err)
		}
		if d := time.Since(start); d != 3*transport.RungTimeout {
			t.Errorf("three black holes took %s", d)
		}

		ctx, cancel := context.WithTimeout(t.Context(), 7*time.Second)
		defer cancel()
		if _, _, err = transport.Climb(ctx, rungs, dial); errors.As(err, &gone) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a ladder broken off: %v, wanted the context's error and no verdict", err)
		}
		if _, _, err = transport.Climb(t.Context(), nil, dial); !errors.As(err, &gone) || len(gone.Attempts) != 0 {
			t.Errorf("no rungs: %v", err)
		}
	})
}

// TestLadderRungsCut cuts real carriers one after another from the top: the same
// ping-pong goes over the next, until only the gift wrap is left, then nothing.
func TestLadderRungsCut(t *testing.T) {
	ctx, e := t.Context(), &ether{}
	g, _ := wrapNode(t, e, nil)
	gb, kb := wrapNode(t, e, nil)
	mem, wa, wb := transport.NewMemory("memory"), transport.NewWSS(direct(t)), transport.NewWSS(direct(t))
	dir := t.TempDir()
	theirs := []transport.Endpoint{ep("memory", "b", 10), ep("unix", dir+"/b", 20), ep("wss", serve(t, "ws", wb), 30), ep("giftwrap", etherEndpoint.Address, 90)}
	ours := []transport.Endpoint{ep("memory", "a", 0), ep("unix", "", 0), ep("wss", "", 0), ep("giftwrap", etherEndpoint.Address, 0)}
	dialers := map[string]transport.Transport{"memory": mem, "unix": transport.Unix{}, "wss": wa, "giftwrap": g}
	at := map[string]transport.Transport{"memory": mem, "unix": transport.Unix{}, "wss": wb, "giftwrap": gb}
	listeners := make([]transport.Listener, len(theirs))
	for i, end := range theirs {
		l, err := at[end.Scheme].Listen(ctx, end)
		if err != nil {
			t.Fatal(err)
		}
		listeners[i] = l
	}
	cut := map[string]bool{}
	rungs := transport.Ladder(ours, theirs)
	dial := func(ctx context.Context, end transport.Endpoint) (transport.Stream, error) {
		if cut[end.Scheme] {
			return nil, errors.New("cut")
		}
		return dialers[end.Scheme].Dial(ctx, end, kb.PubKey())
	}
	for i, end := range theirs {
		s, _, err := transport.Climb(ctx, rungs, dial)
		if err != nil {
			t.Fatal(err)
		}
		if s.Scheme() != end.Scheme {
			t.Errorf("climbed to %s, wanted %s", s.Scheme(), end.Scheme)
		}
		if err := s.Send(ctx, []byte(`{"ping":1}`)); err != nil {
			t.Fatal(err)
		}
		in, err := listeners[i].Accept(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if f, err := in.Receive(ctx); err != nil || string(f) != `{"ping":1}` {
			t.Fatalf("%s: %q, %v", end.Scheme, f, err)
		}
		if err := in.Send(ctx, []byte(`{"pong":1}`)); err != nil {
			t.Fatal(err)
		}
		if f, err := s.Receive(ctx); err != nil || string(f) != `{"pong":1}` {
			t.Fatalf("%s: %q, %v", end.Scheme, f, err)
		}
		s.Close()
		in.Close()
		listeners[i].Close()
		cut[end.Scheme] = true
	}
	var gone *transport.UnreachableError
	if _, _, err := transport.Climb(ctx, rungs, dial); !errors.As(err, &gone) || len(gone.Attempts) != len(theirs) {
		t.Errorf("all cut: %v", err)
	}
}
