package mesh

import (
	"crypto/rand"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"fleetmesh.org/fleetmesh/internal/identity"
	"fleetmesh.org/fleetmesh/internal/ledger"
	"fleetmesh.org/fleetmesh/nostr"
	"fleetmesh.org/fleetmesh/spec"
)

// pair is two nodes and a perfect wire between them, under a clock of its own.
type pair struct {
	t     *testing.T
	now   time.Time
	nodes map[nostr.PubKey]*end
	order []nostr.PubKey
	tells []Tell
	syncs []StartSync
	serve []ServeSync
	drop  func(Send) bool // messages that get lost
	sent  []Send

	reports   []*nostr.Event // published
	unable    bool           // to publish
	retracted []nostr.ID
}

type end struct {
	key     nostr.PubKey
	agent   *identity.KeyAgent
	node    *Node
	journal map[string]json.RawMessage
	grants  map[nostr.ID]*ledger.Grant
	wake    int64
	cfg     Config
}

func key(i byte) nostr.SecretKey { return nostr.SecretKey{31: i} }

func newPair(t *testing.T, change ...func(*Config)) *pair {
	t.Helper()
	w := &pair{t: t, now: time.Unix(1_800_000_000, 0), nodes: map[nostr.PubKey]*end{}}
	for i := byte(1); i <= 2; i++ {
		agent, err := identity.NewKeyAgent(key(i))
		if err != nil {
			t.Fatal(err)
		}
		cfg := Config{Self: agent.PubKey(), Class: spec.ClassEdge, Digest: spec.DigestHex(), Protocols: protocols(), Enrolment: EnrolOpen, Window: 60, Serve: []json.RawMessage{json.RawMessage(`{}`)}, Seed: [32]byte{i}}
		for _, f := range change {
			f(&cfg)
		}
		e := &end{key: agent.PubKey(), agent: agent, node: New(cfg), journal: map[string]json.RawMessage{}, grants: map[nostr.ID]*ledger.Grant{}, cfg: cfg}
		w.nodes[e.key] = e
		w.order = append(w.order, e.key)
	}
	return w
}

func protocols() []string {
	return []string{spec.PIURIPeering, spec.PIURIBudget, spec.PIURISync, spec.PIURIComplaint, spec.PIURIStanding}
}

func (w *pair) a() *end { return w.nodes[w.order[0]] }
func (w *pair) b() *end { return w.nodes[w.order[1]] }

// step feeds an input and performs what comes of it, until nothing is left.
func (w *pair) step(e *end, in Input) (answers []Effect) {
	w.t.Helper()
	queue := e.node.Step(w.now, in)
	for len(queue) > 0 {
		eff := queue[0]
		queue = queue[1:]
		switch eff := eff.(type) {
		case Persist:
			e.journal[eff.Key] = eff.Record
		case WakeAt:
			e.wake = eff.At
		case Tell:
			w.tells = append(w.tells, eff)
		case IssueGrant:
			g := *eff.Grant
			sealed, err := ledger.Seal(e.agent, &g, rand.Reader)
			if err != nil {
				w.t.Fatal(err)
			}
			e.grants[g.ID] = &g
			queue = append(queue, e.node.Step(w.now, GrantIssued{Subject: eff.Subject, Grant: &g, Event: sealed})...)
		case PublishReport:
			queue = append(queue, e.node.Step(w.now, w.publish(e, eff))...)
		case RetractReport:
			w.retracted = append(w.retracted, eff.Event)
		case SignReceipt:
			r := *eff.Receipt
			sig, err := e.agent.Sign(r.Link())
			if err != nil {
				w.t.Fatal(err)
			}
			r.Sig = sig
			queue = append(queue, e.node.Step(w.now, ReceiptSigned{Issuer: eff.Issuer, Receipt: &r})...)
		case Send:
			w.deliver(e, eff)
		case SendProblem:
			w.step(w.nodes[eff.To], Problem{Peer: e.key, Code: eff.Code, Created: eff.Created})
		case StartSync:
			w.syncs = append(w.syncs, eff)
		case ServeSync:
			w.serve = append(w.serve, eff)
		default:
			answers = append(answers, eff)
		}
	}
	return answers
}

func (w *pair) deliver(from *end, s Send) {
	w.t.Helper()
	w.sent = append(w.sent, s)
	if w.drop != nil && w.drop(s) {
		return
	}
	body, err := json.Marshal(s.Body)
	if err != nil {
		w.t.Fatal(err)
	}
	if err := spec.ValidateMessage(s.Type, body); err != nil {
		w.t.Errorf("%s: %v\n%s", s.Type, err, body)
	}
	to := w.nodes[s.To]
	if s.First {
		w.step(to, Described{Descriptor: descriptor(from)})
	}
	for _, id := range s.Grants {
		w.step(to, GrantSeen{Issuer: from.key, Grant: from.grants[id]})
	}
	thread := s.Thread
	if thread == "" {
		thread = s.ID
	}
	w.step(to, Received{From: from.key, Anonymous: s.First, Type: s.Type, ID: s.ID, Thread: thread, Created: w.now.Unix(), Octets: int64(len(body)) + 400, Body: body})
}

