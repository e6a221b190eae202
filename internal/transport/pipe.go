package transport

import (
	"context"
	"sync"
)

// pipe carries frames one way between goroutines. What was sent before it was
// closed is still received.
type pipe struct {
	ch   chan []byte
	done chan struct{}
	once sync.Once
}

func newPipe(frames int) *pipe {
	return &pipe{ch: make(chan []byte, frames), done: make(chan struct{})}
}

func (p *pipe) close() { p.once.Do(func() { close(p.done) }) }

// send hands frame over as it is; the caller must not keep it.
func (p *pipe) send(ctx context.Context, frame []byte) error {
	select {
	case <-p.done:
		return ErrClosed
	default:
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	select {
	case p.ch <- frame:
		return nil
	case <-p.done:
		return ErrClosed
	case <-ctx.Done():
		return ctx.Err()
	}
}

// trySend does not wait; it reports whether there was room.
func (p *pipe) trySend(frame []byte) bool {
	select {
	case <-p.done:
		return false
	default:
	}
	select {
	case p.ch <- frame:
		return true
	default:
		return false
	}
}

func (p *pipe) receive(ctx context.Context) ([]byte, error) {
	select {
	case frame := <-p.ch:
		return frame, nil
	default:
	}
	select {
	case frame := <-p.ch:
		return frame, nil
	case <-p.done:
		select {
		case frame := <-p.ch:
			return frame, nil
		default:
			return nil, ErrClosed
		}
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}
