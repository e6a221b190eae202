package transport

import (
	"context"
	"sync"
)

// acceptQueue is the half of a listener that all adapters share: streams that
// arrived and wait for Accept.
type acceptQueue struct {
	ch   chan Stream
	done chan struct{}
	once sync.Once
}

func newAcceptQueue(n int) *acceptQueue {
	return &acceptQueue{ch: make(chan Stream, n), done: make(chan struct{})}
}

// offer hands over s; it waits while the queue is full. On an error s is closed.
func (q *acceptQueue) offer(ctx context.Context, s Stream) error {
	var err error
	select {
	case <-q.done:
		err = ErrClosed
	default:
		select {
		case q.ch <- s:
			q.closeLate()
			return nil
		case <-q.done:
			err = ErrClosed
		case <-ctx.Done():
			err = ctx.Err()
		}
	}
	s.Close()
	return err
}

// tryOffer is offer without waiting; it leaves s open when it refuses.
func (q *acceptQueue) tryOffer(s Stream) bool {
	select {
	case <-q.done:
		return false
	default:
	}
	select {
	case q.ch <- s:
		q.closeLate()
		return true
	default:
		return false
	}
}

// closeLate cleans up after an offer that raced with close.
func (q *acceptQueue) closeLate() {
	select {
	case <-q.done:
		q.drain()
	default:
	}
}

func (q *acceptQueue) accept(ctx context.Context) (Stream, error) {
	select {
	case <-q.done:
		return nil, ErrClosed
	default:
	}
	select {
	case s := <-q.ch:
		return s, nil
	case <-q.done:
		return nil, ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (q *acceptQueue) close() {
	q.once.Do(func() { close(q.done) })
	q.drain()
}

func (q *acceptQueue) drain() {
	for {
		select {
		case s := <-q.ch:
			s.Close()
		default:
			return
		}
	}
}
