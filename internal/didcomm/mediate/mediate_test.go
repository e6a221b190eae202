package mediate

import (
	"bytes"
	"crypto/ecdh"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"fleetmesh.org/fleetmesh/internal/didcomm"
)

const (
	mia  = "did:example:mediator"
	leaf = "did:example:leaf"
	noa  = "did:example:noa"
)

var t0 = time.Unix(1_800_000_000, 0)

func privateKey(did string) *ecdh.PrivateKey {
	seed := sha256.Sum256([]byte(did))
	k, err := ecdh.X25519().NewPrivateKey(seed[:])
	if err != nil {
		panic(err)
	}
	return k
}

func publicKey(did string) didcomm.PublicKey {
	return didcomm.PublicKey{KID: did + "#agree", Key: privateKey(did).PublicKey()}
}

// envelope is something sealed to the leaf.
func envelope(t testing.TB, text string) []byte {
	t.Helper()
	b, err := didcomm.Anoncrypt([]byte(text), []didcomm.PublicKey{publicKey(leaf)})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// fixture is a mediator with a journal and a counter for ids.
type fixture struct {
	*Mediator
	t       testing.TB
	now     time.Time
	journal []Record
	n       int
}

func newFixture(t testing.TB, lim Limits) *fixture {
	f := &fixture{Mediator: New(mia, lim), t: t, now: t0}
	m := didcomm.NewMediateRequest("1", leaf, mia, f.now.Unix())
	if r := f.handle(m); r.Type != didcomm.TypeMediateGrant {
		t.Fatalf("answer to the request: %s", r.Type)
	}
	up, err := didcomm.NewKeylistUpdate("2", leaf, mia, f.now.Unix(), didcomm.KeylistItem{RecipientDID: leaf, Action: didcomm.KeylistAdd})
	if err != nil {
		t.Fatal(err)
	}
	f.handle(up)
	return f
}

func (f *fixture) commit(records []Record) {
	f.t.Helper()
	f.journal = append(f.journal, records...)
	if err := f.Apply(records...); err != nil {
		f.t.Fatal(err)
	}
}

func (f *fixture) handle(m *didcomm.Message) *didcomm.Message {
	f.t.Helper()
	f.n++
	r, err := f.Handle(f.now, fmt.Sprint("m", f.n), m, true, true)
	if err != nil {
		f.t.Fatal(err)
	}
	f.commit(r.Records)
	return r.Message
}

func (f *fixture) forward(e []byte) error {
	q, err := f.Forward(f.now, didcomm.Forward{Next: leaf, Envelope: e})
	if err != nil {
		return err
	}
	f.commit(q.Records)
	return nil
}

func (f *fixture) request(limit int) []didcomm.Delivered {
	f.t.Helper()
	m, err := didcomm.NewDeliveryRequest("d", leaf, mia, f.now.Unix(), "", limit)
	if err != nil {
		f.t.Fatal(err)
	}
	a := f.handle(m)
	if a.Type == didcomm.TypeStatus {
		return nil
	}
	d, err := didcomm.ParseDelivery(a)
	if err != nil {
		f.t.Fatal(err)
	}
	return d
}

func (f *fixture) ack(ids ...string) didcomm.Status {
	f.t.Helper()
	m, err := didcomm.NewMessagesReceived("a", leaf, mia, f.now.Unix(), ids)
	if err != nil {
		f.t.Fatal(err)
	}
	s, err := didcomm.ParseStatus(f.handle(m))
	if err != nil {
		f.t.Fatal(err)
	}
	return s
}

func code(err error) Code {
	var r *Refusal
	if errors.As(err, &r) {
		return r.Code
	}
	return ""
}

func TestRegistration(t *testing.T) {
	lim := DefaultLimits()
	lim.Clients = 1
	m := New(mia, lim)
	req := didcomm.NewMediateRequest("1", leaf, mia, 5)
	if r, err := m.Handle(t0, "2", req, false, true); err != nil || r.Message.Type != didcomm.TypeMediateDeny || r.Records != nil {
		t.Errorf("not admitted: %+v, %v", r, err)
	}
	if _, err := m.Forward(t0, didcomm.Forward{Next: leaf, Envelope: envelope(t, "x")}); code(err) != NotRegistered {
		t.Errorf("forward to a stranger: %v", err)
	}
	r, err := m.Handle(t0, "2", req, true, true)
	if err != nil || r.Message.Type != didcomm.TypeMediateGrant {
		t.Fatalf("%+v, %v", r, err)
	}
	if err := m.Apply(r.Records...); err != nil {
		t.Fatal(err)
	}
	if _, err := m.Forward(t0, didcomm.Forward{Next: leaf, Envelope: envelope(t, "x")}); code(err) != NotRegistered {
		t.Errorf("forward before the keylist update: %v", err)
	}
	if r, _ := m.Handle(t0, "3", didcomm.NewMediateRequest("1", noa, mia, 5), true, true); r.Message.Type != didcomm.TypeMediateDeny {
		t.Errorf("one client too many: %s", r.Message.Type)
	}
	if r, _ := m.Handle(t0, "3", req, true, true); r.Message.Type != didcomm.TypeMediateGrant || r.Records != nil {
		t.Errorf("asking again: %s, %v", r.Message.Type, r.Records)
	}
	status, _ := didcomm.NewStatusRequest("1", noa, mia, 5, leaf)
	if _, err := m.Handle(t0, "3", status, true, true); code(err) != NotForYou {
		t.Errorf("a stranger picks up: %v", err)
	}
	anonymous := *status
	anonymous.From = ""
	if _, err := m.Handle(t0, "3", &anonymous, true, true); code(err) != NotForYou {
		t.Errorf("nobody picks up: %v", err)
	}
}

func TestKeylist(t *testing.T) {
	f := newFixture(t, DefaultLimits())
	up, _ := didcomm.NewKeylistUpdate("1", leaf, mia, 5,
		didcomm.KeylistItem{RecipientDID: leaf, Action: didcomm.KeylistAdd},
		didcomm.KeylistItem{RecipientDID: noa, Action: didcomm.KeylistAdd},
		didcomm.KeylistItem{RecipientDID: leaf, Action: didcomm.KeylistRemove})
	items, err := didcomm.ParseKeylist(f.handle(up))
	var results []string
	for _, it := range items {
		results = append(results, it.Result)
	}
	if want := []string{didcomm.ResultNoChange, didcomm.ResultClientError, didcomm.ResultSuccess}; err != nil || !slices.Equal(results, want) {
		t.Errorf("results %v, %v, wanted %v", results, err, want)
	}
	if err := f.forward(envelope(t, "x")); code(err) != NotRegistered {
		t.Errorf("forward after removal: %v", err)
	}
	q, _ := didcomm.NewKeylistQuery("1", leaf, mia, 5, &didcomm.Page{Limit: 5})
	if items, err := didcomm.ParseKeylist(f.handle(q)); err != nil || len(items) != 0 {
		t.Errorf("keylist: %v, %v", items, err)
	}
}

func TestQueueLimits(t *testing.T) {
	lim := DefaultLimits()
	lim.QueueMessages, lim.BatchBytes = 3, 4000
	f := newFixture(t, lim)
	for i := range 3 {
		if err := f.forward(envelope(t, fmt.Sprint(i))); err != nil {
			t.Fatal(err)
		}
	}
	if err := f.forward(envelope(t, "3")); code(err) != QueueFull {
		t.Errorf("fourth message: %v", err)
	}
	f.lim.QueueMessages, f.lim.QueueBytes = 10, f.clients[leaf].bytes+10
	if err := f.forward(envelope(t, "4")); code(err) != QueueFull {
		t.Errorf("too many octets: %v", err)
	}
	f.lim.QueueBytes, f.lim.TotalBytes = 1<<20, f.total+10
	if err := f.forward(envelope(t, "5")); code(err) != NoRoom {
		t.Errorf("too many octets in all: %v", err)
	}
	if err := f.forward(envelope(t, strings.Repeat("x", 4000))); code(err) != TooLarge {
		t.Errorf("too large: %v", err)
	}
	if _, err := f.Forward(f.now, didcomm.Forward{Next: leaf, Envelope: envelope(t, "6"), ExpiresTime: f.now.Unix()}); code(err) != Expired {
		t.Errorf("expired: %v", err)
	}
	d := f.request(10)
	f.ack(d[0].ID, d[1].ID, d[2].ID)
	if f.total != 0 || f.clients[leaf].bytes != 0 {
		t.Errorf("%d octets in all, %d of the client, wanted none", f.total, f.clients[leaf].bytes)
	}
}

// TestNoSender: an envelope that shows its sender does not get in, and what does
// leaves no trace of one.
func TestNoSender(t *testing.T) {
	f := newFixture(t, DefaultLimits())
	sender := &didcomm.Sender{KID: noa + "#agree", Key: privateKey(noa)}
	letter := &didcomm.Message{ID: "1", Type: "a/b", From: noa, To: []string{leaf}}
	for _, show := range []bool{true, false} {
		b, err := didcomm.Pack(letter, didcomm.PackOptions{From: sender, To: []didcomm.PublicKey{publicKey(leaf)}, ShowSender: show})
		if err != nil {
			t.Fatal(err)
		}
		err = f.forward(b)
		if show && code(err) != SenderShown || !show && err != nil {
			t.Errorf("sender shown is %v: %v", show, err)
		}
	}
	memory, err := json.Marshal(f.Records())
	if err != nil {
		t.Fatal(err)
	}
	whole := fmt.Sprintf("%s %+v", memory, f.Mediator)
	for _, r := range f.Records() {
		whole += string(r.Envelope)
	}
	for _, s := range []string{noa, "ZGlkOmV4YW1wbGU6bm9h"} { // plain, and as base64url writes it
		if strings.Contains(whole, s) {
			t.Errorf("the mediator's memory holds the sender as %q", s)
		}
	}
	f.lim.ShowSender = true
	b, _ := didcomm.Pack(letter, didcomm.PackOptions{From: sender, To: []didcomm.PublicKey{publicKey(leaf)}, ShowSender: true})
	if err := f.forward(b); err != nil {
		t.Errorf("allowed by the limits: %v", err)
	}
}

func TestIdempotent(t *testing.T) {
	f := newFixture(t, DefaultLimits())
	e := envelope(t, "x")
	for range 3 {
		if err := f.forward(e); err != nil {
			t.Fatal(err)
		}
	}
	d := f.request(10)
	if len(d) != 1 || !bytes.Equal(d[0].Envelope, e) {
		t.Fatalf("delivered %d messages", len(d))
	}
	if s := f.ack(d[0].ID, d[0].ID, "unknown"); s.MessageCount != 0 {
		t.Errorf("status after the acknowledgement: %+v", s)
	}
	f.ack(d[0].ID)
	if err := f.forward(e); err != nil { // the sender did not learn of it and sends again
		t.Fatal(err)
	}
	if d := f.request(10); len(d) != 0 {
		t.Error("an acknowledged message came again")
	}
}

// TestLease: on one connection nothing comes twice; on the next, what was not
// acknowledged does.
func TestLease(t *testing.T) {
	f := newFixture(t, DefaultLimits())
	for i := range 5 {
		if err := f.forward(envelope(t, fmt.Sprint(i))); err != nil {
			t.Fatal(err)
		}
	}
	a, b, none := f.request(3), f.request(3), f.request(3)
	if len(a) != 3 || len(b) != 2 || none != nil {
		t.Fatalf("delivered %d, %d, %d", len(a), len(b), len(none))
	}
	f.ack(a[0].ID, a[1].ID)
	f.Connected(leaf)
	if again := f.request(10); len(again) != 3 || again[0].ID != a[2].ID {
		t.Errorf("after a new connection %d came", len(again))
	}
	f.now = f.now.Add(f.lim.Lease)
	if again := f.request(10); len(again) != 3 {
		t.Errorf("after the lease %d came", len(again))
	}
}

// TestPoison: a message that is never acknowledged does not hold up those behind
// it, and what was handed out beside it is not lost.
func TestPoison(t *testing.T) {
	f := newFixture(t, DefaultLimits())
	poison := envelope(t, "poison")
	if err := f.forward(poison); err != nil {
		t.Fatal(err)
	}
	for i := range 4 {
		if err := f.forward(envelope(t, fmt.Sprint("beside ", i))); err != nil {
			t.Fatal(err)
		}
	}
	bad := EnvelopeID(poison)
	// The leaf dies on the poison before it acknowledges anything, three times.
	for range 3 {
		if d := f.request(10); len(d) != 5 {
			t.Fatalf("%d delivered", len(d))
		}
		f.Connected(leaf)
	}
	if w, aside := f.Waiting(leaf); w != 5 || aside != 5 {
		t.Fatalf("%d wait, %d aside", w, aside)
	}
	fresh := envelope(t, "fresh")
	if err := f.forward(fresh); err != nil {
		t.Fatal(err)
	}
	d := f.request(10)
	if len(d) != 1 || d[0].ID != EnvelopeID(fresh) {
		t.Fatalf("behind the poison: %v", d)
	}
	f.ack(d[0].ID)
	got := map[string]bool{}
	for range 20 { // now one at a time; the poison kills the leaf each time
		d := f.request(10)
		if len(d) != 1 {
			t.Fatalf("%d of those aside delivered together", len(d))
		}
		if d[0].ID == bad {
			f.Connected(leaf)
			continue
		}
		f.ack(d[0].ID)
		got[d[0].ID] = true
		if len(got) == 4 {
			break
		}
	}
	if len(got) != 4 {
		t.Errorf("%d of 4 that came with the poison arrived", len(got))
	}
}

func TestLive(t *testing.T) {
	f := newFixture(t, DefaultLimits())
	on, _ := didcomm.NewLiveDeliveryChange("1", leaf, mia, 5, true)
	r, err := f.Handle(f.now, "x", on, true, false)
	if err != nil || r.Message.Type != didcomm.TypeProblemReport {
		t.Errorf("a connection that cannot: %+v, %v", r.Message, err)
	}
	if s, err := didcomm.ParseStatus(f.handle(on)); err != nil || !s.LiveDelivery {
		t.Errorf("status: %+v, %v", s, err)
	}
	q, err := f.Forward(f.now, didcomm.Forward{Next: leaf + "#agree", Envelope: envelope(t, "x")})
	if err != nil || !q.Live {
		t.Fatalf("%+v, %v", q, err)
	}
	f.commit(q.Records)
	r, ok, err := f.LiveDelivery(f.now, "l", leaf)
	if !ok || err != nil {
		t.Fatal(ok, err)
	}
	f.commit(r.Records)
	if d, err := didcomm.ParseDelivery(r.Message); err != nil || len(d) != 1 || r.Message.ThreadID != "" || r.Message.To[0] != leaf {
		t.Errorf("live delivery: %+v, %v", r.Message, err)
	}
	if _, ok, _ := f.LiveDelivery(f.now, "l", leaf); ok {
		t.Error("delivered twice on one connection")
	}
	f.Disconnected(leaf)
	if q, _ := f.Forward(f.now, didcomm.Forward{Next: leaf, Envelope: envelope(t, "y")}); q.Live {
		t.Error("live mode outlived its connection")
	}
}

func TestExpire(t *testing.T) {
	lim := DefaultLimits()
	lim.MaxAge = time.Hour
	f := newFixture(t, lim)
	q, err := f.Forward(f.now, didcomm.Forward{Next: leaf, Envelope: envelope(t, "short"), ExpiresTime: f.now.Unix() + 60})
	if err != nil {
		t.Fatal(err)
	}
	f.commit(q.Records)
	if err := f.forward(envelope(t, "long")); err != nil {
		t.Fatal(err)
	}
	f.now = f.now.Add(time.Minute)
	if s := f.ack(); s.MessageCount != 1 || s.LongestWaitedSeconds != 60 {
		t.Errorf("status counts what has expired: %+v", s)
	}
	f.commit(f.Expire(f.now))
	if w, _ := f.Waiting(leaf); w != 1 {
		t.Errorf("%d wait", w)
	}
	f.now = f.now.Add(time.Hour)
	f.commit(f.Expire(f.now))
	if w, _ := f.Waiting(leaf); w != 0 || f.total != 0 {
		t.Errorf("%d wait, %d octets", w, f.total)
	}
}

// TestRebuild: the journal and its compact form both give the state back.
func TestRebuild(t *testing.T) {
	f := newFixture(t, DefaultLimits())
	rng := rand.New(rand.NewPCG(3, 4))
	for i := range 200 {
		if err := f.forward(envelope(t, fmt.Sprint(i))); err != nil {
			t.Fatal(err)
		}
		if rng.IntN(5) == 0 {
			for _, d := range f.request(1 + rng.IntN(10)) {
				if rng.IntN(2) == 0 {
					f.ack(d.ID)
				}
			}
		}
		if rng.IntN(20) == 0 {
			f.Connected(leaf)
		}
	}
	want := f.Records()
	for name, records := range map[string][]Record{"journal": f.journal, "compact": want, "compact twice": append(slices.Clone(want), want...)} {
		text, err := json.Marshal(records)
		if err != nil {
			t.Fatal(err)
		}
		var read []Record
		if err := json.Unmarshal(text, &read); err != nil {
			t.Fatal(err)
		}
		again := New(mia, f.lim)
		if err := again.Apply(read...); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		again.Connected(leaf)
		f.Connected(leaf)
		if got := again.Records(); !reflect.DeepEqual(got, f.Records()) || again.total != f.total {
			t.Errorf("%s: %d records, wanted %d", name, len(got), len(f.Records()))
		}
	}
}

func TestApplyRefuses(t *testing.T) {
	m := New(mia, DefaultLimits())
	for _, r := range []Record{{Op: OpAdd, Client: leaf}, {Op: "burn", Client: leaf}, {}} {
		if err := m.Apply(r); err == nil {
			t.Errorf("%+v was applied", r)
		}
	}
	if err := m.Apply(Record{Op: OpRegister, Client: leaf}, Record{Op: OpQueue, Client: leaf}); err == nil {
		t.Error("a queue record without an envelope was applied")
	}
}

// TestSleeper sends 10,000 messages through two mediators to a leaf that comes and
// goes; each mediator is killed twice, with journal writes that fail both ways.
// Every message arrives, none is processed twice.
func TestSleeper(t *testing.T) {
	const messages = 10_000
	rng := rand.New(rand.NewPCG(5, 6))
	lim := DefaultLimits()
	mediators := []*fixture{newFixture(t, lim), newFixture(t, lim)}
	inbox := NewInbox(2*messages, 3)
	processed := map[string]int{}
	template := string(envelope(t, "x"))
	cut := strings.Index(template, `"ciphertext":"`) + len(`"ciphertext":"`)
	make1 := func(i int) []byte { return fmt.Appendf(nil, "%s%08d%s", template[:cut], i, template[cut+8:]) }
	visit := func(f *fixture) {
		f.Connected(leaf)
		for range 1 + rng.IntN(8) {
			d := f.request(1 + rng.IntN(200))
			var ids []string
			for _, x := range d {
				if inbox.Offer(x.Envelope) == Process {
					processed[x.ID]++
					inbox.Done(x.Envelope)
				}
				ids = append(ids, x.ID)
			}
			if rng.IntN(4) == 0 {
				return // falls asleep before it acknowledges
			}
			f.ack(ids...)
		}
	}
	kill := func(f *fixture) {
		m := New(mia, lim)
		if err := m.Apply(f.journal...); err != nil {
			t.Fatal(err)
		}
		f.Mediator = m
	}
	for i := range messages {
		for _, f := range mediators {
			e := make1(i)
			q, err := f.Forward(f.now, didcomm.Forward{Next: leaf, Envelope: e})
			if err != nil {
				t.Fatal(err)
			}
			switch rng.IntN(500) {
			case 0: // the journal fails and has not written: the sender hears so and sends again
			case 1: // the journal has written, yet says it failed: the state is rebuilt from it
				f.journal = append(f.journal, q.Records...)
				kill(f)
			default:
				f.commit(q.Records)
				continue
			}
			if err := f.forward(e); err != nil {
				t.Fatal(err)
			}
		}
		if rng.IntN(60) == 0 {
			visit(mediators[rng.IntN(2)])
		}
		if i == messages/3 || i == 2*messages/3 {
			kill(mediators[0])
			kill(mediators[1])
		}
	}
	for _, f := range mediators {
		for range 10 * messages {
			if w, _ := f.Waiting(leaf); w == 0 {
				break
			}
			visit(f)
		}
	}
	if len(processed) != messages {
		t.Errorf("%d of %d messages arrived", len(processed), messages)
	}
	for id, n := range processed {
		if n != 1 {
			t.Fatalf("%s was processed %d times", id, n)
		}
	}
}

func TestInbox(t *testing.T) {
	b := NewInbox(3, 3)
	bad, good := []byte("bad"), []byte("good")
	for i := range 3 {
		if v := b.Offer(bad); v != Process {
			t.Fatalf("try %d: %v", i, v)
		}
		if poison := b.Failed(bad); poison != (i == 2) {
			t.Fatalf("failure %d: poison is %v", i, poison)
		}
	}
	if b.Offer(bad) != Poison || b.Offer(good) != Process {
		t.Error("poison or good message is misjudged")
	}
	b.Done(good)
	if b.Offer(good) != Duplicate {
		t.Error("a processed message is new again")
	}
	for i := range 100 {
		b.Failed([]byte(fmt.Sprint(i)))
		b.Done([]byte(fmt.Sprint("d", i)))
	}
	if len(b.failed.byName) > 3 || len(b.done.byName) > 3 || b.failed.order.Len() > 3 {
		t.Error("the inbox is not bounded")
	}
}