func descriptor(e *end) *identity.Descriptor {
	return &identity.Descriptor{Subject: e.key, Class: spec.ClassEdge, Protocols: e.cfg.Protocols, Digest: spec.DigestHex(), Work: 20, Committed: 20}
}

// pass lets time go by, waking nodes when they asked for it.
func (w *pair) pass(d time.Duration) {
	w.t.Helper()
	for end := w.now.Add(d); w.now.Before(end); {
		w.now = w.now.Add(time.Second)
		for _, k := range w.order {
			if e := w.nodes[k]; e.wake != 0 && e.wake <= w.now.Unix() {
				e.wake = 0
				w.step(e, Woken{})
			}
		}
	}
}

func (w *pair) peering() {
	w.t.Helper()
	w.step(w.a(), AddPeer{Peer: w.b().key, Tier: spec.TierMember, Wants: []Want{{Shard: "notes", Filter: json.RawMessage(`{"kinds":[1]}`), Mode: ModePull}}})
	w.step(w.a(), Described{Descriptor: descriptor(w.b())})
	for _, e := range []*end{w.a(), w.b()} {
		if p := e.node.Peers(w.now)[0]; p.Stage != string(active) {
			w.t.Fatalf("the peering is %s\n%+v", p.Stage, w.tells)
		}
	}
}

// talk moves one session of a few messages, as a host would, and ends it on both sides.
func (w *pair) talk(envelopes int64) {
	w.t.Helper()
	if len(w.syncs) == 0 {
		w.t.Fatalf("no sync was begun: %+v", w.tells)
	}
	s := w.syncs[len(w.syncs)-1]
	w.syncs = nil
	send := func(from, to *end, typ spec.MessageType, octets, envelopes int64, body string) {
		w.t.Helper()
		if got := w.step(from, Sending{Peer: to.key, Session: s.Session, Type: typ, Created: w.now.Unix(), Octets: octets, Envelopes: envelopes}); len(got) != 1 {
			w.t.Fatalf("sending %s: %v", typ, got)
		} else if _, ok := got[0].(Permit); !ok {
			w.t.Fatalf("sending %s: %+v", typ, got[0])
		}
		w.step(to, Received{From: from.key, Type: typ, Thread: s.Session, Created: w.now.Unix(), Octets: octets, Envelopes: envelopes, Body: json.RawMessage(body)})
	}
	a, b := w.a(), w.b()
	send(a, b, spec.MsgSyncOpen, 900, 0, fmt.Sprintf(`{"shard":"notes","filter":%s,"mode":"pull","neg":"61"}`, s.Want.Filter))
	send(b, a, spec.MsgSyncFrame, 700, 0, `{"neg":"61"}`)
	send(a, b, spec.MsgSyncWant, 800, 0, `{"ids":[]}`)
	send(b, a, spec.MsgSyncDeliver, 2000*envelopes, envelopes, `{"count":1}`)
	send(a, b, spec.MsgSyncDone, 500, 0, `{"have":0,"need":1}`)
	for _, e := range []*end{a, b} {
		other := a
		if e == a {
			other = b
		}
		w.step(e, SyncEnded{Peer: other.key, Session: s.Session, Need: envelopes})
	}
}

func (w *pair) told(what string) (n int, last Tell) {
	for _, t := range w.tells {
		if t.What == what {
			n, last = n+1, t
		}
	}
	return n, last
}

func TestPeeringSyncReceiptAndACleanWindow(t *testing.T) {
	w := newPair(t)
	w.peering()
	w.talk(20)
	at, by := w.b().node.Peers(w.now)[0].Accounts, w.a().node.Peers(w.now)[0].Accounts
	if len(at) != 1 || len(by) != 1 || at[0].Way != "issued" || by[0].Way != "held" || at[0].Counted[spec.CounterEventsIn] != 20 || by[0].Counted[spec.CounterEventsIn] != 20 {
		t.Errorf("the open window: issuer %+v, subject %+v", at, by)
	}
	w.pass(3 * time.Minute)
	if n, last := w.told("window-closed"); n != 1 || last.Severity != spec.S0 {
		t.Fatalf("%d windows closed, the last with %v\n%+v", n, last.Severity, w.tells)
	}
	b := w.b().node.Peers(w.now)[0]
	if len(b.Windows) != 1 {
		t.Fatalf("windows %+v", b.Windows)
	}
	v := b.Windows[0]
	want := ledger.Counters{spec.CounterReq: 1, spec.CounterSyncRanges: 1, spec.CounterBytesIn: 2200, spec.CounterBytesOut: 40700, spec.CounterEventsIn: 20}.Clone()
	for _, c := range spec.C().Counters {
		if v.Measured[c] != want[c] || v.Claimed[c] != want[c] {
			t.Errorf("%s: measured %d, claimed %d, want %d", c, v.Measured[c], v.Claimed[c], want[c])
		}
	}
	if v.Severity != "S0" || v.Receipts == 0 || b.Clean == 0 {
		t.Errorf("verdict %+v, %d clean windows", v, b.Clean)
	}
	if n, _ := w.told("receipt-final"); n == 0 {
		t.Errorf("the closing receipt was not acknowledged as final: %+v", w.tells)
	}
}

