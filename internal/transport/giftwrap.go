package transport

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"fleetmesh.org/fleetmesh/nostr"
)

const (
	// GiftWrapFrame is the largest frame that a gift wrap carries unless the
	// configuration says otherwise. Wrapped twice it stays under the message
	// limits that relays usually have. It is no bulk carrier.
	GiftWrapFrame = 64 << 10
	// wrapBackdate is how far wraps may be dated back (NIP-59: two days).
	wrapBackdate = 2 * 24 * time.Hour
	seenWraps    = 8192
	acceptWraps  = 64  // streams that wait for Accept
	wrapQueue    = 512 // frames that wait in one stream
)

// Relay is what the gift-wrap carrier needs of a connection to a relay.
type Relay interface {
	// Publish sends an event and waits for the relay's answer; a refusal is an error.
	Publish(ctx context.Context, e *nostr.Event) error
	// Subscribe delivers stored and live events that match until ctx is done or
	// the connection is lost; then the channel is closed. It returns once the
	// relay has taken the subscription (the EOSE of NIP-01), or what is published
	// right after a dial could be missed.
	Subscribe(ctx context.Context, f nostr.Filter) (<-chan *nostr.Event, error)
	// Close ends the connection.
	Close() error
}

// DurableStream is a stream that can also send frames that must survive the
// recipient's absence.
type DurableStream interface {
	Stream
	SendDurable(ctx context.Context, frame []byte) error
}

// SendDurable sends a frame that must survive the recipient being away: a grant
// amendment, a complaint notice, a window close. A carrier that stores nothing
// sends it as any other.
func SendDurable(ctx context.Context, s Stream, frame []byte) error {
	if d, ok := s.(DurableStream); ok {
		return d.SendDurable(ctx, frame)
	}
	return s.Send(ctx, frame)
}

// GiftWrapConfig is what a GiftWrap is made of. Key and Connect are required.
type GiftWrapConfig struct {
	Key     nostr.SecretKey
	Connect func(ctx context.Context, url string) (Relay, error)
	// Since is when this node last listened; stored wraps from before are not
	// asked for again. The zero time asks for all.
	Since time.Time
	// MaxFrame is the largest frame; 0 means GiftWrapFrame.
	MaxFrame int
	// DurableTTL is how long a relay is asked to keep a stored wrap (NIP-40); 0
	// means seven days.
	DurableTTL time.Duration
	// Foreign is told what a wrap that is not ours seems to be, so that it can be
	// counted under its own name. It must not block. May be nil.
	Foreign func(what string)
	// Dropped is told when a peer's frame was let go because nobody reads its
	// stream or accepts it. A stored wrap comes again with the next subscription.
	// It must not block. May be nil.
	Dropped func(from nostr.PubKey)
	Now     func() time.Time // nil: time.Now
}

// GiftWrap carries frames through any Nostr relay: a gift wrap round a seal round
// a rumor of kind 21059 whose content is the frame (NIP-59; spec/constants.json).
// Addresses are relay URLs. Frames of a live exchange go as kind 21059, which
// relays pass on and forget; those given to SendDurable as kind 1059.
//
// There is one stream a peer and relay. Nothing is known of the peer's presence:
// a dial succeeds as soon as the relay takes the subscription.
type GiftWrap struct {
	cfg GiftWrapConfig
	pub nostr.PubKey

	mu    sync.Mutex
	wires map[string]*wire
	seen  map[nostr.ID]struct{}
	order []nostr.ID // ring of seen
	next  int
}

