package host

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"fleetmesh.org/fleetmesh/internal/didcomm"
	"fleetmesh.org/fleetmesh/internal/identity"
	"fleetmesh.org/fleetmesh/internal/mesh"
	"fleetmesh.org/fleetmesh/internal/transport"
	"fleetmesh.org/fleetmesh/nostr"
	"fleetmesh.org/fleetmesh/spec"
)

// slow gives every dial and every frame a time to travel, so that a bubble's clock measures latency.
type slow struct {
	transport.Transport
	way time.Duration
}

func (s slow) Dial(ctx context.Context, ep transport.Endpoint, peer nostr.PubKey) (transport.Stream, error) {
	select {
	case <-time.After(2 * s.way):
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	st, err := s.Transport.Dial(ctx, ep, peer)
	if err != nil {
		return nil, err
	}
	return slowStream{st, s.way}, nil
}

type slowStream struct {
	transport.Stream
	way time.Duration
}

func (s slowStream) Send(ctx context.Context, frame []byte) error {
	select {
	case <-time.After(s.way):
	case <-ctx.Done():
		return ctx.Err()
	}
	return s.Stream.Send(ctx, frame)
}

// fleet makes n rigs that know each other's descriptors. The first dials over a network with latency.
func fleet(t *testing.T, net *transport.Memory, n int, change func(i int, c *Config)) []*rig {
	t.Helper()
	return fleetWith(t, net, n, nil, change)
}

// fleetWith lets a test change the descriptors too.
func fleetWith(t *testing.T, net *transport.Memory, n int, describe func(i int, d *identity.Descriptor), change func(i int, c *Config)) []*rig {
	t.Helper()
	byKey := map[nostr.PubKey]*rig{}
	var mu sync.Mutex
	find := func(k nostr.PubKey) *nostr.Event {
		mu.Lock()
		defer mu.Unlock()
		return byKey[k].desc
	}
	rigs := make([]*rig, n)
	for i := range rigs {
		r := newRigWith(t, net, string(rune('A'+i/26))+string(rune('a'+i%26)), byte(i+1), mesh.EnrolClosed, find, func(d *identity.Descriptor) {
			if describe != nil {
				describe(i, d)
			}
		}, func(c *Config) {
			if change != nil {
				change(i, c)
			}
		})
		mu.Lock()
		rigs[i], byKey[r.pub] = r, r
		mu.Unlock()
	}
	return rigs
}

// latencies pings peers rounds times, all at once, and returns every round trip in order.
func latencies(t *testing.T, from *rig, peers []*rig, rounds int) (all []time.Duration) {
	t.Helper()
	var mu sync.Mutex
	var wg sync.WaitGroup
	for _, p := range peers {
		wg.Go(func() {
			for range rounds {
				pong, err := from.host.Ping(t.Context(), p.pub)
				if err != nil {
					t.Errorf("ping: %v", err)
					return
				}
				mu.Lock()
				all = append(all, pong.RoundTrip)
				mu.Unlock()
				<-time.After(time.Second)
			}
		})
	}
	wg.Wait()
	slices.Sort(all)
	return all
}

// TestBlackHoledPeersDelayNobody black-holes 90 of 100 peers, each with messages queued for it, and wants the latency of the other ten to
// stay within a tenth of what it was.
func TestBlackHoledPeersDelayNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const way = 20 * time.Millisecond
		net := transport.NewMemory("memory")
		rigs := fleet(t, net, 101, func(i int, c *Config) {
			if i == 0 {
				c.Transports = []transport.Transport{slow{net, way}}
			}
		})
		self, alive, dead := rigs[0], rigs[1:11], rigs[11:]
		before := latencies(t, self, alive, 20)
		for i, r := range dead {
			net.Cut(string(rune('A'+(i+11)/26))+string(rune('a'+(i+11)%26)), transport.BlackHole)
			d, err := self.host.descriptor(t.Context(), r.pub, true)
			if err != nil {
				t.Fatal(err)
			}
			for range 50 {
				m, err := didcomm.NewPing(newID(), self.host.self, identity.FormatDID(d.Subject), time.Now().Unix(), false)
				if err != nil {
					t.Fatal(err)
				}
				self.host.mu.Lock()
				self.host.link(r.pub).enqueue(m, false)
				self.host.mu.Unlock()
			}
		}
		during := latencies(t, self, alive, 60)
		mid := func(l []time.Duration) time.Duration { return l[len(l)/2] }
		t.Logf("median %v before, %v during; worst %v and %v", mid(before), mid(during), before[len(before)-1], during[len(during)-1])
		if mid(during) > mid(before)*11/10 || during[len(during)-1] > before[len(before)-1]*11/10 {
			t.Error("90 dead peers slow the other ten down")
		}
		for _, r := range rigs {
			r.stop()
		}
	})
}

