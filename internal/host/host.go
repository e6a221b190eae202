package host

import (
	"context"
	"crypto/ecdh"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"fleetmesh.org/fleetmesh/internal/didcomm"
	"fleetmesh.org/fleetmesh/internal/didcomm/mediate"
	"fleetmesh.org/fleetmesh/internal/identity"
	"fleetmesh.org/fleetmesh/internal/ledger"
	"fleetmesh.org/fleetmesh/internal/mesh"
	"fleetmesh.org/fleetmesh/internal/store"
	"fleetmesh.org/fleetmesh/internal/strain"
	"fleetmesh.org/fleetmesh/internal/transport"
	"fleetmesh.org/fleetmesh/nostr"
	"fleetmesh.org/fleetmesh/spec"
)

// Config is what a Host is made of.
type Config struct {
	Agent     identity.Agent   // holds the node key
	Agreement *ecdh.PrivateKey // X25519: opens envelopes
	Mesh      mesh.Config
	Dir       string // journal and provenance

	Store store.Store
	View  store.View // hides what never leaves, such as gift wraps
	// Take offers verified events that a peer delivered to the node's own inbound path.
	Take func(ctx context.Context, events []*nostr.Event) ([]store.Outcome, error)
	// Leaving is asked about each event before it is delivered to a peer; nil lets all go. Left is told of envelopes once they have
	// been sent; nil: nobody is. Both may be called by several sessions at once.
	Leaving func(ctx context.Context, peer nostr.PubKey, e *nostr.Event) bool
	Left    func(peer nostr.PubKey, envelopes []*ledger.Envelope)
	// Named says whether a key names one of the relays in its kind 10050: gift wraps go to such nodes alone. nil: none crosses.
	Named func(ctx context.Context, recipient nostr.PubKey, relays []string) bool
	// Publish stores and serves an event of our own: a grant.
	Publish func(ctx context.Context, e *nostr.Event) error
	// Announce is Publish for what others shall read: reports and what follows from them. nil: Publish.
	Announce func(ctx context.Context, e *nostr.Event) error
	// Shed is told which rungs of the shedding ladder are engaged, whenever that changes. It may be nil and must not wait.
	Shed func([]strain.Rung)
	// Find looks for a peer's descriptor elsewhere, for instance on the relays that hints name.
	Find func(ctx context.Context, key nostr.PubKey, hints []string) (*nostr.Event, error)
	// Descriptor is our own current descriptor.
	Descriptor func() *nostr.Event
	// Known returns up to limit live descriptors of other nodes, for a peer that asks; Told takes those that a peer named. Invited redeems an
	// invitation of ours: it says whether the id is good for the key. Each may be nil. Known and Invited must not wait.
	Known   func(limit int) []*nostr.Event
	Told    func(ctx context.Context, from nostr.PubKey, descriptors []*nostr.Event)
	Invited func(id string, from nostr.PubKey) bool

	// Mediator makes this node hold messages for leaves; nil: it does not. Mediators are those that hold ours, if we are a leaf: then they alone
	// are dialled, and everything else goes by way of them. MediatorHints are relays where their descriptors may be found.
	Mediator      *mediate.Limits
	Mediators     []nostr.PubKey
	MediatorHints []string

	// Trace begins the trace of a sync: our role in it, initiator or responder, and the mode of its interest. It may be nil and must not wait.
	Trace func(role, mode string) SyncTrace

	Transports []transport.Transport // by which we dial
	Ours       []transport.Endpoint  // our side of the ladder
	Verifier   nostr.Verifier        // nil: nostr.NewBulkVerifier()
	Random     io.Reader             // of blindings; nil: crypto/rand
	Log        *slog.Logger          // nil discards
	Noted      func(Happening)       // is told of all that happens, in order; it may be nil and must not call back

	tamper  *tamper        // tests: what this node does wrong
	observe func(*arrival) // tests: sees every message that is taken
}

