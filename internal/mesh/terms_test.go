package mesh

import (
	"encoding/json"
	"testing"
	"time"

	"fleetmesh.org/fleetmesh/internal/ledger"
	"fleetmesh.org/fleetmesh/nostr"
	"fleetmesh.org/fleetmesh/spec"
)

// lastGrant is the newest grant that e published.
func (w *pair) lastGrant(e *end) (g *ledger.Grant) {
	for _, one := range e.grants {
		if g == nil || one.CreatedAt > g.CreatedAt {
			g = one
		}
	}
	return g
}

func oneWant(filter string) []Want {
	return []Want{{Shard: "notes", Filter: json.RawMessage(filter), Mode: ModePull}}
}

// A budget that is declared with a peering is what its grant opens at; changed, it is amended with the operator's cause and binds from the next
// window; conduct raises it no further; given back, it grows again.
func TestDeclaredBudget(t *testing.T) {
	w := newPair(t)
	a, b := w.a(), w.b()
	add := AddPeer{Peer: b.key, Tier: spec.TierMember, Wants: oneWant(`{"kinds":[1]}`), Budget: ledger.Limits{spec.LimitEventsIn: 100, spec.LimitBlobBytes: 5000}}
	w.step(a, add)
	w.step(a, Described{Descriptor: descriptor(b)})
	g := w.lastGrant(a)
	if g.Limits[spec.LimitEventsIn] != 100 || g.Limits[spec.LimitBlobBytes] != 5000 || g.Limits[spec.LimitReq] != 600 {
		t.Fatalf("it opens at %v", g.Limits)
	}
	w.pass(5 * time.Second)
	add.Budget = ledger.Limits{spec.LimitEventsIn: 50}
	w.step(a, add)
	if g := w.lastGrant(a); g.Limits[spec.LimitEventsIn] != 50 || g.CreatedAt != w.now.Unix() {
		t.Errorf("changed: %v at %d", g.Limits, g.CreatedAt)
	}
	if n, last := w.told("amended"); n == 0 || last.Detail == "" || w.sentCause() != spec.CauseOperator {
		t.Errorf("the peer was told %d amends, the last for %q", n, w.sentCause())
	}
	p := a.node.peers[b.key]
	if now := ledger.WindowAt(w.now.Unix(), 60); p.allowed(now)[spec.LimitEventsIn] != 100 {
		t.Errorf("this window is held to %v", p.allowed(now))
	}
	w.pass(4 * time.Minute)
	if now := ledger.WindowAt(w.now.Unix(), 60); p.allowed(now)[spec.LimitEventsIn] != 50 {
		t.Errorf("later windows are held to %v", p.allowed(now))
	}
	// The same again changes nothing, nil leaves it, and after a restart it is the same.
	grants := len(a.grants)
	w.step(a, add)
	add.Budget = nil
	w.step(a, add)
	if len(a.grants) != grants {
		t.Error("the same wish again made a grant")
	}
	again := New(a.cfg)
	if err := again.Restore(a.journal); err != nil {
		t.Fatal(err)
	}
	if c := again.Peers(w.now)[0].Caps; len(c) != 1 || c[spec.LimitEventsIn] != 50 {
		t.Errorf("after a restart the budget is %v", c)
	}
	add.Budget = ledger.Limits{}
	w.step(a, add)
	if c := a.node.Peers(w.now)[0].Caps; len(c) != 0 {
		t.Errorf("given back, it is %v", c)
	}
	// What is above the ceiling of the tier is lowered to it: no grant is ever above.
	add.Budget = ledger.Limits{spec.LimitEventsIn: 1 << 40}
	w.step(a, add)
	w.pass(time.Minute)
	if g := w.lastGrant(a); g.Check() != nil || g.Limits[spec.LimitEventsIn] != spec.C().Ceiling(spec.LimitEventsIn, spec.TierMember) {
		t.Errorf("above the ceiling: %v, %v", g.Limits, g.Check())
	}
}

// sentCause is the cause of the last amend.
func (w *pair) sentCause() (c spec.Cause) {
	for _, s := range w.sent {
		if body, ok := s.Body.(amendBody); ok {
			c = body.Cause
		}
	}
	return c
}

