package main

import (
	"errors"
	"fmt"
	"io"
	"time"

	"fleetmesh.org/fleetmesh/nostr"
)

type benchCmd struct {
	Verify benchVerifyCmd `cmd:"" help:"Which code verifies signatures on this processor, and how long one takes."`
}

type benchVerifyCmd struct {
	Rounds int    `help:"How often each way is tried; the shortest time counts." default:"20"`
	Path   string `help:"Verify by this code, of those that the processor has: ifma, adx or portable. The fastest if not said." placeholder:"NAME"`
}

func (c *benchVerifyCmd) Help() string {
	return `Signs some events with keys made for this call and verifies them as the relay does: alone, and together with what waits beside them.
The path is ifma (lanes of AVX-512, where enough waits together), adx (assembly with MULX) or portable (Go alone).
"authors known" are those whose events came before, "authors new" those of whom nothing is remembered. Times are of one core; other load on the machine makes them longer.

Examples:
  meshnode bench verify
  meshnode bench verify --json --rounds 100
  meshnode bench verify --path portable`
}

// verifyTiming is one way to verify, and the microseconds that one signature took at best.
type verifyTiming struct {
	Way          string  `json:"way"`
	Microseconds float64 `json:"us_per_signature"`
}

func (c *benchVerifyCmd) Run(a *app) error {
	if c.Rounds < 1 {
		return fmt.Errorf("--rounds is %d, and must be at least 1", c.Rounds)
	}
	if c.Path != "" {
		if err := nostr.UseVerifyPath(c.Path); err != nil {
			return fmt.Errorf("--path: %w", err)
		}
	}
	events, err := signedEvents(256)
	if err != nil {
		return err
	}
	result := struct {
		Path string         `json:"path"`
		Ways []verifyTiming `json:"ways"`
	}{Path: nostr.VerifyPath()}
	known := nostr.NewVerifier()
	for _, way := range []struct {
		name  string
		group int
		fresh bool
	}{
		{"alone, author known", 1, false}, {"groups of 16, authors known", 16, false}, {"groups of 64, authors known", 64, false},
		{"alone, author new", 1, true}, {"groups of 64, authors new", 64, true},
	} {
		best := time.Duration(-1)
		for range c.Rounds {
			v := known
			if way.fresh {
				v = nostr.NewVerifier()
			}
			took, err := timeVerify(v, events, way.group)
			if err != nil {
				return err
			}
			if best < 0 || took < best {
				best = took
			}
		}
		result.Ways = append(result.Ways, verifyTiming{way.name, float64(best.Nanoseconds()) / 1e3 / float64(len(events))})
	}
	return a.print(result, func(w io.Writer) {
		fmt.Fprintf(w, "path %s\n", result.Path)
		for _, t := range result.Ways {
			fmt.Fprintf(w, "%7.1f µs a signature, %s\n", t.Microseconds, t.Way)
		}
	})
}

// signedEvents makes n events by n authors.
func signedEvents(n int) ([]*nostr.Event, error) {
	events := make([]*nostr.Event, n)
	for i := range events {
		key, err := nostr.GenerateKey()
		if err != nil {
			return nil, err
		}
		events[i] = &nostr.Event{CreatedAt: int64(i), Kind: 1, Content: "bench"}
		if err := events[i].Sign(key); err != nil {
			return nil, err
		}
	}
	return events, nil
}

// timeVerify verifies the events in groups of a size, and says how long all took.
func timeVerify(v nostr.Verifier, events []*nostr.Event, group int) (time.Duration, error) {
	began := time.Now()
	for at := 0; at < len(events); at += group {
		for _, ok := range v.Verify(events[at:min(at+group, len(events))]) {
			if !ok {
				return 0, errors.New("a good signature was refused: this build cannot be trusted on this processor")
			}
		}
	}
	return time.Since(began), nil
}
