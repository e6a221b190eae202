package mesh

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"fleetmesh.org/fleetmesh/internal/ledger"
	"fleetmesh.org/fleetmesh/internal/strain"
	"fleetmesh.org/fleetmesh/nostr"
	"fleetmesh.org/fleetmesh/spec"
)

// Enrolment says which strangers a node answers with a grant (§ Discovery, Enrolment).
type Enrolment string

// The ways to enrol.
const (
	EnrolClosed Enrolment = "closed" // only peers that the operator added
	EnrolPoW    Enrolment = "pow"    // strangers whose descriptor carries the work asked for
	EnrolOpen   Enrolment = "open"   // anyone
	// EnrolInvitation lets in those who bring an invitation of ours that is not spent; they are let in under closed and pow too.
	EnrolInvitation Enrolment = "invitation"
)

// Config is what a node's decisions depend on beside its state.
type Config struct {
	Self       nostr.PubKey
	Class      spec.Class
	Digest     string   // of the schema that this build speaks
	Protocols  []string // PIURIs, as the descriptor declares them
	Descriptor nostr.ID // of our own current descriptor
	Enrolment  Enrolment
	PoWBits    int
	Window     int64             // seconds of the windows of the grants that we issue
	Serve      []json.RawMessage // filters that a peer may pull within; empty: none
	Seed       [32]byte          // of message and thread ids; fresh for each process
	Shadow     bool              // verdicts cost no peer anything
	Ladder     Ladder            // zero: the ledger's
	Standing   StandingPolicy    // which questions about others are answered
	Capacity   strain.Counts     // totals of a window that the operator declares, nil: none
	Terms      Terms             // what new grants say
}

// Ladder is the arithmetic that windows are priced with. A nil function is the ledger's; the simulator plants bugs here.
type Ladder struct {
	Evaluate func(limits ledger.Limits, measured, claimed ledger.Counters) ledger.Evaluation
	Close    func(s ledger.Standing, v ledger.Evaluation, now int64, found ...ledger.Structural) (ledger.Standing, ledger.Move)
}

// Node is the state machine. It is not safe for concurrent use: whoever owns it feeds it one input at a time.
type Node struct {
	cfg     Config
	peers   map[nostr.PubKey]*peer
	threads map[string]*session // syncs under way, by thread
	voices  map[nostr.PubKey]*voice
	serial  uint64
	wake    int64 // what the last WakeAt asked for
	crashed bool  // accounts were taken up from the journal, and no step was made yet

	load   weight
	shed   shedding
	stress strain.Record
}

// New makes a node without peers.
func New(cfg Config) *Node {
	if cfg.Window == 0 {
		cfg.Window = spec.C().Window.DefaultSeconds
	}
	if cfg.Ladder.Evaluate == nil {
		cfg.Ladder.Evaluate = ledger.Evaluate
	}
	if cfg.Ladder.Close == nil {
		cfg.Ladder.Close = ledger.Standing.Close
	}
	return &Node{cfg: cfg, peers: map[nostr.PubKey]*peer{}, threads: map[string]*session{}, voices: map[nostr.PubKey]*voice{}}
}

const (
	peerKey   = "peer/"
	booksKey  = "books/"
	closedKey = "closed/"
	caseKey   = "case/"
	proofKey  = "grants/"
	sampleKey = "envelope/"
	voiceKey  = "voice/"
	shedKey   = "capacity/"
	stressKey = "strain/"
)

func errForeign(key nostr.PubKey) error { return fmt.Errorf("the record is of %s", key) }

// Restore takes the newest record of each key, as Persist wrote it. Keys of no kind known here are an error: a newer build wrote
// them.
func (n *Node) Restore(records map[string]json.RawMessage) error {
	for _, key := range slices.Backward(slices.Sorted(maps.Keys(records))) { // peers before their books
		var err error
		switch kind, name, _ := strings.Cut(key, "/"); kind + "/" {
		case peerKey:
			err = n.restorePeer(name, records[key])
		case booksKey:
			err = n.restoreBooks(name, records[key])
		case closedKey:
			err = n.restoreVerdict(name, records[key])
		case caseKey, proofKey, sampleKey:
			err = n.restoreBeside(kind+"/", name, records[key])
		case voiceKey:
			err = n.restoreVoice(name, records[key])
		case shedKey:
			err = n.restoreShed(records[key])
		case stressKey:
			err = n.restoreStress(records[key])
		default:
			err = errors.New("a record that this build does not know")
		}
		if err != nil {
			return fmt.Errorf("restore %s: %w", key, err)
		}
	}
	n.verdictsInOrder()
	return nil
}