// dialled counts the dials under way to each address.
type dialled struct {
	transport.Transport
	mu    sync.Mutex
	now   map[string]int
	most  int
	times []time.Time
}

func (d *dialled) Dial(ctx context.Context, ep transport.Endpoint, peer nostr.PubKey) (transport.Stream, error) {
	d.mu.Lock()
	d.now[ep.Address]++
	d.most = max(d.most, d.now[ep.Address])
	d.times = append(d.times, time.Now())
	d.mu.Unlock()
	defer func() {
		d.mu.Lock()
		d.now[ep.Address]--
		d.mu.Unlock()
	}()
	return d.Transport.Dial(ctx, ep, peer)
}

// TestOneDialAtATime queues much for a dead peer and wants one dial at a time, and pauses that grow and are not all alike.
func TestOneDialAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		net := transport.NewMemory("memory")
		count := &dialled{Transport: net, now: map[string]int{}}
		rigs := fleet(t, net, 2, func(i int, c *Config) {
			if i == 0 {
				c.Transports = []transport.Transport{count}
			}
		})
		a, b := rigs[0], rigs[1]
		net.Cut("Ab", transport.BlackHole)
		if _, err := a.host.descriptor(t.Context(), b.pub, true); err != nil {
			t.Fatal(err)
		}
		for range 100 {
			m, _ := didcomm.NewPing(newID(), a.host.self, identity.FormatDID(b.pub), time.Now().Unix(), false)
			a.host.mu.Lock()
			a.host.link(b.pub).enqueue(m, false)
			a.host.mu.Unlock()
		}
		<-time.After(20 * time.Minute)
		count.mu.Lock()
		var pauses []time.Duration
		for i := 1; i < len(count.times); i++ {
			pauses = append(pauses, count.times[i].Sub(count.times[i-1])-transport.RungTimeout)
		}
		if count.most != 1 {
			t.Errorf("%d dials to one peer at a time", count.most)
		}
		count.mu.Unlock()
		last := pauses[len(pauses)-1]
		if len(pauses) < 8 || len(pauses) > 40 || last < maxBackoff/2 || last > maxBackoff*3/2 || slices.Compact(slices.Clone(pauses))[0] == pauses[1] {
			t.Errorf("pauses %v", pauses)
		}
		a.stop()
		b.stop()
	})
}

// TestSimultaneousDialsSettle lets two nodes dial each other at the same moment and wants one session in the end, with every message
// arrived.
func TestSimultaneousDialsSettle(t *testing.T) {
	for round := range 20 {
		synctest.Test(t, func(t *testing.T) {
			net := transport.NewMemory("memory")
			rigs := fleet(t, net, 2, func(i int, c *Config) { c.Transports = []transport.Transport{slow{net, 5 * time.Millisecond}} })
			a, b := rigs[0], rigs[1]
			for _, p := range []struct{ r, to *rig }{{a, b}, {b, a}} {
				if _, err := p.r.host.descriptor(t.Context(), p.to.pub, true); err != nil {
					t.Fatal(err)
				}
			}
			var wg sync.WaitGroup
			for _, p := range []struct{ r, to *rig }{{a, b}, {b, a}} {
				wg.Go(func() {
					for range 5 {
						if _, err := p.r.host.Ping(t.Context(), p.to.pub); err != nil {
							t.Errorf("round %d: %v", round, err)
						}
					}
				})
			}
			wg.Wait()
			<-time.After(time.Minute)
			for _, p := range []struct{ r, to *rig }{{a, b}, {b, a}} {
				p.r.host.mu.Lock()
				l := p.r.host.link(p.to.pub)
				p.r.host.mu.Unlock()
				l.mu.Lock()
				up := l.stream != nil && l.proven
				l.mu.Unlock()
				if !up {
					t.Errorf("round %d: no session", round)
				}
			}
			if a.host.links[b.pub].ours == b.host.links[a.pub].ours {
				t.Errorf("round %d: the two ends keep two sessions", round)
			}
			a.stop()
			b.stop()
		})
	}
}

