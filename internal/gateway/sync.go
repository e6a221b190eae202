package gateway

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"fleetmesh.org/fleetmesh/internal/store"
	"fleetmesh.org/fleetmesh/nostr"
	"fleetmesh.org/fleetmesh/nostr/negentropy"
)

// Stop says why an event stays where it is. The zero Stop lets it pass.
type Stop struct {
	Word  string // short and machine-readable; "" lets the event pass
	Again bool   // it may pass another time: it is not remembered
}

// Direction says which way events go.
type Direction uint8

// The directions.
const (
	Pull Direction = 1 << iota // from the relay to us
	Push                       // from us to the relay
	Both = Pull | Push
)

// ParseDirection reads "pull", "push" or "both"; "down" and "up" are the first two.
func ParseDirection(s string) (Direction, error) {
	switch s {
	case "pull", "down":
		return Pull, nil
	case "push", "up":
		return Push, nil
	case "both":
		return Both, nil
	}
	return 0, fmt.Errorf("%w: direction %.10q is none of pull, push and both", ErrUsage, s)
}

// MaxWindows bounds into how many parts of time a filter is cut when the relay finds it too big.
const MaxWindows = 64

// SyncOptions says what to sync and how. The zero value pulls everything.
type SyncOptions struct {
	Direction Direction    // 0 means Pull
	Filter    nostr.Filter // Limit is ignored; Search cannot be synced
	// Sink takes what comes in; nil means StoreSink on the local store.
	Sink Sink
	// View withholds events from the relay: only what it allows is offered. The zero View withholds nothing;
	// protected events (NIP-70) are withheld always.
	View store.View
	// In is asked about verified events before they are handed in, Out about each before it is offered: a word for those that
	// stay where they are. nil lets all pass. What In stops for good is remembered of this relay alone, in Peer: the same event may come
	// by another door. Both must be safe for concurrent use.
	In  func(ctx context.Context, events []*nostr.Event) []Stop
	Out func(ctx context.Context, events []*nostr.Event) []Stop
	// Offered is told of each event that the relay accepted or said it holds. It must not block.
	Offered func(e *nostr.Event, a Answer)
	// Peer remembers the relay's final refusals; nil remembers none beyond this run.
	Peer *PeerMemory
	// Progress is called often, from one goroutine at a time, with what was done so far. It must not block.
	Progress func(Report)
	Now      func() time.Time // nil means time.Now
	Verifier nostr.Verifier   // nil means nostr.NewVerifier()
	Log      *slog.Logger     // nil discards

	// Before is run by Follow on each new connection before its gap is closed, Beside after that for as long as the connection lasts.
	Before, Beside func(ctx context.Context, conn *Conn) error
	Resync         time.Duration // Follow looks for gaps this often while a connection lasts; 0: only at its start

	FrameLimit int  // of negentropy messages, in bytes before hex; 0 means 60,000
	Batch      int  // ids in one REQ; 0 means 200
	Window     int  // unanswered uploads; 0 means 100
	Retries    int  // connections in a row that may fail without progress in between; 0 means 5
	NoPaging   bool // fail where the relay refuses NIP-77, instead of paging
}

// fetchers is how many REQs by ids are open at a time.
const fetchers = 4

// sessionCap is after how many differences a session is cut short to settle them first: it bounds memory, and a long
// first sync makes steady progress.
const sessionCap = 200_000

// Sync makes the local store and a relay agree on the events that match a filter, as far as each may and will
// hold what the other has: by NIP-77, or by paging where the relay refuses that. It reconnects when the
// connection is lost. Whatever was acknowledged stays done, so a run that was cut, or killed, is continued by running
// it again. The Report counts also when there is an error; ExitCode tells the errors apart.
func Sync(ctx context.Context, relay *Link, local store.Store, o SyncOptions) (Report, error) {
	if o.Filter.Search != "" {
		return newReport(), fmt.Errorf("%w: a filter with a search", ErrUsage)
	}
	o.Filter.Limit = nil
	setDefault(&o.Direction, Pull)
	setDefault(&o.FrameLimit, 60_000)
	setDefault(&o.Batch, 200)
	setDefault(&o.Window, 100)
	setDefault(&o.Retries, 5)
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Verifier == nil {
		o.Verifier = nostr.NewVerifier()
	}
	if o.Sink == nil {
		o.Sink = &StoreSink{Store: local, Now: o.Now}
	}
	r := &syncRun{SyncOptions: o, link: relay, local: local, report: newReport(), down: map[nostr.ID]bool{}, up: map[nostr.ID]fate{}}
	r.windows = []window{{}}
	r.report.Windows = 1
	err := r.run(ctx)
	return r.report, err
}