func (n *Node) restorePeer(name string, record json.RawMessage) error {
	p := new(peer)
	if err := json.Unmarshal(record, p); err != nil {
		return err
	}
	if p.Key.String() != name {
		return errForeign(p.Key)
	}
	if p.Stage == active && len(p.Wants) > 0 && p.NextSync == 0 {
		p.NextSync = 1 // a sync was under way or live: what happened since is caught up with
	}
	p.Reported, p.Whole, p.Fresh = p.Whole, nil, len(p.Whole)
	p.Closes += int64(p.Fresh)
	n.peers[p.Key] = p
	return nil
}

// restoreBeside takes up what is kept of a peer beside its own record.
func (n *Node) restoreBeside(kind, name string, record json.RawMessage) error {
	key, err := nostr.ParsePubKey(name)
	if err != nil {
		return err
	}
	p := n.peers[key]
	if p == nil {
		return nil // of nobody
	}
	switch kind {
	case caseKey:
		return json.Unmarshal(record, &p.Cases)
	case proofKey:
		var list proofs
		err = json.Unmarshal(record, &list)
		p.Proofs = list.Grants
	case sampleKey:
		var list samples
		err = json.Unmarshal(record, &list)
		p.Samples = list.List
	}
	return err
}

// restoreBooks takes up the accounts with a peer. What was counted last may be missing from them, so they are in doubt until the other end
// has said what it has.
func (n *Node) restoreBooks(name string, record json.RawMessage) error {
	var b books
	if err := json.Unmarshal(record, &b); err != nil {
		return err
	}
	if b.Key.String() != name {
		return errForeign(b.Key)
	}
	p := n.peers[b.Key]
	if p == nil {
		return nil // accounts with nobody
	}
	p.Back, p.Alive, p.Forgot, p.Used = b.Back, b.Alive, b.Forgot, b.Used
	p.Crashed, n.crashed = true, true
	for _, k := range b.Measured {
		if k.Window.Epoch >= p.Settled { // a crash may fall between the two records
			k.Doubt = true
			p.Measured = append(p.Measured, k)
		}
	}
	for _, k := range p.Used {
		k.Doubt = !k.Settled
	}
	return nil
}

// Step takes one input and returns what must be done, in order.
func (n *Node) Step(now time.Time, in Input) []Effect {
	t := &turn{Node: n, now: now.Unix()}
	if n.crashed {
		t.takeUp()
	}
	switch in := in.(type) {
	case Woken:
		t.wakeUp()
	case Stopping:
		t.sayGoodbye()
	case AddPeer:
		t.addPeer(in)
	case EndPeer:
		t.endPeer(in)
	case Revoked:
		t.revoked(in)
	case AskPeers:
		t.askPeers(in)
	case Described:
		t.described(in)
	case GrantSeen:
		t.grantSeen(in)
	case GrantIssued:
		t.grantIssued(in)
	case ReceiptSigned:
		t.receiptSigned(in)
	case Received:
		t.received(in)
	case Sending:
		t.sending(in)
	case Connected:
		t.connected(in)
	case Dialling:
		t.dialling(in)
	case Found:
		t.found(in)
	case Faulted:
		t.faulted(in)
	case Problem:
		t.problem(in)
	case Taken:
		t.taken(in)
	case Fate:
		t.fate(in)
	case SyncLive:
		t.syncLive(in)
	case SyncEnded:
		t.syncEnded(in)
	default:
		t.stepMore(in)
	}
	t.schedule()
	return t.effects
}

// stepMore takes the inputs of the protocols about conduct, and those of the operator.
func (t *turn) stepMore(in Input) {
	switch in := in.(type) {
	case WithdrawComplaint:
		t.withdraw(in)
	case ReportPublished:
		t.reportPublished(in)
	case ReportJudged:
		t.reportJudged(in)
	case AskStanding:
		t.askStanding(in)
	case QueryEnded:
		t.queryEnded(in)
	case Amend:
		t.amend(in)
	case Govern:
		t.govern(in)
	case Stressed:
		t.stressed(in)
	case BlobAsked:
		t.blobAsked(in)
	case BlobFetching:
		t.blobFetching(in)
	case BlobFetched:
		t.blobFetched(in)
	}
}

// turn is one Step: the node, the time, and the effects so far.
type turn struct {
	*Node
	now     int64
	effects []Effect
}