// narrowNet is a carrier that takes small frames alone, as a gift wrap does.
type narrowNet struct {
	transport.Transport
	limit int
}

func (n narrowNet) Dial(ctx context.Context, ep transport.Endpoint, peer nostr.PubKey) (transport.Stream, error) {
	s, err := n.Transport.Dial(ctx, ep, peer)
	if err != nil {
		return nil, err
	}
	return narrowStream{s, n.limit}, nil
}

type narrowStream struct {
	transport.Stream
	limit int
}

func (s narrowStream) Send(ctx context.Context, frame []byte) error {
	if len(frame) > s.limit {
		return transport.ErrFrameTooLarge
	}
	return s.Stream.Send(ctx, frame)
}

// TestTooLargeForEveryCarrierIsLetGo wants a message that no carrier takes dropped with a word about it, and what is behind it sent.
func TestTooLargeForEveryCarrierIsLetGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		net := transport.NewMemory("memory")
		rigs := fleet(t, net, 2, func(i int, c *Config) { c.Transports = []transport.Transport{narrowNet{net, 4000}} })
		a, b := rigs[0], rigs[1]
		if _, err := a.host.descriptor(t.Context(), b.pub, true); err != nil {
			t.Fatal(err)
		}
		big, _ := didcomm.NewPing(newID(), a.host.self, identity.FormatDID(b.pub), time.Now().Unix(), false)
		big.Body = json.RawMessage(`{"x":"` + string(bytes.Repeat([]byte{'x'}, 5000)) + `"}`)
		a.host.mu.Lock()
		a.host.link(b.pub).enqueue(big, false)
		a.host.mu.Unlock()
		if _, err := a.host.Ping(t.Context(), b.pub); err != nil {
			t.Errorf("what was behind it: %v", err)
		}
		<-time.After(time.Minute)
		if told := a.told("undeliverable"); len(told) != 1 || told[0].Peer != b.pub {
			t.Errorf("told %+v", told)
		}
		a.stop()
		b.stop()
	})
}

// TestDurableMessagesSurviveARestart ends a peering with a peer that is away, restarts, and wants the word to arrive then.
func TestDurableMessagesSurviveARestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		net := transport.NewMemory("memory")
		rigs := fleet(t, net, 2, nil)
		a, b := rigs[0], rigs[1]
		want := []mesh.Want{{Shard: "notes", Filter: json.RawMessage(`{"kinds":[1]}`), Mode: mesh.ModeBoth}}
		for _, p := range []struct{ r, other *rig }{{b, a}, {a, b}} {
			if err := p.r.host.AddPeer(t.Context(), p.other.pub, spec.TierMember, want, nil); err != nil {
				t.Fatal(err)
			}
		}
		<-time.After(30 * time.Second)
		a.host.mu.Lock()
		l := a.host.links[b.pub]
		a.host.mu.Unlock()
		l.close()
		if _, err := a.host.Ping(t.Context(), b.pub); err != nil {
			t.Fatal(err)
		}
		net.Cut("Ab", transport.BlackHole)
		l.close()
		a.host.EndPeer(b.pub, "moving")
		if keys := outKeys(t, a.host); len(keys) == 0 {
			t.Fatal("nothing durable is in the journal")
		}
		a.restart()
		if way := a.host.ways[b.pub]; way.Address != "Ab" {
			t.Errorf("the rung that held last is remembered as %+v", way)
		}
		net.Cut("Ab", nil)
		<-time.After(5 * time.Minute)
		if p := b.host.Peers()[0]; p.Stage != "ended" {
			b.dump(t)
			t.Errorf("b has the peering as %s", p.Stage)
		}
		if keys := outKeys(t, a.host); len(keys) != 0 {
			t.Errorf("sent, and still kept: %v", keys)
		}
		a.stop()
		b.stop()
	})
}

func outKeys(t *testing.T, h *Host) (keys []string) {
	t.Helper()
	h.mu.Lock()
	defer h.mu.Unlock()
	for k := range takeOut(h.journal.Records()) {
		keys = append(keys, k)
	}
	return keys
}