// A grant opens where the operator's table says, at the pace and for the time that it says, and within the ceiling.
func TestGrantsOpenWhereThePolicySays(t *testing.T) {
	terms := Terms{
		Open: map[spec.Tier]ledger.Limits{
			spec.TierProbation: {spec.LimitEventsIn: 7},
			spec.TierMember:    {spec.LimitEventsIn: 1 << 50, spec.LimitBlobBytes: 99},
		},
		LifetimeSeconds: 86400, ReceiptSeconds: 30, ReceiptBytes: 4096,
	}
	w := newPair(t, func(c *Config) { c.Terms, c.Window = terms, 86400 })
	w.peering()
	ours, theirs := w.lastGrant(w.a()), w.lastGrant(w.b())
	if theirs.Tier != spec.TierProbation || theirs.Limits[spec.LimitEventsIn] != 7 || theirs.Limits[spec.LimitReq] != 150 {
		t.Errorf("a stranger's: %s %v", theirs.Tier, theirs.Limits)
	}
	if ours.Limits[spec.LimitEventsIn] != 3000 || ours.Limits[spec.LimitBlobBytes] != 99 {
		t.Errorf("a member's: %v", ours.Limits)
	}
	for _, g := range []*ledger.Grant{ours, theirs} {
		if g.Expiration-g.CreatedAt != 86400 || g.ReceiptSeconds != 30 || g.ReceiptBytes != 4096 || g.Check() != nil {
			t.Errorf("%+v: %v", g, g.Check())
		}
	}
	// It is renewed when a quarter of its life is left, not from its first day on.
	grants := len(w.a().grants)
	w.now = w.now.Add(17 * time.Hour)
	w.step(w.a(), Woken{})
	if len(w.a().grants) != grants {
		t.Error("it was made anew with seven hours to live")
	}
	w.now = w.now.Add(2 * time.Hour)
	w.step(w.a(), Woken{})
	if len(w.a().grants) == grants {
		t.Error("it was not made anew with five hours to live")
	}
}

// A node that is listed begins at its tier although the door is shut; one that is listed as revoked is turned away although it is open; an entry whose time
// is over says nothing.
func TestListedNodes(t *testing.T) {
	for _, c := range []struct {
		name      string
		enrolment Enrolment
		listed    Listed
		stage     stage
		tier      spec.Tier
	}{
		{"named", EnrolClosed, Listed{Tier: spec.TierTrusted}, active, spec.TierTrusted},
		{"revoked", EnrolOpen, Listed{Tier: spec.TierRevoked}, refused, ""},
		{"over", EnrolOpen, Listed{Tier: spec.TierRevoked, Expires: 1_700_000_000}, active, spec.TierProbation},
		{"not over", EnrolOpen, Listed{Tier: spec.TierRevoked, Expires: 1_900_000_000}, refused, ""},
	} {
		w := newPair(t)
		a, b := w.a(), w.b()
		g := Govern{Enrolment: c.enrolment, Serve: b.cfg.Serve, Terms: Terms{Nodes: map[nostr.PubKey]Listed{a.key: c.listed}}}
		w.step(b, g)
		w.step(a, AddPeer{Peer: b.key, Tier: spec.TierMember, Wants: oneWant(`{"kinds":[1]}`)})
		w.step(a, Described{Descriptor: descriptor(b)})
		if p := a.node.Peers(w.now)[0]; p.Stage != string(c.stage) {
			t.Errorf("%s: the peering is %s", c.name, p.Stage)
		}
		if c.tier != "" && w.lastGrant(b).Tier != c.tier {
			t.Errorf("%s: it begins at %s", c.name, w.lastGrant(b).Tier)
		}
	}
}

// A scope that is narrowed amends the grants that stand, with the operator's cause; sessions beyond it are refused. Tiers leave them as they are.
func TestGovernAmendsScopes(t *testing.T) {
	w := newPair(t)
	w.peering()
	a, b := w.a(), w.b()
	grants := len(b.grants)
	w.step(b, Govern{Enrolment: EnrolOpen, Serve: b.cfg.Serve, Terms: Terms{Open: map[spec.Tier]ledger.Limits{spec.TierProbation: {spec.LimitEventsIn: 1}}}})
	if len(b.grants) != grants {
		t.Error("a table for new grants amended one that stands")
	}
	w.pass(2 * time.Second)
	w.step(b, Govern{Enrolment: EnrolOpen, Serve: []json.RawMessage{json.RawMessage(`{"kinds":[30023]}`)}})
	if w.sentCause() != spec.CauseOperator {
		t.Errorf("the cause is %q", w.sentCause())
	}
	if s := w.lastGrant(b).Scopes; len(s) != 1 || string(s[0].Filter.AppendJSON(nil)) != `{"kinds":[30023]}` {
		t.Errorf("the scope is %+v", s)
	}
	w.serve = nil
	s := w.syncs[len(w.syncs)-1]
	w.step(b, Received{From: a.key, Type: spec.MsgSyncOpen, Thread: s.Session, Created: w.now.Unix(), Octets: 900, Body: json.RawMessage(`{"shard":"notes","filter":{"kinds":[1]},"mode":"pull","neg":"61"}`)})
	if _, last := w.told("sync-refused"); len(w.serve) > 0 || last.Code != spec.CodeOutOfScope {
		t.Errorf("a session beyond the scope: %+v", last)
	}
	// What is only sent needs no leave to push where none may push it.
	push, err := nostr.ParseFilter([]byte(`{"kinds":[1]}`))
	if err != nil {
		t.Fatal(err)
	}
	w.step(b, Govern{Enrolment: EnrolOpen, Serve: b.cfg.Serve, Terms: Terms{Push: &push}})
	w.step(b, AddPeer{Peer: a.key, Wants: []Want{{Shard: "x", Filter: json.RawMessage(`{"kinds":[7]}`), Mode: ModePush}}})
	w.pass(time.Second)
	for _, s := range w.lastGrant(b).Scopes {
		if s.Direction == ledger.Push {
			t.Errorf("a peer may push %s", s.Filter.AppendJSON(nil))
		}
	}
}