// NewGiftWrap returns the carrier.
func NewGiftWrap(cfg GiftWrapConfig) (*GiftWrap, error) {
	if cfg.Connect == nil {
		return nil, errors.New("gift wrap carrier: no way to connect to relays")
	}
	if cfg.MaxFrame == 0 {
		cfg.MaxFrame = GiftWrapFrame
	}
	if cfg.MaxFrame > MaxFrame {
		return nil, fmt.Errorf("gift wrap carrier: frames of %d octets, at most %d", cfg.MaxFrame, MaxFrame)
	}
	if cfg.DurableTTL == 0 {
		cfg.DurableTTL = 7 * 24 * time.Hour
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	return &GiftWrap{cfg: cfg, pub: cfg.Key.PubKey(), wires: map[string]*wire{},
		seen: map[nostr.ID]struct{}{}, order: make([]nostr.ID, seenWraps)}, nil
}

// Scheme implements Transport.
func (g *GiftWrap) Scheme() string { return "giftwrap" }

// Dial implements Transport.
func (g *GiftWrap) Dial(ctx context.Context, ep Endpoint, peer nostr.PubKey) (Stream, error) {
	w, err := g.attach(ctx, ep.Address)
	if err != nil {
		return nil, fmt.Errorf("dial giftwrap: %w", err)
	}
	s, err := w.open(peer)
	if err != nil {
		w.detach()
		return nil, fmt.Errorf("dial giftwrap: %w", err)
	}
	return s, nil
}

// Listen implements Transport. A listener whose relay is lost returns ErrClosed
// from Accept, as after Close: listen again.
func (g *GiftWrap) Listen(ctx context.Context, ep Endpoint) (Listener, error) {
	w, err := g.attach(ctx, ep.Address)
	if err != nil {
		return nil, fmt.Errorf("listen on giftwrap: %w", err)
	}
	l := &wrapListener{wire: w, ep: ep, queue: newAcceptQueue(acceptWraps)}
	w.mu.Lock()
	if w.listener != nil || w.dead {
		dead := w.dead
		w.mu.Unlock()
		w.detach()
		if dead {
			return nil, errors.New("listen on giftwrap: the relay closed the connection")
		}
		return nil, fmt.Errorf("listen on giftwrap: already listening through %s", ep.Address)
	}
	w.listener = l
	w.mu.Unlock()
	l.start(ctx)
	return l, nil
}

// firstSight remembers a wrap and reports whether it was new. The same wrap comes
// through every relay that the sender used.
func (g *GiftWrap) firstSight(id nostr.ID) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if _, seen := g.seen[id]; seen {
		return false
	}
	delete(g.seen, g.order[g.next])
	g.order[g.next] = id
	g.next = (g.next + 1) % len(g.order)
	g.seen[id] = struct{}{}
	return true
}

// forget makes a wrap new again, one that could not be delivered.
func (g *GiftWrap) forget(id nostr.ID) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.seen, id)
}

// receive opens a wrap and returns the frame and who sealed it; ok is false for
// anything that is not ours.
func (g *GiftWrap) receive(wrap *nostr.Event) (frame []byte, from nostr.PubKey, ok bool) {
	rumor, err := nostr.Unwrap(wrap, g.cfg.Key)
	if err != nil {
		g.foreign("a wrap that does not open")
		return nil, from, false
	}
	if rumor.Kind != nostr.KindEphemeralGiftWrap || !isObject(rumor.Content) {
		g.foreign(NameRumor(rumor))
		return nil, from, false
	}
	if len(rumor.Content) > g.cfg.MaxFrame {
		g.foreign("a frame larger than this carrier takes")
		return nil, from, false
	}
	return []byte(rumor.Content), rumor.PubKey, true
}

func (g *GiftWrap) foreign(what string) {
	if g.cfg.Foreign != nil {
		g.cfg.Foreign(what)
	}
}

func (g *GiftWrap) dropped(from nostr.PubKey) {
	if g.cfg.Dropped != nil {
		g.cfg.Dropped(from)
	}
}

// wrap makes the event that carries one frame.
func (g *GiftWrap) wrap(frame []byte, to nostr.PubKey, durable bool) (*nostr.Event, error) {
	now := g.cfg.Now()
	rumor := &nostr.Event{Kind: nostr.KindEphemeralGiftWrap, CreatedAt: now.Unix(), Tags: []nostr.Tag{}, Content: string(frame)}
	if durable {
		expires := strconv.FormatInt(now.Add(g.cfg.DurableTTL).Unix(), 10)
		return nostr.Wrap(rumor, g.cfg.Key, to, nostr.KindGiftWrap, now.Unix(), nil, nostr.Tag{"expiration", expires})
	}
	// A live wrap is dated now: relays turn old ephemeral events away, and who
	// sees it pass knows the time anyway.
	return nostr.Wrap(rumor, g.cfg.Key, to, nostr.KindEphemeralGiftWrap, now.Unix(), undated{})
}

// undated is a source of zeros: no dating back.
type undated struct{}

func (undated) Read(b []byte) (int, error) {
	clear(b)
	return len(b), nil
}
