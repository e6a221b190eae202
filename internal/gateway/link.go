package gateway

import (
	"context"
	"math/rand/v2"
	"time"
)

// Link keeps at most one connection to one relay, and makes a new one when it is gone. However many ask
// for it, a dead relay is dialled no more than six times in the first minute and once a minute after
// that.
type Link struct {
	url  string
	opt  Options
	pace *pacer
	gate chan struct{} // holds one token: whoever has it may touch what follows

	conn  *Conn
	born  time.Time
	fails int       // in a row
	next  time.Time // no dial before
	dials int
}

// steady is how long a connection must have lasted for its end not to count as a failure.
const steady = 10 * time.Second

// NewLink makes a Link. It connects when asked for a connection.
func NewLink(relay string, o Options) *Link {
	o.fill()
	l := &Link{url: relay, opt: o, pace: newPacer(o.EventsPerSecond), gate: make(chan struct{}, 1)}
	l.gate <- struct{}{}
	return l
}

// URL is the relay's URL as it was given.
func (l *Link) URL() string { return l.url }

// Conn returns the standing connection, or dials once: at once the first time, later after a wait that
// doubles with each failure, from a second to a minute, and has some chance in it.
func (l *Link) Conn(ctx context.Context) (*Conn, error) {
	select {
	case <-l.gate:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	defer func() { l.gate <- struct{}{} }()
	if l.conn != nil {
		if l.conn.Err() == nil {
			return l.conn, nil
		}
		l.ended()
	}
	if err := pause(ctx, nil, max(0, time.Until(l.next))); err != nil {
		return nil, err
	}
	l.dials++
	conn, err := Dial(ctx, l.url, l.opt)
	if err != nil {
		l.failed()
		return nil, err
	}
	conn.pace = l.pace
	l.conn, l.born = conn, time.Now()
	return conn, nil
}

// ended takes note of a connection that is gone.
func (l *Link) ended() {
	if time.Since(l.born) >= steady {
		l.fails = 0
	}
	l.conn = nil
	l.failed()
}

func (l *Link) failed() {
	l.fails++
	l.next = time.Now().Add(backoff(l.fails, rand.Float64()))
}

// backoff is the wait after so many failures in a row, for a chance in [0, 1).
func backoff(fails int, chance float64) time.Duration {
	d := min(minDelay<<min(fails-1, 6), maxDelay)
	return d + time.Duration(chance/2*float64(d))
}

// Good says that the connection served its purpose, so that its end starts the waits anew.
func (l *Link) Good() {
	select {
	case <-l.gate:
		l.fails = 0
		l.gate <- struct{}{}
	default: // somebody is dialling: it was not that good
	}
}

// Dials counts the attempts to connect.
func (l *Link) Dials() int {
	<-l.gate
	defer func() { l.gate <- struct{}{} }()
	return l.dials
}

// Close ends the connection, if there is one. The Link can be used again.
func (l *Link) Close() error {
	<-l.gate
	defer func() { l.gate <- struct{}{} }()
	if l.conn == nil {
		return nil
	}
	err := l.conn.Close()
	l.conn = nil
	return err
}