// TestDurableMessageFailsBothWays lets the journal fail under a durable message, with the record on the disk and without. Either way the
// message is queued once, and kept.
func TestDurableMessageFailsBothWays(t *testing.T) {
	for _, applied := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			net := transport.NewMemory("memory")
			rigs := fleet(t, net, 2, nil)
			a, b := rigs[0], rigs[1]
			net.Cut("Ab", transport.BlackHole)
			if _, err := a.host.descriptor(t.Context(), b.pub, true); err != nil {
				t.Fatal(err)
			}
			eff := mesh.Send{To: b.pub, Type: spec.MsgPeeringEnd, ID: "the-end", Thread: "t", Durable: true, Body: map[string]string{"reason": "x"}}
			a.host.mu.Lock()
			inner := a.host.journal.f
			a.host.journal.f = &failing{journalFile: inner, write: true, applied: applied}
			err := a.host.post(eff)
			if err == nil {
				t.Error("no error from a disk that fails")
			}
			a.host.recover()
			a.host.postAgain(eff)
			l := a.host.links[b.pub]
			a.host.mu.Unlock()
			l.mu.Lock()
			n := len(l.queue)
			l.mu.Unlock()
			if keys := outKeys(t, a.host); n != 1 || len(keys) != 1 || keys[0] != outKey+"the-end" {
				t.Errorf("applied %v: %d queued, kept %v", applied, n, keys)
			}
			if j, err := OpenJournal(filepath.Join(a.host.cfg.Dir, "journal")); err != nil || len(takeOut(j.Records())) != 1 {
				t.Errorf("applied %v: on disk: %v", applied, err)
			}
			a.stop()
			b.stop()
		})
	}
}

// TestFeaturesAndProblems asks a node what it can do, and sends it a message of a protocol that it does not speak.
func TestFeaturesAndProblems(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		net := transport.NewMemory("memory")
		rigs := fleet(t, net, 2, nil)
		a, b := rigs[0], rigs[1]
		if _, err := a.host.Ping(t.Context(), b.pub); err != nil {
			t.Fatal(err)
		}
		list, err := a.host.Features(t.Context(), b.pub, didcomm.Query{FeatureType: "protocol", Match: "https://fleetmesh.org/*"}, didcomm.Query{FeatureType: "protocol", Match: didcomm.TrustPing})
		if err != nil || len(list) != 6 {
			t.Errorf("features %v, %v", list, err)
		}
		m := &didcomm.Message{ID: newID(), Type: "https://didcomm.org/basicmessage/2.0/message", From: a.host.self, To: []string{b.host.self}, CreatedTime: time.Now().Unix()}
		_, err = a.host.ask(t.Context(), b.pub, m, nil)
		var p *ProblemError
		if !errors.As(err, &p) || p.Problem.Code != spec.CodeUnsupportedProtocol.Refusal().Problem {
			t.Errorf("an unknown protocol is answered with %v", err)
		}
		a.stop()
		b.stop()
	})
}

// TestExamineLeavesNoTrace dials every rung to a peer and wants it said, and nothing counted.
func TestExamineLeavesNoTrace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		net := transport.NewMemory("memory")
		rigs := fleet(t, net, 2, nil)
		a, b := rigs[0], rigs[1]
		got := a.host.Examine(t.Context(), b.pub)
		if !got.Reachable || len(got.Rungs) != 1 || !got.Rungs[0].Dialled || !got.Rungs[0].OK {
			t.Errorf("found %+v", got)
		}
		if _, err := a.host.Ping(t.Context(), b.pub); err != nil {
			t.Fatal(err)
		}
		if got = a.host.Examine(t.Context(), b.pub); got.Session != "memory" || got.Rungs[0].Dialled || !got.Rungs[0].OK {
			t.Errorf("with a session: %+v", got)
		}
		net.Cut("Ab", transport.BlackHole)
		a.host.mu.Lock()
		l := a.host.links[b.pub]
		a.host.mu.Unlock()
		l.close()
		if got = a.host.Examine(t.Context(), b.pub); got.Reachable || got.Rungs[0].TookMS != 5000 || got.Rungs[0].Help == "" {
			t.Errorf("black-holed: %+v", got)
		}
		a.stop()
		b.stop()
	})
}

