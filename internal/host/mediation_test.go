package host

import (
	"bytes"
	"context"
	"crypto/ecdh"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io/fs"
	"log/slog"
	mathrand "math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"fleetmesh.org/fleetmesh/internal/didcomm"
	"fleetmesh.org/fleetmesh/internal/didcomm/mediate"
	"fleetmesh.org/fleetmesh/internal/identity"
	"fleetmesh.org/fleetmesh/internal/mesh"
	"fleetmesh.org/fleetmesh/internal/transport"
	"fleetmesh.org/fleetmesh/nostr"
	"fleetmesh.org/fleetmesh/spec"
)

// safeBuffer is a log that many write to.
type safeBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *safeBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

// estuary is a sender, two mediators and a leaf that nobody can reach but through them.
type estuary struct {
	t            *testing.T
	net          *transport.Memory
	sender, leaf *rig
	mediators    [2]*rig
	logs         [2]*safeBuffer

	mu  sync.Mutex
	got map[string]int
}

func newEstuary(t *testing.T) *estuary {
	t.Helper()
	return newEstuaryOf(t, 2)
}

// newEstuaryOf lets the leaf use n of the mediators.
func newEstuaryOf(t *testing.T, n int) *estuary {
	t.Helper()
	e := &estuary{t: t, net: transport.NewMemory("wss"), got: map[string]int{}}
	var mu sync.Mutex
	byKey := map[nostr.PubKey]*rig{}
	find := func(k nostr.PubKey) *nostr.Event {
		mu.Lock()
		defer mu.Unlock()
		return byKey[k].desc
	}
	know := func(r *rig) {
		mu.Lock()
		defer mu.Unlock()
		byKey[r.pub] = r
	}
	for i := range e.mediators {
		e.logs[i] = new(safeBuffer)
		r := newRigWith(t, e.net, fmt.Sprint("m", i), byte(10+i), mesh.EnrolOpen, find,
			func(d *identity.Descriptor) {
				d.Class, d.Capabilities, d.Operator = spec.ClassAnchor, []string{"mediator"}, nostr.SecretKey{31: byte(20 + i)}.PubKey()
			},
			func(c *Config) {
				lim := mediate.DefaultLimits()
				c.Mediator, c.Log = &lim, slog.New(slog.NewTextHandler(e.logs[i], &slog.HandlerOptions{Level: slog.LevelDebug}))
			})
		e.mediators[i] = r
		know(r)
	}
	e.sender = newRigWith(t, e.net, "s", 1, mesh.EnrolClosed, find, nil, nil)
	know(e.sender)
	both := []nostr.PubKey{e.mediators[0].pub, e.mediators[1].pub}[:n]
	e.leaf = newRigWith(t, e.net, "l", 2, mesh.EnrolClosed, find,
		func(d *identity.Descriptor) {
			d.Class, d.Endpoints, d.Mediators = spec.ClassLeaf, nil, both
		},
		func(c *Config) {
			c.Mediators = both
			c.observe = func(a *arrival) {
				if a.m.Type == didcomm.TypePing {
					e.mu.Lock()
					e.got[a.m.ID]++
					e.mu.Unlock()
				}
			}
		})
	know(e.leaf)
	if err := e.leaf.host.Learn(e.sender.desc); err != nil {
		t.Fatal(err)
	}
	if err := e.sender.host.Learn(e.leaf.desc); err != nil {
		t.Fatal(err)
	}
	return e
}

// send queues one message to the leaf and returns its id.
func (e *estuary) send() string {
	e.t.Helper()
	m, err := didcomm.NewPing(newID(), e.sender.host.self, e.leaf.host.self, time.Now().Unix(), false)
	if err != nil {
		e.t.Fatal(err)
	}
	e.sender.host.mu.Lock()
	e.sender.host.link(e.leaf.pub).enqueue(m, false)
	e.sender.host.mu.Unlock()
	return m.ID
}

func (e *estuary) stop() {
	for _, r := range []*rig{e.sender, e.leaf, e.mediators[0], e.mediators[1]} {
		r.stop()
	}
}

// kill ends a host as kill -9 does: nothing is flushed, nothing is closed but what the system closes.
func (r *rig) kill() {
	r.door.Close()
	r.host.cancel()
	r.host.mu.Lock()
	if r.host.timer != nil {
		r.host.timer.Stop()
	}
	r.host.mu.Unlock()
	r.host.work.Wait()
}

// rounds is how many messages the sleeping leaf is sent.
func rounds() int {
	if testing.Short() {
		return 500
	}
	return 10_000
}

// TestASleepingLeafLosesNothing sends a leaf messages while it sleeps and wakes at random and each of its mediators is killed in turn, one of
// them twice: none is lost, none comes twice, and what the mediators kept and logged names no sender.
func TestASleepingLeafLosesNothing(t *testing.T) {
	sleepAndWake(t, 2, rounds(), map[int]int{1: 0, 2: 1, 3: 0})
}

