package postgres

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"fleetmesh.org/fleetmesh/nostr"
)

// channel carries a notice for every commit that stored events.
const channel = "fleetmesh_events"

// notice says which face stored events, and the last arrival number among them.
type notice struct {
	face int64
	last uint64
}

func (n notice) String() string {
	return strconv.FormatInt(n.face, 10) + " " + strconv.FormatUint(n.last, 10)
}

func parseNotice(s string) (n notice, err error) {
	face, last, ok := strings.Cut(s, " ")
	if !ok {
		return n, fmt.Errorf("a notice of another form: %q", s)
	}
	if n.face, err = strconv.ParseInt(face, 10, 64); err == nil {
		n.last, err = strconv.ParseUint(last, 10, 64)
	}
	return n, err
}

// backOff is the wait after the listening connection was lost, doubled up to backOffMost.
const (
	backOff     = 100 * time.Millisecond
	backOffMost = 10 * time.Second
)

// Foreign calls live with the events that other faces of the database stored after an arrival number, in the order of their arrival, until
// the context ends; their ephemeral events come too, while they are passed. Where the connection is lost it comes back and takes up what came meanwhile. report hears of such losses.
func (s *Store) Foreign(ctx context.Context, after uint64, live func([]*nostr.Event), report func(error)) error {
	ctx, stop := context.WithCancel(ctx)
	var telling sync.WaitGroup
	defer telling.Wait()
	defer stop()
	telling.Go(func() {
		for {
			select {
			case err := <-s.failed:
				report(err)
			case <-ctx.Done():
				return
			}
		}
	})
	for wait := backOff; ctx.Err() == nil; {
		began := time.Now()
		err := s.listen(ctx, &after, live)
		if ctx.Err() != nil {
			break
		}
		report(fmt.Errorf("listen for the events of other faces: %w", err))
		if time.Since(began) > backOffMost {
			wait = backOff
		}
		select {
		case <-ctx.Done():
		case <-time.After(wait):
		}
		wait = min(2*wait, backOffMost)
	}
	return ctx.Err()
}

// listen holds a connection of its own and reads what each notice is about.
func (s *Store) listen(ctx context.Context, after *uint64, live func([]*nostr.Event)) (err error) {
	conn, err := pgx.ConnectConfig(ctx, s.config)
	if err != nil {
		return err
	}
	defer func() {
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		err = errors.Join(err, conn.Close(closing))
	}()
	if _, err := conn.Exec(ctx, "LISTEN "+channel+"; LISTEN "+passChannel); err != nil {
		return err
	}
	// What was stored between the last look and LISTEN has no notice.
	if err := s.take(ctx, after, live); err != nil {
		return err
	}
	var piece assembly
	for {
		got, err := conn.WaitForNotification(ctx)
		if err != nil {
			return err
		}
		if got.Channel == passChannel {
			s.hear(&piece, got.Payload, live)
			continue
		}
		n, err := parseNotice(got.Payload)
		if err != nil {
			continue // somebody else uses the channel
		}
		if n.face != s.Face() {
			if err := s.take(ctx, after, live); err != nil {
				return err
			}
		}
		// Notices come in the order of commits, which is that of arrival numbers: nothing up to this one is still to come.
		*after = max(*after, n.last)
	}
}

// takeRows bounds what is handed on at once.
const takeRows = 500

// take brings what other faces stored after the cursor.
func (s *Store) take(ctx context.Context, after *uint64, live func([]*nostr.Event)) error {
	var events []*nostr.Event
	for a, err := range s.Store.Foreign(ctx, *after, time.Now().Unix()) {
		if err != nil {
			return err
		}
		events = append(events, a.Event)
		if len(events) == takeRows {
			live(events)
			events = nil
		}
		*after = a.Seq
	}
	if len(events) > 0 {
		live(events)
	}
	return nil
}
