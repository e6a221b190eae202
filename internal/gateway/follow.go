package gateway

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"fleetmesh.org/fleetmesh/internal/store"
	"fleetmesh.org/fleetmesh/nostr"
)

// FollowStatus tells how a Follow stands. Its fields may be read at any time.
type FollowStatus struct {
	Connected   atomic.Bool
	Disconnects atomic.Int64
	LastEvent   atomic.Int64 // unix second at which the latest event came, live or by a sync; 0 for none
	New         atomic.Int64 // events stored
	Syncs       atomic.Int64 // gaps closed
}

// Follow keeps the local store up with a relay until ctx ends: it reads the live stream and, each time it has
// connected, closes the gap by a Sync, which costs little when there is none. Nothing that came from the relay is sent
// back to it: a Sync offers only what the relay lacks. Follow ends early only with an error that connecting again would not
// mend: ErrURL, ErrUsage, ErrLocal, ErrAuthRequired, ErrRefused.
func Follow(ctx context.Context, relay *Link, local store.Store, o SyncOptions, st *FollowStatus) error {
	if st == nil {
		st = new(FollowStatus)
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Sink == nil {
		o.Sink = &StoreSink{Store: local, Now: o.Now}
	}
	for {
		conn, err := relay.Conn(ctx)
		if err == nil {
			st.Connected.Store(true)
			err = followOn(ctx, relay, conn, local, o, st)
			st.Connected.Store(false)
			st.Disconnects.Add(1)
			conn.Abort()
		}
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.Is(err, ErrURL), errors.Is(err, ErrUsage), errors.Is(err, ErrLocal), errors.Is(err, ErrAuthRequired), errors.Is(err, ErrRefused):
			return err
		}
		o.Log.Info("following interrupted", "relay", relay.URL(), "error", err)
	}
}

// followOn follows on one connection. It returns when that ends.
func followOn(ctx context.Context, relay *Link, conn *Conn, local store.Store, o SyncOptions, st *FollowStatus) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var wg sync.WaitGroup
	if o.Direction != Push {
		live := o.Filter
		one := 1 // some relays take 0 for "no limit"
		live.Limit = &one
		sub, err := conn.Subscribe(ctx, live)
		if err != nil {
			return err
		}
		defer sub.Close()
		wg.Go(func() { cancel(readLive(ctx, sub, local, o, st)) })
	}
	wg.Go(func() {
		if err := closeGaps(ctx, relay, conn, local, o, st); err != nil {
			cancel(err)
		}
	})
	wg.Wait()
	return context.Cause(ctx)
}

// closeGaps closes the gap at the start of a connection, lets the caller's own work begin, and looks for gaps again as often as it wants.
func closeGaps(ctx context.Context, relay *Link, conn *Conn, local store.Store, o SyncOptions, st *FollowStatus) error {
	if o.Before != nil {
		if err := o.Before(ctx, conn); err != nil {
			return err
		}
	}
	if err := closeGap(ctx, relay, conn, local, o, st); err != nil {
		return err
	}
	beside := make(chan error, 1)
	if o.Beside != nil {
		var wg sync.WaitGroup
		defer wg.Wait()
		bctx, stop := context.WithCancel(ctx)
		defer stop()
		wg.Go(func() { beside <- o.Beside(bctx, conn) })
	}
	var again <-chan time.Time
	if o.Resync > 0 {
		t := time.NewTicker(o.Resync)
		defer t.Stop()
		again = t.C
	}
	for {
		select {
		case err := <-beside:
			if err == nil {
				err = ctx.Err()
			}
			return err
		case <-again:
			if err := closeGap(ctx, relay, conn, local, o, st); err != nil {
				return err
			}
		case <-conn.Done():
			return conn.Err()
		case <-ctx.Done():
			return nil
		}
	}
}

// closeGap syncs over the connection that the stream is on.
func closeGap(ctx context.Context, relay *Link, conn *Conn, local store.Store, o SyncOptions, st *FollowStatus) error {
	o.Retries = -1 // a lost connection is followOn's business
	r, err := Sync(ctx, relay, local, o)
	st.New.Add(int64(r.New))
	if r.Bodies > 0 {
		st.LastEvent.Store(unixNow(o.Now))
	}
	switch {
	case err == nil, errors.Is(err, ErrPartial), errors.Is(err, ErrLimited):
		st.Syncs.Add(1)
		if conn.Err() == nil {
			relay.Good()
		}
		return nil
	}
	return err
}

// readLive hands in what comes, as much at a time as is there.
func readLive(ctx context.Context, sub *Subscription, local store.Store, o SyncOptions, st *FollowStatus) error {
	r := &syncRun{SyncOptions: o, local: local, report: newReport(), down: map[nostr.ID]bool{}}
	r.Progress = nil
	if r.Verifier == nil {
		r.Verifier = nostr.NewVerifier()
	}
	if r.link == nil {
		r.link = &Link{url: sub.c.url}
	}
	const most = 200
	for {
		var events []*nostr.Event
		d, err := sub.Next(ctx)
		if err != nil {
			return liveError(err)
		}
		for more := true; more; {
			if d.Event != nil {
				events = append(events, d.Event)
			}
			if len(events) == most {
				break
			}
			d, more = sub.ready()
		}
		before := r.report.New
		if err := r.handIn(ctx, events); err != nil {
			return err
		}
		clear(r.down) // a stream brings each event once; nothing is to be vetoed
		if len(events) > 0 {
			st.New.Add(int64(r.report.New - before))
			st.LastEvent.Store(unixNow(o.Now))
		}
	}
}

func liveError(err error) error {
	var closed *ClosedError
	if errors.As(err, &closed) {
		switch Prefix(closed.Reason) {
		case "auth-required", "restricted", "blocked", "unsupported":
			return refusal(closed.Reason)
		}
	}
	return err
}

// ready returns what has come already, if anything.
func (s *Subscription) ready() (Delivery, bool) {
	select {
	case d := <-s.in:
		if d.err != nil {
			s.kept = &d // for Next
			return Delivery{}, false
		}
		return Delivery{Event: d.event, EOSE: d.eose, Hints: d.hints}, true
	default:
		return Delivery{}, false
	}
}

// Age is how long ago the latest event came, at the given time; negative if none did.
func (st *FollowStatus) Age(now time.Time) time.Duration {
	at := st.LastEvent.Load()
	if at == 0 {
		return -1
	}
	return now.Sub(time.Unix(at, 0))
}
