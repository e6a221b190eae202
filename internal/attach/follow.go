package attach

import (
	"context"
	"time"

	"fleetmesh.org/fleetmesh/nostr"
)

// Follow reads the relay's live stream until ctx ends, and offers what others publish there to the node's own door, so that it reaches the
// node's subscribers and its peers at once. take is that door; the events are verified.
func (s *Store) Follow(ctx context.Context, take func(context.Context, []*nostr.Event) error) {
	since := time.Now().Unix()
	for ctx.Err() == nil {
		err := s.followOnce(ctx, &since, take)
		if ctx.Err() == nil {
			s.cfg.Log.Info("the attached relay's stream ended; reading it again", "relay", s.cfg.Relay, "err", err)
		}
		again := time.NewTimer(time.Second) // a relay that answers and refuses is not asked at once again
		select {
		case <-again.C:
		case <-ctx.Done():
		}
		again.Stop()
	}
}

// overlap is how many seconds are read twice after a connection was lost.
const overlap = 30

func (s *Store) followOnce(ctx context.Context, since *int64, take func(context.Context, []*nostr.Event) error) error {
	c, err := s.link.Conn(ctx) // it waits longer and longer between attempts
	if err != nil {
		return err
	}
	from := *since - overlap
	sub, err := c.Subscribe(ctx, nostr.Filter{Since: &from})
	if err != nil {
		return err
	}
	defer sub.Close()
	for {
		d, err := sub.Next(ctx)
		if err != nil {
			return err
		}
		s.link.Good()
		if d.Event == nil || s.stays(d.Event) || s.wasOurs(d.Event.ID) {
			continue
		}
		good := s.verified([]*nostr.Event{d.Event})
		if len(good) == 0 {
			continue
		}
		e := good[0]
		s.announce(e)
		err = take(ctx, good)
		s.settle(e.ID)
		if err != nil {
			return err
		}
		*since = time.Now().Unix()
	}
}

// announce says that an event is about to come in that the relay holds already.
func (s *Store) announce(e *nostr.Event) {
	s.mu.Lock()
	s.coming[e.ID] = true
	s.mu.Unlock()
	s.seen(e)
}

// arrived says whether an event was announced, once, and takes note of it.
func (s *Store) arrived(e *nostr.Event) bool {
	s.mu.Lock()
	was := s.coming[e.ID]
	delete(s.coming, e.ID)
	s.mu.Unlock()
	if was {
		s.came(e)
	}
	return was
}

// settle ends an announcement, whatever the door made of it: the stream brings the event no more.
func (s *Store) settle(id nostr.ID) {
	s.mu.Lock()
	delete(s.coming, id)
	s.mu.Unlock()
	s.leaves(id)
}

// wasOurs says whether an event went out through us, or came in already.
func (s *Store) wasOurs(id nostr.ID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, ok := s.ours[id]
	return ok
}
