package transport

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
)

// Attempt is what became of one rung: data for a doctor, a log line, or a
// decision not to call the peer unreachable.
type Attempt struct {
	Rung Rung
	Took time.Duration
	Err  error // nil for the rung that held
}

// UnreachableError says that every rung of a ladder was tried and none held. Only
// then may a peer be called unreachable.
type UnreachableError struct {
	Attempts []Attempt // empty when the two have no scheme in common
}

func (e *UnreachableError) Error() string {
	if len(e.Attempts) == 0 {
		return "unreachable: no transport in common"
	}
	parts := make([]string, len(e.Attempts))
	for i, a := range e.Attempts {
		parts[i] = fmt.Sprintf("%s: %v (%s)", a.Rung.Endpoint.Scheme, a.Err, a.Took.Round(time.Millisecond))
	}
	return "unreachable: " + strings.Join(parts, "; ")
}

// Climb dials the rungs in order, RungTimeout each, and returns the first stream
// that opens together with all attempts made, the last of which is the one that
// held. One pass: a session that fell to a lower rung stays there. When all fail
// the error is an *UnreachableError; when ctx ends before the ladder does, it is
// the context's, and nothing is known about the peer.
func Climb(ctx context.Context, rungs []Rung, dial func(context.Context, Endpoint) (Stream, error)) (Stream, []Attempt, error) {
	attempts := make([]Attempt, 0, len(rungs))
	for _, r := range rungs {
		if err := ctx.Err(); err != nil {
			return nil, attempts, err
		}
		start := time.Now()
		s, err := dialRung(ctx, r, dial)
		attempts = append(attempts, Attempt{Rung: r, Took: time.Since(start), Err: err})
		if err == nil {
			return s, attempts, nil
		}
	}
	if err := ctx.Err(); err != nil {
		return nil, attempts, err
	}
	return nil, attempts, &UnreachableError{Attempts: attempts}
}

// errRungTimeout is the cause when a rung's five seconds are over.
var errRungTimeout = fmt.Errorf("no answer in %s", RungTimeout)

func dialRung(ctx context.Context, r Rung, dial func(context.Context, Endpoint) (Stream, error)) (Stream, error) {
	rctx, cancel := context.WithTimeoutCause(ctx, RungTimeout, errRungTimeout)
	defer cancel()
	s, err := dial(rctx, r.Endpoint)
	if err != nil && ctx.Err() == nil && errors.Is(context.Cause(rctx), errRungTimeout) {
		return nil, errRungTimeout
	}
	return s, err
}