// TestOneMediatorLosesNothing is the same with a single mediator that is killed twice.
func TestOneMediatorLosesNothing(t *testing.T) {
	sleepAndWake(t, 1, rounds()/2, map[int]int{1: 0, 3: 0})
}

// sleepAndWake kills the mediators that kills names after so many quarters.
func sleepAndWake(t *testing.T, mediators, total int, quarters map[int]int) {
	synctest.Test(t, func(t *testing.T) {
		e := newEstuaryOf(t, mediators)
		dice := mathrand.New(mathrand.NewPCG(1, 2))
		<-time.After(10 * time.Second)
		step := total / 200
		if step == 0 {
			step = 1
		}
		kills := map[int]int{}
		for q, which := range quarters {
			kills[total*q/4/step*step] = which
		}
		ctx, cancel := context.WithCancel(t.Context())
		var sleeper sync.WaitGroup
		sleeper.Go(func() {
			nap := mathrand.New(mathrand.NewPCG(3, 4))
			for {
				e.leaf.host.Wake()
				if !wait(ctx, time.Duration(5+nap.IntN(60))*time.Second) {
					break
				}
				e.leaf.host.Sleep()
				if !wait(ctx, time.Duration(5+nap.IntN(120))*time.Second) {
					break
				}
			}
			e.leaf.host.Wake()
		})
		sent := make([]string, 0, total)
		for len(sent) < total {
			for range step {
				sent = append(sent, e.send())
			}
			if which, ok := kills[len(sent)]; ok {
				m := e.mediators[which]
				m.kill()
				<-time.After(time.Duration(dice.IntN(90)) * time.Second)
				m.start()
			}
			<-time.After(time.Duration(5+dice.IntN(20)) * time.Second)
		}
		cancel()
		sleeper.Wait()
		<-time.After(30 * time.Minute)
		e.mu.Lock()
		lost, twice := 0, 0
		for _, id := range sent {
			switch n := e.got[id]; {
			case n == 0:
				lost++
			case n > 1:
				twice++
			}
		}
		t.Logf("%d sent, %d arrived, %d lost, %d twice", len(sent), len(e.got), lost, twice)
		if lost+twice > 0 || len(e.got) != total {
			t.Error("not every message arrived once")
		}
		e.mu.Unlock()
		for i := range mediators {
			e.noSender(i)
		}
		e.stop()
	})
}

func wait(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}

// noSender looks for the sender's key in everything that a mediator keeps and logs.
func (e *estuary) noSender(i int) {
	e.t.Helper()
	m := e.mediators[i]
	m.host.mu.Lock()
	if m.host.links[e.sender.pub] != nil || m.host.peers[e.sender.pub] != nil || m.host.relays[e.sender.pub] != nil {
		e.t.Error("a mediator's memory names the sender")
	}
	m.host.mu.Unlock()
	name := []byte(e.sender.pub.String()[:12])
	e.logs[i].mu.Lock()
	if bytes.Contains(e.logs[i].b.Bytes(), name) {
		e.t.Errorf("a mediator's log names the sender")
	}
	if e.logs[i].b.Len() == 0 {
		e.t.Error("a mediator logged nothing at all: the check shows nothing")
	}
	e.logs[i].mu.Unlock()
	err := filepath.WalkDir(m.cfg.Dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := os.ReadFile(path)
		if bytes.Contains(text, name) {
			e.t.Errorf("%s names the sender", path)
		}
		return err
	})
	if err != nil {
		e.t.Error(err)
	}
}

// TestALeafAnswersThroughItsMediators pings a leaf, and lets the leaf ping: neither learns the other's address, and the leaf dials nobody but
// its mediators.
func TestALeafAnswersThroughItsMediators(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEstuary(t)
		<-time.After(10 * time.Second)
		e.net.Cut("s", func(context.Context) error { return nil })
		pong, err := e.sender.host.Ping(t.Context(), e.leaf.pub)
		if err != nil || pong.Carrier != "mediator" {
			t.Errorf("a leaf is pinged: %+v, %v", pong, err)
		}
		pong, err = e.leaf.host.Ping(t.Context(), e.sender.pub)
		if err != nil || pong.Carrier != "mediator" {
			t.Errorf("a leaf pings: %+v, %v", pong, err)
		}
		if _, err := e.leaf.host.Ping(t.Context(), e.mediators[0].pub); err != nil {
			t.Errorf("a leaf pings its mediator: %v", err)
		}
		if _, err := e.mediators[0].host.Ping(t.Context(), e.leaf.pub); err != nil {
			t.Errorf("a mediator pings its leaf: %v", err)
		}
		e.stop()
	})
}