// TestAnAnswerMadeBeforeTheCloseAndSentAfterIt: a responder names the time at which it begins an answer and counts it when it leaves. Where the
// window is settled in between, what comes after has to be claimed all the same.
func TestAnAnswerMadeBeforeTheCloseAndSentAfterIt(t *testing.T) {
	w := newPair(t)
	w.peering()
	s := w.syncs[len(w.syncs)-1]
	a, b := w.a(), w.b()
	w.now = time.Unix(w.now.Unix()/60*60+58, 0)
	move := func(from, to *end, typ spec.MessageType, created, octets, envelopes int64, body string) {
		t.Helper()
		got := w.step(from, Sending{Peer: to.key, Session: s.Session, Type: typ, Created: created, Octets: octets, Envelopes: envelopes})
		if _, ok := got[0].(Permit); !ok {
			t.Fatalf("sending %s: %+v", typ, got[0])
		}
		w.step(to, Received{From: from.key, Type: typ, Thread: s.Session, Created: created, Octets: octets, Envelopes: envelopes, Body: json.RawMessage(body)})
	}
	now := w.now.Unix()
	move(a, b, spec.MsgSyncOpen, now, 900, 0, `{"shard":"notes","filter":{"kinds":[1]},"mode":"pull","neg":"61"}`)
	move(b, a, spec.MsgSyncFrame, now, 700, 0, `{"neg":"61"}`)
	move(a, b, spec.MsgSyncWant, now, 800, 0, `{"ids":[]}`)
	began := w.now.Unix()
	w.pass(5 * time.Second) // the window ends, and both ends say what they have
	if n, _ := w.told("receipt-final"); n == 0 {
		t.Fatalf("the window is not settled: %+v", w.tells)
	}
	move(b, a, spec.MsgSyncDeliver, began, 40000, 20, `{"count":1}`)
	move(a, b, spec.MsgSyncDone, w.now.Unix(), 500, 0, `{"have":0,"need":1}`)
	w.pass(2 * time.Minute)
	w.step(b, Received{From: a.key, Type: spec.MsgSyncOpen, Thread: "again", Created: w.now.Unix(), Octets: 100, Body: json.RawMessage(`{"shard":"x","filter":{},"mode":"pull","neg":"61"}`)})
	if len(b.node.Peers(w.now)[0].Windows) == 0 {
		t.Fatalf("no window was closed: %+v", w.tells)
	}
	for _, v := range b.node.Peers(w.now)[0].Windows {
		for _, c := range spec.C().Counters {
			if v.Measured[c] != v.Claimed[c] {
				t.Errorf("window %d, %s: measured %d, claimed %d", v.Window, c, v.Measured[c], v.Claimed[c])
			}
		}
	}
}

func TestSilenceAfterTrafficIsAMisreport(t *testing.T) {
	w := newPair(t)
	w.peering()
	w.drop = func(s Send) bool { return s.Type == spec.MsgBudgetReceipt || s.Type == spec.MsgBudgetClose }
	w.talk(20)
	w.pass(3 * time.Minute)
	if n, _ := w.told("window-closed"); n != 0 {
		t.Fatalf("a silence was priced before anybody could know whose it was: %+v", w.tells)
	}
	if p := w.b().node.peers[w.a().key]; p.Settled != p.Measured[0].Window.Epoch {
		t.Fatal("the window did not stay open")
	}
	// The peer comes back for more, and has claimed nothing yet: now it is.
	w.step(w.b(), Received{From: w.a().key, Type: spec.MsgSyncOpen, Thread: "again", Created: w.now.Unix(), Octets: 100, Body: json.RawMessage(`{"shard":"x","filter":{},"mode":"pull","neg":"61"}`)})
	if _, last := w.told("window-closed"); last.Severity != spec.S2 {
		t.Fatalf("closed with %v, want S2", last.Severity)
	}
	b := w.b().node.Peers(w.now)[0]
	if b.Tier != spec.TierProbation {
		t.Errorf("tier %s after S2", b.Tier)
	}
}