// Host runs one mesh node.
type Host struct {
	cfg        Config
	self       string // our DID
	selfKey    nostr.PubKey
	dialers    map[string]transport.Transport
	provenance *Provenance

	ctx    context.Context
	cancel context.CancelFunc
	work   sync.WaitGroup

	tail      *tail                                // of the store, for live sessions
	flows     flows                                // what goes over them
	mediation *mediation                           // what we hold for leaves; nil: nothing
	mailbox   *mailbox                             // of a leaf; nil for others
	mine      atomic.Pointer[[]nostr.PubKey]       // our mediators, if we are a leaf
	ours      atomic.Pointer[[]transport.Endpoint] // our side of the ladder

	mu       sync.Mutex // guards what follows; mesh takes one input at a time
	node     *mesh.Node
	journal  *Journal
	replay   *didcomm.Replay
	links    map[nostr.PubKey]*link
	relays   map[nostr.PubKey]*link              // of what clients of our mediation send out
	waiting  map[string]json.RawMessage          // durable messages that were found in the journal and are not queued yet
	ways     map[nostr.PubKey]transport.Endpoint // that carried the last session with a peer
	seen     map[string]int64                    // messages that were handled before, by key of the journal, and until when they could come again
	asked    map[string]question                 // by thread: who waits for an answer
	sessions map[string]*session
	peers    map[nostr.PubKey]*identity.Descriptor
	hints    map[nostr.PubKey][]string
	rings    []didcomm.Keys // ours that open envelopes, the present one first
	revoked  map[nostr.PubKey]bool
	sought   map[nostr.PubKey]time.Time
	timer    *time.Timer
	history  []Happening
	changed  chan struct{} // closed and made anew at every happening
	failed   error         // federation has stopped for good

	deep map[nostr.PubKey]mesh.Exhibit // the last envelope of a peer's that came too far
}

// Happening is something that mesh told of, with its time: what `why` and `peer show` answer from.
type Happening struct {
	At   time.Time
	Tell mesh.Tell
}

// historyLength is how many happenings are remembered.
const historyLength = 2000