func (t *turn) do(e Effect) { t.effects = append(t.effects, e) }

func (t *turn) tell(p *peer, what string, format string, args ...any) {
	t.do(Tell{Peer: p.Key, What: what, Detail: fmt.Sprintf(format, args...)})
}

// save persists a peer and the accounts with it. Records reach the disk in their order, so the second makes the first durable too.
func (t *turn) save(p *peer, lazy bool) {
	t.saveVerdicts(p)
	t.persist(peerKey+p.Key.String(), p, true)
	t.account(p, lazy)
}

// account persists the accounts with a peer. Lazy is for counters, which a crash of the machine may set back a little.
func (t *turn) account(p *peer, lazy bool) {
	t.do(Persist{Key: booksKey + p.Key.String(), Record: books{p.Key, p.Back, p.Alive, p.Forgot, p.Measured, p.Used}.encode(), Lazy: lazy})
}

func (t *turn) persist(key string, v any, lazy bool) {
	record, err := json.Marshal(v)
	if err != nil {
		panic("mesh: a record always encodes: " + err.Error())
	}
	t.do(Persist{Key: key, Record: record, Lazy: lazy})
}

// newID draws the next message id: unpredictable to others as long as the seed is.
func (t *turn) newID() string {
	t.serial++
	h := sha256.New()
	h.Write(t.cfg.Seed[:])
	h.Write(binary.BigEndian.AppendUint64(nil, t.serial))
	return hex.EncodeToString(h.Sum(nil)[:16])
}

// sorted returns the peers in the order of their keys, so that effects never depend on a map.
func (n *Node) sorted() []*peer {
	return slices.SortedFunc(maps.Values(n.peers), func(a, b *peer) int { return bytes.Compare(a.Key[:], b.Key[:]) })
}

// schedule asks to be woken at the earliest time that anything is due.
func (t *turn) schedule() {
	var at int64
	for _, p := range t.peers {
		if due := t.due(p); due > 0 && (at == 0 || due < at) {
			at = due
		}
	}
	if t.shed.Engaged > 0 { // it may be released when the window turns
		if due := ledger.WindowAt(t.now, t.cfg.Window).End(); at == 0 || due < at {
			at = due
		}
	}
	if at != 0 && at != t.wake {
		t.wake = at
		t.do(WakeAt{At: at})
	}
}

// received routes a message to its protocol, after metering it.
func (t *turn) received(in Received) {
	p := t.peers[in.From]
	protocol, m, ok := spec.LookupMessage(in.Type)
	if !ok {
		if p != nil {
			t.fault(p, in.Thread, spec.CodeUnsupported)
		}
		return
	}
	if in.Anonymous && in.Type != spec.MsgPeeringPropose {
		t.do(Withhold{Code: spec.CodeMalformed})
		return
	}
	if protocol.PIURI == spec.PIURISync || protocol.PIURI == spec.PIURIStanding {
		switch granted := p != nil && len(p.Issued) > 0 && len(p.Held) > 0 && p.Stage != ended; {
		case granted && protocol.PIURI == spec.PIURISync:
			t.syncMessage(p, in, m)
		case granted:
			t.standingMessage(p, in, m)
		case in.Type == spec.MsgStandingQuery:
			t.do(Send{To: in.From, Type: spec.MsgStandingDecline, ID: t.newID(), Thread: in.Thread, Body: struct{}{}})
		default:
			t.do(Withhold{Code: spec.CodeNotGranted})
		}
		return
	}
	switch in.Type {
	case spec.MsgPeeringPropose:
		t.proposed(in)
	case spec.MsgPeeringAccept:
		t.accepted(p, in)
	case spec.MsgPeeringDecline:
		t.declined(p, in)
	case spec.MsgPeeringAmend:
		t.amended(p, in)
	case spec.MsgPeeringEnd:
		t.ended(p, in)
	case spec.MsgPeeringPeersQuery:
		t.peersAsked(p, in)
	case spec.MsgPeeringPeers:
		t.peersTold(p, in)
	case spec.MsgBudgetReceipt, spec.MsgBudgetClose:
		t.receipt(p, in)
	case spec.MsgBudgetReceiptAck:
		t.receiptAck(p, in)
	case spec.MsgComplaintNotice:
		t.noticed(p, in)
	case spec.MsgComplaintResponse:
		t.response(p, in)
	case spec.MsgComplaintWithdrawn:
		t.withdrawn(p, in)
	}
}