// TestAnOldEndDoesNotEndANewPeering records the frame that ends a peering, makes the peering anew, restarts, and plays the frame again.
func TestAnOldEndDoesNotEndANewPeering(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		net := transport.NewMemory("memory")
		var mu sync.Mutex
		var frames [][]byte
		rigs := fleet(t, net, 2, func(i int, c *Config) {
			if i == 0 {
				c.Transports = []transport.Transport{tap{net, func(f []byte) { mu.Lock(); frames = append(frames, f); mu.Unlock() }}}
			}
		})
		a, b := rigs[0], rigs[1]
		want := []mesh.Want{{Shard: "notes", Filter: json.RawMessage(`{"kinds":[1]}`), Mode: mesh.ModeBoth}}
		peer := func() {
			for _, p := range []struct{ r, other *rig }{{b, a}, {a, b}} {
				if err := p.r.host.AddPeer(t.Context(), p.other.pub, spec.TierMember, want, nil); err != nil {
					t.Fatal(err)
				}
			}
			<-time.After(time.Minute)
			if p := b.host.Peers()[0]; p.Stage != "active" {
				b.dump(t)
				t.Fatalf("b has the peering as %s", p.Stage)
			}
		}
		peer()
		a.host.mu.Lock()
		l := a.host.links[b.pub]
		a.host.mu.Unlock()
		l.close() // so that what follows goes over the tap
		a.host.EndPeer(b.pub, "for now")
		<-time.After(time.Minute)
		if p := b.host.Peers()[0]; p.Stage != "ended" {
			t.Fatalf("b has the peering as %s", p.Stage)
		}
		mu.Lock()
		old := slices.Clone(frames)
		mu.Unlock()
		peer()
		b.restart()
		<-time.After(time.Minute)
		for _, f := range old {
			s, err := net.Dial(t.Context(), transport.Endpoint{Scheme: "memory", Address: "Ab"}, b.pub)
			if err != nil {
				t.Fatal(err)
			}
			if err := s.Send(t.Context(), f); err != nil {
				t.Fatal(err)
			}
			<-time.After(time.Second)
			s.Close()
		}
		if p := b.host.Peers()[0]; p.Stage != "active" {
			t.Errorf("a replayed frame made the peering %s", p.Stage)
		}
		a.stop()
		b.stop()
	})
}

// tap shows a test what goes out.
type tap struct {
	transport.Transport
	saw func([]byte)
}

func (p tap) Dial(ctx context.Context, ep transport.Endpoint, peer nostr.PubKey) (transport.Stream, error) {
	s, err := p.Transport.Dial(ctx, ep, peer)
	return &tapStream{s, p.saw}, err
}

type tapStream struct {
	transport.Stream
	saw func([]byte)
}

func (s *tapStream) Send(ctx context.Context, frame []byte) error {
	s.saw(bytes.Clone(frame))
	return s.Stream.Send(ctx, frame)
}

// carrier is a stream of which only the scheme matters.
type carrier struct {
	transport.Stream
	scheme string
}

func (c *carrier) Scheme() string { return c.scheme }
func (c *carrier) Close() error   { return nil }

// TestClimbsBackFromTheLastResort: a link that fell to gift wraps while all else was cut tries the other rungs again, now and then, and takes the
// first that holds, whoever dialled.
func TestClimbsBackFromTheLastResort(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, ours := range []bool{true, false} {
			l := &link{h: &Host{}, peer: nostr.PubKey{1}, wake: make(chan struct{}, 1), kick: make(chan struct{}, 1)}
			wrap, wss := &carrier{scheme: "giftwrap"}, &carrier{scheme: "wss"}
			if l.adopt(wrap, true, true) != wrap {
				t.Fatal("nothing was adopted")
			}
			if l.climbsBack() {
				t.Error("it climbs at once")
			}
			<-time.After(proofTime)
			if !l.climbsBack() || l.climbsBack() {
				t.Error("it climbs once when its time has come")
			}
			<-time.After(climbEvery)
			if !l.climbsBack() {
				t.Error("it does not climb again")
			}
			if l.adopt(wss, true, ours) != wss {
				t.Errorf("a better stream was not taken, ours %v", ours)
			}
			if ours && l.adopt(&carrier{scheme: "giftwrap"}, true, true) != wss {
				t.Error("a gift wrap took the place of a better stream")
			}
		}
	})
}