// A filter that is changed ends the live session that was begun for the old one, and the session for the new one begins at once, however often.
func TestChangedFilterIsTakenUp(t *testing.T) {
	w := newPair(t)
	w.peering()
	a, b := w.a(), w.b()
	live := func() StartSync {
		t.Helper()
		if len(w.syncs) != 1 {
			t.Fatalf("%d sessions began", len(w.syncs))
		}
		s := w.syncs[0]
		w.syncs = nil
		for _, eff := range w.step(a, SyncLive{Peer: b.key, Session: s.Session}) {
			if e, ok := eff.(EndSync); ok {
				t.Fatalf("%+v ends a session that is wanted", e)
			}
		}
		return s
	}
	s := live()
	for i := range 12 {
		filter := []string{`{"kinds":[1,6]}`, `{"kinds":[1]}`}[i%2]
		ended := ""
		for _, eff := range w.step(a, AddPeer{Peer: b.key, Wants: oneWant(filter)}) {
			if e, ok := eff.(EndSync); ok {
				ended = e.Session
			}
		}
		if ended != s.Session || len(w.syncs) > 0 {
			t.Fatalf("change %d ends %q and begins %d sessions", i, ended, len(w.syncs))
		}
		w.step(a, SyncEnded{Peer: b.key, Session: s.Session})
		if s = live(); string(s.Want.Filter) != filter {
			t.Fatalf("change %d: the next session asks for %s", i, s.Want.Filter)
		}
	}
	// The same wish again leaves it be, and one that went live for what is wanted no more ends then.
	for _, eff := range w.step(a, AddPeer{Peer: b.key, Wants: oneWant(`{"kinds":[1]}`)}) {
		if _, ok := eff.(EndSync); ok {
			t.Error("the same wish ended a session")
		}
	}
	w.step(a, AddPeer{Peer: b.key, Wants: oneWant(`{"kinds":[2]}`)})
	w.step(a, SyncEnded{Peer: b.key, Session: s.Session})
	early := w.syncs[0]
	w.step(a, AddPeer{Peer: b.key, Wants: oneWant(`{"kinds":[3]}`)})
	ends := false
	for _, eff := range w.step(a, SyncLive{Peer: b.key, Session: early.Session}) {
		e, ok := eff.(EndSync)
		ends = ends || ok && e.Session == early.Session
	}
	if !ends {
		t.Error("a session that was reconciling for an older filter goes on with it")
	}
}

// However often an operator amends within a window, that window stays accounted under the grant that it began with, at both ends.
func TestManyAmendsInOneWindow(t *testing.T) {
	w := newPair(t, func(c *Config) { c.Window = 3600 })
	w.peering()
	a, b := w.a(), w.b()
	start := ledger.WindowAt(w.now.Unix(), 3600).Start()
	first := a.node.peers[b.key].Issued.of(start).ID
	for i := range 20 {
		w.pass(time.Second)
		w.step(a, AddPeer{Peer: b.key, Wants: oneWant(`{"kinds":[1]}`), Budget: ledger.Limits{spec.LimitEventsIn: int64(100 + i)}})
	}
	p := a.node.peers[b.key]
	if got := p.Issued.of(start).ID; got != first || b.node.peers[a.key].Held.of(start).ID != first || len(p.Terms) != len(p.Issued) {
		t.Errorf("the window is accounted under %s and %s, and began under %s; %d terms of %d grants", got, b.node.peers[a.key].Held.of(start).ID, first, len(p.Terms), len(p.Issued))
	}
	for i := range 12 { // and they do not pile up
		w.now = w.now.Add(time.Hour)
		w.step(a, AddPeer{Peer: b.key, Wants: oneWant(`{"kinds":[1]}`), Budget: ledger.Limits{spec.LimitEventsIn: int64(200 + i)}})
	}
	if n := len(p.Issued); n > keptGrants || len(p.Terms) != n {
		t.Errorf("%d grants and %d terms are kept", n, len(p.Terms))
	}
}