// fate is what became of an upload in this run.
type fate uint8

const (
	skipped  fate = iota + 1
	accepted      // the relay said OK
	refused       // for good
	failed        // this time
	notKept       // accepted, and yet not there
)

// window is a part of time, bounds included; nil is open.
type window struct{ since, until *int64 }

type syncRun struct {
	SyncOptions
	link  *Link
	local store.Store

	mu      sync.Mutex // guards what follows
	report  Report
	down    map[nostr.ID]bool // ids that need no further look in this run
	up      map[nostr.ID]fate
	answers int   // to uploads
	pushNo  error // why nothing more can be offered

	windows []window // not settled yet; only run's goroutine
	paged   []window // to be paged instead
	lacking bool     // paging could not see everything
	blind   bool     // the relay does not let us read: only its answers to uploads tell what it holds
}

func (r *syncRun) now() int64 { return unixNow(r.Now) }

// run drives connections until the work is done.
func (r *syncRun) run(ctx context.Context) error {
	tries := 0
	for first := true; ; first = false {
		before := r.moved()
		conn, err := r.link.Conn(ctx)
		if err == nil {
			if !first {
				r.count(func(p *Report) { p.Reconnects++ })
			}
			in, out := conn.Traffic()
			err = r.work(ctx, conn)
			in2, out2 := conn.Traffic()
			r.count(func(p *Report) { p.BytesIn += in2 - in; p.BytesOut += out2 - out })
			if !reconnectable(err) {
				return r.verdict(err)
			}
			conn.Abort()
		} else if first && ctx.Err() == nil && !errors.Is(err, ErrURL) {
			return err
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if errors.Is(err, ErrURL) {
			return err
		}
		r.Log.Info("connection to relay lost", "relay", r.link.URL(), "error", err)
		if r.moved() > before {
			tries = 0
			r.link.Good()
		}
		if tries++; tries > r.Retries {
			r.count(func(p *Report) { p.Disconnected = true })
			if errors.Is(err, ErrUnreachable) {
				return err
			}
			return fmt.Errorf("%w: %w", ErrUnreachable, err)
		}
	}
}

func reconnectable(err error) bool {
	var lost *LostError
	return errors.As(err, &lost) || errors.Is(err, ErrTimeout)
}

func (r *syncRun) verdict(err error) error {
	switch {
	case err != nil:
		return err
	case r.pushNo != nil:
		return r.pushNo
	case r.report.SentFailed["rate-limited"] > 0:
		return fmt.Errorf("%w: %d events not taken", ErrLimited, r.report.SentFailed["rate-limited"])
	case total(r.report.SentFailed) > 0 || r.lacking:
		return ErrPartial
	}
	return nil
}

// work does what is left on one connection.
func (r *syncRun) work(ctx context.Context, conn *Conn) error {
	for len(r.windows) > 0 {
		w := r.windows[len(r.windows)-1]
		err := r.settle(ctx, conn, w)
		var no *NegError
		switch {
		case err == nil:
			r.windows = r.windows[:len(r.windows)-1]
		case errors.As(err, &no) && no.timedOut():
			return fmt.Errorf("%w: %w", ErrTimeout, err) // a new connection, a new session
		case errors.As(err, &no) && no.TooBig() && r.split(ctx, w):
		case errors.As(err, &no) && no.TooBig():
			r.windows = r.windows[:len(r.windows)-1]
			r.paged = append(r.paged, w)
			r.fallback(no.Error())
		case errors.As(err, &no), errors.Is(err, ErrTimeout) && r.report.Messages == 0:
			r.fallback(err.Error())
			r.paged = append(r.paged, r.windows...)
			r.windows = nil
		case errors.Is(err, negentropy.ErrSyntax), isVersion(err):
			return fmt.Errorf("%w: %w", ErrProtocol, err)
		default:
			return err
		}
	}
	if len(r.paged) > 0 && r.NoPaging {
		return fmt.Errorf("%w: %s", ErrRefused, r.report.Fallback)
	}
	for len(r.paged) > 0 {
		if err := r.pageWindow(ctx, conn, r.paged[0]); err != nil {
			return err
		}
		r.paged = r.paged[1:]
	}
	return nil
}

func isVersion(err error) bool {
	var v *negentropy.VersionError
	return errors.As(err, &v)
}

func (r *syncRun) fallback(why string) {
	r.Log.Info("relay does not reconcile: paging instead", "relay", r.link.URL(), "reason", why)
	r.count(func(p *Report) {
		if p.Fallback == "" {
			p.Fallback = why
		}
	})
}

// settle reconciles one window until both sides agree about it. Differences are settled between sessions, not
// during one. After something moved there is one more session: it costs a message each way when all is well, shows what
// the relay accepted but did not keep, and finds what a full frame may hide (see package negentropy).
func (r *syncRun) settle(ctx context.Context, conn *Conn, w window) error {
	for spare := 3; spare > 0; spare-- {
		have, need, whole, err := r.compare(ctx, conn, w)
		if err != nil {
			return err
		}
		if len(have)+len(need) == 0 && whole {
			return nil
		}
		before := r.moved()
		if err := r.transfer(ctx, conn, have, need); err != nil {
			return err
		}
		if r.moved() == before {
			return nil
		}
		if !whole {
			spare = 4 // it was cut short by us
		}
	}
	return nil
}

// compare runs one session and returns the differences that there is something to be done about; whole says that it was
// run to its end.
func (r *syncRun) compare(ctx context.Context, conn *Conn, w window) (have, need []nostr.ID, whole bool, err error) {
	f := w.narrow(r.Filter)
	set, release, err := r.local.Set(ctx, []nostr.Filter{f}, store.View{}, r.now())
	if err != nil {
		return nil, nil, false, fmt.Errorf("%w: freeze the set: %w", ErrLocal, err)
	}
	defer release()
	r.count(func(p *Report) { p.Sessions++ })
	var st NegStats
	delay := minDelay
	for attempt := 1; ; attempt++ {
		whole = true
		st, err = conn.Reconcile(ctx, f, set, r.FrameLimit, func(h, n []nostr.ID) (bool, error) {
			if r.Direction&Push != 0 {
				have = append(have, r.offers(h)...)
			}
			if r.Direction&Pull != 0 {
				n, err := r.wanted(ctx, n)
				if err != nil {
					return false, err
				}
				need = append(need, n...)
			}
			whole = len(have)+len(need) < sessionCap
			return whole, ctx.Err()
		})
		var no *NegError
		if !errors.As(err, &no) || Prefix(no.Reason) != "rate-limited" || attempt == maxAttempts {
			break
		}
		if err := pause(ctx, conn.Done(), max(delay, askedDelay(no.Reason))); err != nil {
			return nil, nil, false, err
		}
		have, need = nil, nil
		delay = min(2*delay, maxDelay)
	}
	r.count(func(p *Report) {
		if st.Messages > 1 {
			p.Messages += st.Messages
			p.method("negentropy")
		}
	})
	return have, need, whole, err
}

func (p *Report) method(m string) {
	switch p.Method {
	case "", m:
		p.Method = m
	default:
		p.Method = "negentropy and paging"
	}
}

func (w window) narrow(f nostr.Filter) nostr.Filter {
	if w.since != nil && (f.Since == nil || *f.Since < *w.since) {
		f.Since = w.since
	}
	if w.until != nil && (f.Until == nil || *f.Until > *w.until) {
		f.Until = w.until
	}
	return f
}

// moved counts what was settled so far.
func (r *syncRun) moved() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.report.moved()
}

// count changes the report and tells about it.
func (r *syncRun) count(change func(*Report)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	change(&r.report)
	r.tell()
}

// tell reports progress; the caller holds the lock.
func (r *syncRun) tell() {
	if r.Progress != nil {
		r.Progress(r.report.clone())
	}
}