func TestRestoreGoesOnWhereItStopped(t *testing.T) {
	w := newPair(t)
	w.peering()
	w.talk(20)
	for _, k := range w.order {
		e := w.nodes[k]
		e.node = New(e.cfg)
		if err := e.node.Restore(e.journal); err != nil {
			t.Fatal(err)
		}
		w.step(e, Woken{})
	}
	w.pass(3 * time.Minute)
	if n, last := w.told("window-closed"); n != 1 || last.Severity != spec.S0 {
		t.Fatalf("%d windows closed, the last with %v\n%+v", n, last.Severity, w.tells)
	}
}

func TestDeclines(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*Config)
		want   spec.Code
	}{
		{"closed to strangers", func(c *Config) { c.Enrolment = EnrolClosed }, spec.CodeInvitationRequired},
		{"too little work", func(c *Config) { c.Enrolment, c.PoWBits = EnrolPoW, 21 }, spec.CodePoWRequired},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newPair(t, c.change)
			w.step(w.a(), AddPeer{Peer: w.b().key})
			w.step(w.a(), Described{Descriptor: descriptor(w.b())})
			if _, last := w.told("peering-declined"); last.Code != c.want {
				t.Errorf("declined with %q, want %q\n%+v", last.Code, c.want, w.tells)
			}
			if len(w.b().node.Peers(w.now)) != 0 {
				t.Error("a declined stranger left something behind")
			}
		})
	}
	t.Run("a required protocol is missing", func(t *testing.T) {
		w := newPair(t)
		w.step(w.a(), AddPeer{Peer: w.b().key})
		d := descriptor(w.b())
		d.Protocols = []string{spec.PIURIPeering}
		w.step(w.a(), Described{Descriptor: d})
		if _, last := w.told("peering-impossible"); last.Code != spec.CodeUnsupportedProtocol {
			t.Errorf("%+v", w.tells)
		}
	})
}

func TestBothProposeAtOnce(t *testing.T) {
	w := newPair(t)
	held := []Send{}
	w.drop = func(s Send) bool {
		if s.Type == spec.MsgPeeringPropose && len(held) < 2 {
			held = append(held, s)
			return true
		}
		return false
	}
	for i, e := range []*end{w.a(), w.b()} {
		other := w.nodes[w.order[1-i]]
		w.step(e, AddPeer{Peer: other.key})
		w.step(e, Described{Descriptor: descriptor(other)})
	}
	for i, s := range held {
		w.deliver(w.nodes[w.order[i]], s)
	}
	for _, e := range []*end{w.a(), w.b()} {
		if p := e.node.Peers(w.now)[0]; p.Stage != string(active) {
			t.Errorf("the peering is %s\n%+v", p.Stage, w.tells)
		}
	}
}

func TestOutOfScopeIsRefused(t *testing.T) {
	w := newPair(t, func(c *Config) { c.Serve = []json.RawMessage{json.RawMessage(`{"kinds":[7]}`)} })
	w.peering()
	s := w.syncs[0]
	w.step(w.a(), Sending{Peer: w.b().key, Session: s.Session, Type: spec.MsgSyncOpen, Created: w.now.Unix(), Octets: 100})
	w.step(w.b(), Received{From: w.a().key, Type: spec.MsgSyncOpen, Thread: s.Session, Created: w.now.Unix(), Octets: 100, Body: json.RawMessage(`{"shard":"x","filter":{"kinds":[1]},"mode":"pull","neg":"61"}`)})
	if _, last := w.told("sync-refused"); last.Code != spec.CodeOutOfScope {
		t.Errorf("%+v", w.tells)
	}
}

// TestBudgetIsNeverExceeded asks for more than the grant allows: exactly the allowed number goes through, and the window is clean.
func TestBudgetIsNeverExceeded(t *testing.T) {
	w := newPair(t)
	w.peering()
	s := w.syncs[0]
	w.step(w.a(), Sending{Peer: w.b().key, Session: s.Session, Type: spec.MsgSyncOpen, Created: w.now.Unix(), Octets: 100})
	permitted := 1 // the open is a frame too
	for range 500 {
		got := w.step(w.a(), Sending{Peer: w.b().key, Session: s.Session, Type: spec.MsgSyncFrame, Created: w.now.Unix(), Octets: 100})
		switch got := got[0].(type) {
		case Permit:
			permitted++
		case Withhold:
			if got.Limit != spec.LimitSyncRanges || got.Code != spec.CodeOverBudget || got.Until <= w.now.Unix() {
				t.Fatalf("%+v", got)
			}
		}
	}
	if limit := int(spec.C().Ceiling(spec.LimitSyncRanges, spec.TierProbation)); permitted != limit {
		t.Errorf("%d frames permitted, want %d", permitted, limit)
	}
}
