package didcomm

import (
	"container/list"
	"crypto/sha256"
	"errors"
	"time"
)

// Refusals of Replay.Admit.
var (
	// ErrReplay says that the message was admitted before: drop it, and answer as
	// before if an answer is idempotent.
	ErrReplay = errors.New("didcomm: the message was seen before")
	// ErrExpired says that expires_time has come.
	ErrExpired = errors.New("didcomm: the message has expired")
	// ErrStale says that the message is so old that a replay could not be told
	// from it any more.
	ErrStale = errors.New("didcomm: the message is too old")
	// ErrFuture says that created_time lies ahead of the clock by more than the skew.
	ErrFuture = errors.New("didcomm: the message comes from the future")
	// ErrUntimed says that the message bears no time at all, so that it could be
	// replayed for ever.
	ErrUntimed = errors.New("didcomm: the message has neither created_time nor expires_time")
)

// ReplayLimits bounds a Replay.
type ReplayLimits struct {
	Window       time.Duration // how long after created_time a message may arrive when it bears no expires_time
	MaxLifetime  time.Duration // cap on expires_time - created_time
	Skew         time.Duration // how far ahead the sender's clock may be
	Entries      int           // messages remembered, all senders together
	AllowUntimed bool          // admit messages without times; they are remembered for Window from arrival
}

// DefaultReplayLimits suits a node with a few thousand peers: 24 h, 30 d, 60 s,
// 262,144 messages (about 40 MB when full).
func DefaultReplayLimits() ReplayLimits {
	return ReplayLimits{Window: 24 * time.Hour, MaxLifetime: 30 * 24 * time.Hour, Skew: time.Minute, Entries: 1 << 18}
}

// Replay admits each message once. It is bounded: when it is full, it forgets the
// oldest messages of whoever holds the most, and from then on refuses as stale
// whatever that sender created before them. So a flood costs the one that floods,
// and nothing forgotten can be replayed. Not safe for concurrent use; the zero
// value is not usable.
type Replay struct {
	lim     ReplayLimits
	senders map[string]*replaySender
	total   int
}

type replaySender struct {
	seen  map[[16]byte]*list.Element
	order *list.List // of replayEntry, oldest admitted first
	floor int64      // created_time up to which everything is refused; noFloor at first
}

const noFloor = -1

type replayEntry struct {
	key     [16]byte
	created int64
	until   int64 // may be forgotten after this second
}

// NewReplay returns an empty cache.
func NewReplay(lim ReplayLimits) *Replay {
	return &Replay{lim: lim, senders: map[string]*replaySender{}}
}

// Len is the number of messages remembered.
func (r *Replay) Len() int { return r.total }

// Admit decides whether a message of an authenticated sender (a DID) may be
// processed now, and remembers it if so. The id counts within the sender.
func (r *Replay) Admit(now time.Time, sender string, m *Message) error {
	t := now.Unix()
	created, until, err := r.times(t, m)
	if err != nil {
		return err
	}
	s := r.senders[sender]
	if s == nil {
		s = &replaySender{seen: map[[16]byte]*list.Element{}, order: list.New(), floor: noFloor}
		r.senders[sender] = s
	}
	r.forget(sender, s, t)
	key := replayKey(m.ID)
	if _, seen := s.seen[key]; seen {
		return ErrReplay
	}
	if created <= s.floor {
		return ErrStale
	}
	for r.total >= r.lim.Entries && r.total > 0 {
		r.evict(t)
	}
	r.senders[sender] = s // evict may have dropped it
	s.seen[key] = s.order.PushBack(replayEntry{key, created, until})
	r.total++
	return nil
}

// times returns when the message counts as created and until when it could come
// again.
func (r *Replay) times(now int64, m *Message) (created, until int64, err error) {
	created = m.CreatedTime
	window, life := int64(r.lim.Window/time.Second), int64(r.lim.MaxLifetime/time.Second)
	if created > now+int64(r.lim.Skew/time.Second) {
		return 0, 0, ErrFuture
	}
	if m.ExpiresTime != 0 && m.ExpiresTime <= now {
		return 0, 0, ErrExpired
	}
	switch {
	case created == 0 && m.ExpiresTime == 0 && !r.lim.AllowUntimed:
		return 0, 0, ErrUntimed
	case created == 0 && m.ExpiresTime == 0:
		return 0, now + window, nil
	case created == 0:
		// A number that does not depend on the arrival, so that a floor holds.
		if m.ExpiresTime > now+life {
			return 0, 0, ErrFuture
		}
		return max(0, m.ExpiresTime-life), m.ExpiresTime, nil
	case m.ExpiresTime == 0:
		until = created + window
	default:
		until = min(m.ExpiresTime, created+life)
	}
	if until <= now {
		return 0, 0, ErrStale
	}
	return created, until, nil
}

// forget drops what of one sender can no longer be replayed. Entries are in order
// of admission, which is nearly that of expiry: the head stops the scan.
func (r *Replay) forget(name string, s *replaySender, now int64) {
	for e := s.order.Front(); e != nil && e.Value.(replayEntry).until <= now; e = s.order.Front() {
		r.drop(s, e)
	}
	oldest := now - int64(max(r.lim.Window, r.lim.MaxLifetime)/time.Second)
	if s.order.Len() == 0 && s.floor < oldest {
		delete(r.senders, name) // nothing under the floor could be admitted any more
	}
}

func (r *Replay) drop(s *replaySender, e *list.Element) {
	delete(s.seen, e.Value.(replayEntry).key)
	s.order.Remove(e)
	r.total--
}

// evict makes room: it forgets an eighth of the sender that holds the most and
// raises that sender's floor over it.
func (r *Replay) evict(now int64) {
	var most *replaySender
	var whose string
	for name, s := range r.senders {
		r.forget(name, s, now)
		if most == nil || s.order.Len() > most.order.Len() || s.order.Len() == most.order.Len() && name < whose {
			most, whose = s, name
		}
	}
	if r.total < r.lim.Entries || most == nil {
		return
	}
	for n := most.order.Len()/8 + 1; n > 0 && most.order.Len() > 0; n-- {
		e := most.order.Front()
		most.floor = max(most.floor, e.Value.(replayEntry).created)
		r.drop(most, e)
	}
}

func replayKey(id string) [16]byte {
	h := sha256.Sum256([]byte(id))
	return [16]byte(h[:16])
}
