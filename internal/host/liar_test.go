package host

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"fleetmesh.org/fleetmesh/internal/identity"
	"fleetmesh.org/fleetmesh/internal/ledger"
	"fleetmesh.org/fleetmesh/internal/mesh"
	"fleetmesh.org/fleetmesh/internal/transport"
	"fleetmesh.org/fleetmesh/nostr"
	"fleetmesh.org/fleetmesh/spec"
)

// fates collects what a peer said became of delivered events.
type fates struct {
	mu   sync.Mutex
	code map[string]spec.Code
	end  []spec.Code
}

func (f *fates) see(a *arrival) {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch spec.MessageType(a.m.Type) {
	case spec.MsgSyncDelivered:
		var d mesh.DeliveredBody
		if a.m.DecodeBody(&d) == nil {
			for _, r := range d.Refused {
				f.code[r.ID] = r.Code
			}
		}
	case spec.MsgSyncRefuse:
		var r mesh.RefuseBody
		if a.m.DecodeBody(&r) == nil {
			f.end = append(f.end, r.Code)
		}
	}
}

func (f *fates) of(e *nostr.Event) spec.Code {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.code[e.ID.String()]
}

// note makes an event of somebody's.
func note(t *testing.T, kind nostr.Kind, content string, tags ...nostr.Tag) *nostr.Event {
	t.Helper()
	e := &nostr.Event{CreatedAt: time.Now().Unix(), Kind: kind, Content: content, Tags: tags}
	if err := e.Sign(nostr.SecretKey{31: 98}); err != nil {
		t.Fatal(err)
	}
	return e
}

// liveSession is the one that a rig began and that is live.
func (r *rig) liveSession() *session {
	r.host.mu.Lock()
	defer r.host.mu.Unlock()
	for _, s := range r.host.sessions {
		if s.ours() {
			return s
		}
	}
	return nil
}

// forge delivers an event as no honest node would: whatever it is, with the path that bend leaves.
func (r *rig) forge(t *testing.T, e *nostr.Event, bend func(*ledger.Envelope)) {
	t.Helper()
	s := r.liveSession()
	if s == nil {
		t.Fatal("no session is live")
	}
	created := time.Now().Unix()
	g, w, _ := s.charge(created)
	env := &ledger.Envelope{Event: e, Grant: g.ID, Window: w.Epoch}
	if err := env.SignHop(r.cfg.Agent, created); err != nil {
		t.Fatal(err)
	}
	if bend != nil {
		bend(env)
	}
	if err := s.send(spec.MsgSyncDeliver, mesh.DeliverBody{Count: 1}, created, []*ledger.Envelope{env}); err != nil {
		t.Fatalf("send: %v", err)
	}
	<-time.After(20 * time.Second) // the liar's own loop finds an answer that nobody waits for, ends, and begins anew
	synctest.Wait()
}

// TestReceiverRefuses has a modified sender deliver, in a session that is in order, what must not cross, and wants each refused with its
// code and none stored.
func TestReceiverRefuses(t *testing.T) {
	kinds := json.RawMessage(`{"kinds":[1,4,10050,1059,20001]}`)
	other, err := identity.NewKeyAgent(nostr.SecretKey{31: 77})
	if err != nil {
		t.Fatal(err)
	}
	hops := func(n int) func(*ledger.Envelope) {
		return func(e *ledger.Envelope) {
			mine := e.Path
			e.Path = nil
			for range n {
				k, _ := identity.NewKeyAgent(nostr.SecretKey{31: byte(100 + len(e.Path))})
				before := ""
				if len(e.Path) > 0 {
					before = identity.FormatDID(e.Path[len(e.Path)-1].Node)
				}
				sig, _ := k.Sign(ledger.HopMessage(e.Event.ID, before, mine[0].At))
				e.Path = append(e.Path, ledger.Hop{Node: k.PubKey(), At: mine[0].At, Sig: sig})
			}
			e.Path = append(e.Path, mine...)
		}
	}
	for _, c := range []struct {
		name  string
		event func(t *testing.T) *nostr.Event
		bend  func(*ledger.Envelope)
		want  spec.Code
	}{
		{"a kind that never crosses", func(t *testing.T) *nostr.Event { return note(t, 4, "direct") }, nil, spec.CodeNever},
		{"an ephemeral kind", func(t *testing.T) *nostr.Event { return note(t, 20001, "gone") }, nil, spec.CodeNever},
		{"a protected event", func(t *testing.T) *nostr.Event { return note(t, 1, "mine", nostr.Tag{"-"}) }, nil, spec.CodeNever},
		{"an expired event", func(t *testing.T) *nostr.Event {
			return note(t, 1, "over", nostr.Tag{"expiration", fmt.Sprint(time.Now().Unix() - 1)})
		}, nil, spec.CodeExpired},
		{"an event outside the interest", func(t *testing.T) *nostr.Event { return note(t, 7, "+") }, nil, spec.CodeOutOfScope},
		{"a fourth hop", func(t *testing.T) *nostr.Event { return note(t, 1, "far") }, hops(3), spec.CodeHopLimit},
		{"a hop that signed something else", func(t *testing.T) *nostr.Event { return note(t, 1, "forged") }, hops(1), spec.CodeInvalid},
		{"a hop of somebody else's", func(t *testing.T) *nostr.Event { return note(t, 1, "lent") }, func(e *ledger.Envelope) { e.Path[0].Node = other.PubKey() }, spec.CodeInvalid},
		{"another grant", func(t *testing.T) *nostr.Event { return note(t, 1, "free") }, func(e *ledger.Envelope) { e.Grant[0] ^= 1 }, spec.CodeNotGranted},
		{"another window", func(t *testing.T) *nostr.Event { return note(t, 1, "late") }, func(e *ledger.Envelope) { e.Window++ }, spec.CodeNotGranted},
		{"a gift wrap for somebody who named no relay", func(t *testing.T) *nostr.Event {
			return note(t, 1059, "wrapped", nostr.Tag{"p", other.PubKey().String()})
		}, nil, spec.CodeNever},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				got := &fates{code: map[string]spec.Code{}}
				rigs := fleet(t, transport.NewMemory("memory"), 2, func(i int, cfg *Config) {
					if i == 0 {
						cfg.observe = got.see
					}
				})
				defer stopAll(rigs)
				want := []mesh.Want{{Shard: "all", Filter: kinds, Mode: mesh.ModeBoth}}
				for i := range rigs {
					if err := rigs[i].host.AddPeer(t.Context(), rigs[1-i].pub, spec.TierMember, want, nil); err != nil {
						t.Fatal(err)
					}
				}
				<-time.After(30 * time.Second)
				synctest.Wait()
				e := c.event(t)
				rigs[0].forge(t, e, c.bend)
				if code := got.of(e); code != c.want {
					rigs[1].dump(t)
					t.Errorf("refused with %q, want %q; sessions refused with %q", code, c.want, got.end)
				}
				if held, _ := rigs[1].store.Has(t.Context(), e.ID, time.Now().Unix()); held {
					t.Error("it is stored")
				}
			})
		})
	}
}

