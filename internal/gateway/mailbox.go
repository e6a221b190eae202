package gateway

import (
	"context"
	"errors"

	"fleetmesh.org/fleetmesh/nostr"
)

// Mailbox shows a Conn as the relay that gift wraps travel through: publish one
// event, and receive what matches one filter until the end.
type Mailbox struct{ Conn *Conn }

// OpenMailbox connects to a relay.
func OpenMailbox(ctx context.Context, relay string, o Options) (Mailbox, error) {
	c, err := Dial(ctx, relay, o)
	return Mailbox{c}, err
}

// Publish sends an event; a refusal is an error with the relay's reason.
func (m Mailbox) Publish(ctx context.Context, e *nostr.Event) error {
	a, err := m.Conn.Publish(ctx, e)
	if err == nil && !a.OK {
		err = errors.New("the relay refuses: " + a.Reason)
	}
	return err
}

// Subscribe returns once the relay has taken the subscription, and delivers stored
// and live events until ctx is done or the connection is lost; then the channel is
// closed. ctx lives as long as the subscription.
func (m Mailbox) Subscribe(ctx context.Context, f nostr.Filter) (<-chan *nostr.Event, error) {
	s, err := m.Conn.Subscribe(ctx, f)
	if err != nil {
		return nil, err
	}
	var stored []*nostr.Event
	for {
		d, err := s.Next(ctx)
		if err != nil {
			s.Close()
			return nil, err
		}
		if d.EOSE {
			break
		}
		stored = append(stored, d.Event)
	}
	out := make(chan *nostr.Event)
	go func() {
		defer close(out)
		defer s.Close()
		for {
			var e *nostr.Event
			if len(stored) > 0 {
				e, stored = stored[0], stored[1:]
			} else if d, err := s.Next(ctx); err != nil {
				return
			} else if e = d.Event; e == nil {
				continue
			}
			select {
			case out <- e:
			case <-ctx.Done():
				return
			}
		}
	}()
	return out, nil
}

// Close ends the connection.
func (m Mailbox) Close() error { return m.Conn.Close() }