// TestPoisonDoesNotBlockALeaf puts envelopes that nobody can open before good ones.
func TestPoisonDoesNotBlockALeaf(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEstuary(t)
		<-time.After(10 * time.Second)
		e.leaf.host.Sleep()
		<-time.After(time.Second)
		for range 3 {
			key, err := ecdh.X25519().GenerateKey(rand.Reader)
			if err != nil {
				t.Fatal(err)
			}
			junk, err := didcomm.Anoncrypt([]byte(`{"id":"1","type":"a/b","body":{}}`), []didcomm.PublicKey{{KID: e.leaf.host.self + agreementFragment, Key: key.PublicKey()}})
			if err != nil {
				t.Fatal(err)
			}
			if err := e.mediators[0].host.mediation.offer(t.Context(), didcomm.Forward{Next: e.leaf.host.self, Envelope: junk}); err != nil {
				t.Fatal(err)
			}
		}
		id := e.send()
		<-time.After(10 * time.Second)
		e.leaf.host.Wake()
		<-time.After(10 * time.Second)
		e.mu.Lock()
		if e.got[id] != 1 {
			t.Errorf("the message behind came %d times", e.got[id])
		}
		e.mu.Unlock()
		<-time.After(30 * time.Minute)
		m := e.mediators[0].host.mediation
		m.mu.Lock()
		if waiting, aside := m.state.Waiting(e.leaf.host.self); waiting != aside {
			t.Errorf("%d wait, %d of them aside", waiting, aside)
		}
		m.mu.Unlock()
		e.stop()
	})
}

// TestMediationLogFailsBothWays lets the log fail under a forward. The forward is refused, and what the next start finds is what is on the
// disk.
func TestMediationLogFailsBothWays(t *testing.T) {
	for _, applied := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			e := newEstuary(t)
			<-time.After(10 * time.Second)
			e.leaf.host.Sleep()
			<-time.After(time.Second)
			m := e.mediators[0]
			m.host.mediation.mu.Lock()
			m.host.mediation.log.f = &failing{journalFile: m.host.mediation.log.f, write: true, applied: applied}
			m.host.mediation.mu.Unlock()
			env, err := didcomm.Anoncrypt([]byte(`{"id":"1","type":"a/b","body":{}}`), []didcomm.PublicKey{{KID: e.leaf.host.self + agreementFragment, Key: e.leaf.cfg.Agreement.PublicKey()}})
			if err != nil {
				t.Fatal(err)
			}
			f := didcomm.Forward{Next: e.leaf.host.self, Envelope: env}
			for range 2 {
				if err := m.host.mediation.offer(t.Context(), f); err == nil {
					t.Error("a forward was taken that is not on the disk")
				}
			}
			m.kill()
			m.start()
			m.host.mediation.mu.Lock()
			waiting, _ := m.host.mediation.state.Waiting(e.leaf.host.self)
			m.host.mediation.mu.Unlock()
			if (waiting == 1) != applied {
				t.Errorf("applied %v: %d wait after the restart", applied, waiting)
			}
			e.stop()
		})
	}
}

// TestALeafFederates peers a leaf with a node: grants, a shard in envelopes both ways, receipts and a clean window cross the mediators.
func TestALeafFederates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEstuary(t)
		<-time.After(10 * time.Second)
		e.sender.put(60, "of the node ")
		e.leaf.put(90, "of the leaf ")
		want := []mesh.Want{{Shard: "notes", Filter: json.RawMessage(`{"kinds":[1]}`), Mode: mesh.ModeBoth}}
		for _, p := range []struct{ r, other *rig }{{e.leaf, e.sender}, {e.sender, e.leaf}} {
			if err := p.r.host.AddPeer(t.Context(), p.other.pub, spec.TierMember, want, nil); err != nil {
				t.Fatal(err)
			}
		}
		<-time.After(4 * time.Minute)
		if e.sender.print() != e.leaf.print() {
			e.sender.dump(t)
			e.leaf.dump(t)
			t.Error("the shards differ")
		}
		for r, other := range map[*rig]*rig{e.sender: e.leaf, e.leaf: e.sender} {
			list := r.host.Peers()
			p := list[slices.IndexFunc(list, func(p mesh.Peer) bool { return p.Key == other.pub })]
			if p.Stage != "active" || p.Worst != "S0" || p.Clean == 0 || len(p.Windows) == 0 || p.Windows[0].Receipts == 0 {
				r.dump(t)
				t.Errorf("peering %+v", p)
			}
		}
		e.stop()
	})
}

// TestLinksOfStrangersRetire lets many strangers knock once, and wants nothing of them left after a while, and a link that retired to work again.
func TestLinksOfStrangersRetire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		net := transport.NewMemory("memory")
		rigs := fleet(t, net, 12, nil)
		a := rigs[0]
		for _, r := range rigs[1:] {
			if _, err := r.host.Ping(t.Context(), a.pub); err != nil {
				t.Fatal(err)
			}
		}
		for _, r := range rigs[2:] {
			r.stop()
		}
		<-time.After(2 * idleLife)
		a.host.mu.Lock()
		if n := len(a.host.links); n != 1 {
			t.Errorf("%d links, want the one that is connected", n)
		}
		l := a.host.links[rigs[1].pub]
		a.host.mu.Unlock()
		l.close()
		<-time.After(2 * idleLife)
		if _, err := a.host.Ping(t.Context(), rigs[1].pub); err != nil {
			t.Error(err)
		}
		a.stop()
		rigs[1].stop()
	})
}