// TestGiftWrapsGoToTheirMailboxAlone stores gift wraps at a node with two peers, and wants each at the peer that its recipient's kind 10050 names, live,
// and nowhere else, not by a reconciliation either.
func TestGiftWrapsGoToTheirMailboxAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var rigs []*rig
		address := func(i int) string { return fmt.Sprintf("wss://relay%d.example", i) }
		rigs = fleetWith(t, transport.NewMemory("memory"), 3, func(i int, d *identity.Descriptor) {
			d.Endpoints = append(d.Endpoints, identity.Endpoint{Scheme: "wss", Address: address(i), Preference: 20})
		}, func(i int, cfg *Config) {
			cfg.Named = func(ctx context.Context, k nostr.PubKey, relays []string) bool {
				f := nostr.Filter{Kinds: []nostr.Kind{spec.KindDMRelays}, Authors: []nostr.PubKey{k}}
				for e := range rigs[i].store.Query(ctx, []nostr.Filter{f}, rigs[i].cfg.View, 1, time.Now().Unix()) {
					for v := range e.TagValues("relay") {
						if slices.Contains(relays, v) {
							return true
						}
					}
				}
				return false
			}
		})
		defer stopAll(rigs)
		for _, p := range [][2]int{{0, 1}, {0, 2}} {
			for k := range 2 {
				want := []mesh.Want{{Shard: "all", Filter: json.RawMessage(`{}`), Mode: mesh.ModeBoth}}
				if err := rigs[p[k]].host.AddPeer(t.Context(), rigs[p[1-k]].pub, spec.TierMember, want, nil); err != nil {
					t.Fatal(err)
				}
			}
		}
		<-time.After(30 * time.Second)
		recipient := nostr.SecretKey{31: 55}
		list := &nostr.Event{CreatedAt: time.Now().Unix(), Kind: spec.KindDMRelays, Tags: []nostr.Tag{{"relay", address(1)}}}
		if err := list.Sign(recipient); err != nil {
			t.Fatal(err)
		}
		store := func(e *nostr.Event) {
			if _, err := rigs[0].store.Insert(t.Context(), []*nostr.Event{e}, time.Now().Unix()); err != nil {
				t.Fatal(err)
			}
			rigs[0].host.Arrived()
			<-time.After(time.Second)
			synctest.Wait()
		}
		store(list)
		wrap := note(t, nostr.KindGiftWrap, "wrapped", nostr.Tag{"p", recipient.PubKey().String()})
		store(wrap)
		<-time.After(6 * time.Minute) // sessions are renewed
		synctest.Wait()
		for i, want := range []bool{true, true, false} {
			if held, _ := rigs[i].store.Has(t.Context(), wrap.ID, time.Now().Unix()); held != want {
				rigs[i].dump(t)
				t.Errorf("node %d holds the wrap: %v, want %v", i, held, want)
			}
		}
		honest(t, rigs)
	})
}