// New takes up the journal and makes a host that is not running yet.
func New(cfg Config) (*Host, error) {
	if cfg.Verifier == nil {
		cfg.Verifier = nostr.NewBulkVerifier()
	}
	if cfg.Random == nil {
		cfg.Random = rand.Reader
	}
	if cfg.tamper == nil {
		cfg.tamper = tampered
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	h := &Host{
		cfg: cfg, self: identity.FormatDID(cfg.Agent.PubKey()), selfKey: cfg.Agent.PubKey(), dialers: map[string]transport.Transport{},
		replay: didcomm.NewReplay(didcomm.DefaultReplayLimits()),
		links:  map[nostr.PubKey]*link{}, sessions: map[string]*session{}, peers: map[nostr.PubKey]*identity.Descriptor{}, hints: map[nostr.PubKey][]string{},
		revoked: map[nostr.PubKey]bool{}, sought: map[nostr.PubKey]time.Time{}, relays: map[nostr.PubKey]*link{}, asked: map[string]question{}, changed: make(chan struct{}),
	}
	h.flows.to = map[nostr.PubKey]*flow{}
	h.tail = newTail(h)
	h.SetAgreement(cfg.Agreement, nil)
	h.mine.Store(&cfg.Mediators)
	h.ours.Store(&cfg.Ours)
	for _, t := range cfg.Transports {
		h.dialers[t.Scheme()] = t
	}
	if err := h.restore(); err != nil {
		return nil, err
	}
	var err error
	if h.provenance, err = OpenProvenance(filepath.Join(cfg.Dir, "provenance")); err != nil {
		return nil, err
	}
	h.ctx, h.cancel = context.WithCancel(context.Background())
	return h, h.openMediation()
}

// restore rebuilds the state from the journal. h.mu is held, or nobody else is there yet.
func (h *Host) restore() error {
	j, err := OpenJournal(filepath.Join(h.cfg.Dir, "journal"))
	if err != nil {
		return err
	}
	if _, err := rand.Read(h.cfg.Mesh.Seed[:]); err != nil {
		return fmt.Errorf("draw the seed of message ids: %w", err)
	}
	h.node = mesh.New(h.cfg.Mesh)
	records := j.Records()
	h.waiting, h.ways, h.seen = takeOut(records), takeWays(records), takeSeen(records)
	if err := h.node.Restore(records); err != nil {
		return err
	}
	h.journal = j
	return nil
}

// Start accepts streams from the listeners and goes on where the node stopped.
func (h *Host) Start(listeners ...transport.Listener) {
	for _, l := range listeners {
		h.work.Go(func() { h.accept(l) })
	}
	for _, p := range h.Peers() {
		h.work.Go(func() { h.rediscover(p.Key) })
	}
	h.work.Go(h.tail.run)
	h.mu.Lock()
	h.requeue()
	h.mu.Unlock()
	h.startMediation()
	if len(h.Peers()) > 0 {
		h.Stressed(strain.Own, "restart", nostr.PubKey{})
	}
	h.step(mesh.Woken{})
}

// Serve accepts streams from one more listener until that or the host ends.
func (h *Host) Serve(l transport.Listener) { h.accept(l) }

// Stop says goodbye to peers within ctx, and ends everything.
func (h *Host) Stop(ctx context.Context) error {
	h.step(mesh.Stopping{})
	h.flush(ctx)
	h.cancel()
	h.mu.Lock()
	if h.timer != nil {
		h.timer.Stop()
	}
	h.mu.Unlock()
	h.work.Wait()
	return errors.Join(h.journal.Close(), h.provenance.Close(), h.closeMediation())
}

// step feeds mesh one input, performs the effects in order, and returns those that answer the caller.
func (h *Host) step(in mesh.Input) []mesh.Effect {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.stepLocked(in)
}

func (h *Host) stepLocked(in mesh.Input) (answers []mesh.Effect) {
	if h.failed != nil {
		return nil
	}
	queue := h.node.Step(Now(), in)
	for len(queue) > 0 {
		eff := queue[0]
		queue = queue[1:]
		next, answer, err := h.perform(eff)
		if err != nil {
			// What is in the state is no longer what is on disk: drop the rest and take up the journal.
			h.cfg.Log.Error("federation: an effect failed; the state is taken up from the journal", "effect", fmt.Sprintf("%T", eff), "err", err)
			h.recover()
			h.postAgain(eff)
			return nil
		}
		if answer {
			answers = append(answers, eff)
		}
		if next != nil {
			queue = append(queue, h.node.Step(Now(), next)...)
		}
	}
	return answers
}

// recover rebuilds the state from the journal; if that fails too, federation stops and the relay goes on alone.
func (h *Host) recover() {
	h.journal.Close() // broken already, or about to be opened again
	if err := h.restore(); err != nil {
		h.failed = err
		h.cfg.Log.Error("federation has stopped", "err", err)
		return
	}
	for _, s := range h.sessions {
		s.cancel()
	}
	h.requeue()
	h.arm(Now().Unix() + 1)
}

// perform does one effect. next is an input that it leads to; answer says that the effect is for whoever asked.
func (h *Host) perform(eff mesh.Effect) (next mesh.Input, answer bool, err error) {
	switch eff := eff.(type) {
	case mesh.Persist:
		return nil, false, h.journal.Put(eff.Key, eff.Record, !eff.Lazy)
	case mesh.WakeAt:
		h.arm(eff.At)
	case mesh.Tell:
		h.note(eff)
	case mesh.IssueGrant:
		next, err = h.issue(eff)
		return next, false, err
	case mesh.SignReceipt:
		sig, err := h.cfg.Agent.Sign(eff.Receipt.Link())
		if err != nil {
			return nil, false, fmt.Errorf("sign a receipt: %w", err)
		}
		eff.Receipt.Sig = sig
		return mesh.ReceiptSigned(eff), false, nil
	case mesh.Send:
		if h.cfg.tamper.withholds(eff) {
			return h.cfg.tamper.pretends(eff), false, nil
		}
		if err := h.post(eff); err != nil {
			return nil, false, err
		}
		if more := h.cfg.tamper.other(eff, h.cfg.Agent); more != nil {
			return nil, false, h.post(*more)
		}
	case mesh.SendProblem:
		h.link(eff.To).enqueue(h.problem(eff), false)
	case mesh.StartSync:
		h.begin(eff)
	case mesh.ServeSync:
		h.serve(eff)
	case mesh.EndSync:
		if s := h.sessions[eff.Session]; s != nil {
			s.unwanted.Store(true)
			signal(s.now.nudge)
		}
	case mesh.ServePeers:
		h.servePeers(eff)
	case mesh.PeersTold:
		h.told(eff)
	case mesh.PublishReport:
		return h.publishReport(eff), false, nil
	case mesh.RetractReport:
		h.retract(eff)
	case mesh.AnswerStanding:
		h.answerStanding(eff)
	case mesh.Shed:
		if h.cfg.Shed != nil {
			h.cfg.Shed(eff.Rungs)
		}
	default:
		return nil, true, nil
	}
	return nil, false, nil
}

// issue seals, signs and publishes a grant.
func (h *Host) issue(eff mesh.IssueGrant) (mesh.Input, error) {
	e, err := ledger.Seal(h.cfg.Agent, eff.Grant, h.cfg.Random)
	if err != nil {
		return nil, err
	}
	if err := h.cfg.Publish(h.ctx, e); err != nil {
		return nil, fmt.Errorf("publish a grant: %w", err)
	}
	return mesh.GrantIssued{Subject: eff.Subject, Grant: eff.Grant, Event: e}, nil
}

// arm sets the alarm that mesh asked for.
func (h *Host) arm(at int64) {
	d := time.Unix(at, 0).Sub(Now())
	if h.timer == nil {
		h.timer = time.AfterFunc(d, func() { h.step(mesh.Woken{}) })
		return
	}
	h.timer.Reset(d)
}

// note remembers and logs what mesh told.
func (h *Host) note(t mesh.Tell) {
	now := Happening{Now(), t}
	h.history = append(h.history, now)
	if h.cfg.Noted != nil {
		h.cfg.Noted(now)
	}
	if len(h.history) > historyLength {
		h.history = append([]Happening(nil), h.history[historyLength/4:]...)
	}
	close(h.changed)
	h.changed = make(chan struct{})
	level := slog.LevelInfo
	if t.Severity > spec.S0 {
		level = slog.LevelWarn
	}
	h.cfg.Log.Log(h.ctx, level, "federation: "+t.What, "peer", t.Peer.String()[:12], "window", t.Window, "severity", t.Severity.String(), "code", t.Code, "detail", t.Detail)
}

// History returns what happened, oldest first, and a channel that is closed when there is more. The zero key stands for all peers.
func (h *Host) History(peer nostr.PubKey) (list []Happening, more <-chan struct{}) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, e := range h.history {
		if peer == (nostr.PubKey{}) || e.Tell.Peer == peer {
			list = append(list, e)
		}
	}
	return list, h.changed
}

// Peers tells of every peering.
func (h *Host) Peers() []mesh.Peer {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.node.Peers(Now())
}

// Provenance answers where events came from.
func (h *Host) Provenance() *Provenance { return h.provenance }

// AddPeer begins a peering. hints are relay URLs where the peer's descriptor may be found.
func (h *Host) AddPeer(ctx context.Context, peer nostr.PubKey, tier spec.Tier, wants []mesh.Want, hints []string) error {
	return h.AddInvited(ctx, mesh.AddPeer{Peer: peer, Tier: tier, Wants: wants}, hints)
}

// AddInvited is AddPeer with all that the operator can say, such as an invitation of the peer's.
func (h *Host) AddInvited(ctx context.Context, add mesh.AddPeer, hints []string) error {
	peer := add.Peer
	h.mu.Lock()
	if h.failed != nil {
		defer h.mu.Unlock()
		return fmt.Errorf("federation has stopped: %w", h.failed)
	}
	if len(hints) > 0 {
		h.hints[peer] = hints
	}
	h.mu.Unlock()
	d, err := h.descriptor(ctx, peer, true)
	if err != nil {
		return err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.stepLocked(mesh.Described{Descriptor: d}) // again: a proposal that was declined in between made mesh forget the stranger
	h.stepLocked(add)
	return nil
}

// Govern changes how strangers are met and what grants say.
func (h *Host) Govern(in mesh.Govern) {
	h.mu.Lock()
	defer h.mu.Unlock()
	in.Into(&h.cfg.Mesh) // what the node is made of should it be taken up from the journal
	h.stepLocked(in)
}

// EndPeer ends a peering.
func (h *Host) EndPeer(peer nostr.PubKey, reason string) {
	h.step(mesh.EndPeer{Peer: peer, Reason: reason})
}

// flush waits until what is queued for the peers that we are connected with has gone out.
func (h *Host) flush(ctx context.Context) {
	h.mu.Lock()
	links := make([]*link, 0, len(h.links))
	for _, l := range h.links {
		links = append(links, l)
	}
	h.mu.Unlock()
	for _, l := range links {
		l.flush(ctx)
	}
}

// body encodes a message's body.
func body(v any) (json.RawMessage, error) {
	raw, err := json.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("encode a message body: %w", err)
	}
	return raw, nil
}
