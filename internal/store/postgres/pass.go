package postgres

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"fleetmesh.org/fleetmesh/internal/store"
	"fleetmesh.org/fleetmesh/nostr"
)

// passChannel carries ephemeral events from face to face, whole: nothing of them is in a table.
const passChannel = "fleetmesh_passing"

const (
	partOctets  = 7900    // of an event in one notice; PostgreSQL takes fewer than 8,000 octets with what stands before them
	passOctets  = 1 << 20 // the largest event that is passed
	passWaiting = 1024    // events that wait to be passed; more are dropped
	passAtOnce  = 64      // events of one statement
	passTime    = 10 * time.Second
)

// part is a piece of an ephemeral event. The pieces of an event come one after the other: they are of one transaction.
type part struct {
	face   int64
	number uint64 // of the event, at its face
	at, of int    // which piece, from 0, of how many
	text   string
}

func (p part) String() string {
	return fmt.Sprintf("%d %d %d %d %s", p.face, p.number, p.at, p.of, p.text)
}

var errNotPart = errors.New("a notice of another form")

func parsePart(s string) (p part, err error) {
	f := strings.SplitN(s, " ", 5)
	if len(f) != 5 {
		return p, errNotPart
	}
	var errs [4]error
	p.face, errs[0] = strconv.ParseInt(f[0], 10, 64)
	p.number, errs[1] = strconv.ParseUint(f[1], 10, 64)
	p.at, errs[2] = strconv.Atoi(f[2])
	p.of, errs[3] = strconv.Atoi(f[3])
	p.text = f[4]
	if err := errors.Join(errs[:]...); err != nil {
		return p, err
	}
	if p.at < 0 || p.at >= p.of {
		return p, errNotPart
	}
	return p, nil
}

// parts cuts an event's text into pieces, none within a character: PostgreSQL takes only whole ones.
func parts(face int64, number uint64, text string) []string {
	var pieces []string
	for len(text) > partOctets {
		n := partOctets
		for n > 0 && !utf8.RuneStart(text[n]) {
			n--
		}
		pieces, text = append(pieces, text[:n]), text[n:]
	}
	pieces = append(pieces, text)
	for i := range pieces {
		pieces[i] = part{face, number, i, len(pieces), pieces[i]}.String()
	}
	return pieces
}

// assembly puts the pieces of one event together.
type assembly struct {
	face   int64
	number uint64
	next   int
	text   strings.Builder
}

// add takes a piece and returns the event's text once it is whole. A piece that does not follow the last one begins anew.
func (a *assembly) add(p part) (string, bool) {
	if p.at == 0 || p.face != a.face || p.number != a.number || p.at != a.next || a.text.Len() > passOctets {
		*a = assembly{face: p.face, number: p.number}
		if p.at != 0 {
			a.next = -1 // the rest of an event whose beginning was missed
			return "", false
		}
	}
	a.next = p.at + 1
	a.text.WriteString(p.text)
	if a.next < p.of {
		return "", false
	}
	text := a.text.String()
	*a = assembly{next: -1}
	return text, true
}

var _ store.Passer = (*Store)(nil)

// Pass implements store.Passer. Events above 1 MiB stay here, and so does what comes faster than the database takes it.
func (s *Store) Pass(events []*nostr.Event) {
	for _, e := range events {
		if len(e.JSON()) > passOctets {
			continue
		}
		select {
		case s.passing <- e:
		default:
			return
		}
	}
}

// pass sends what waits to the other faces until the store closes.
func (s *Store) pass(ctx context.Context) {
	number := uint64(0)
	for {
		var notices []string
		select {
		case <-ctx.Done():
			return
		case e := <-s.passing:
			notices = parts(s.Face(), number, string(e.JSON()))
			number++
		}
		for size := 1; size < passAtOnce; size++ {
			select {
			case e := <-s.passing:
				notices = append(notices, parts(s.Face(), number, string(e.JSON()))...)
				number++
				continue
			default:
			}
			break
		}
		if err := s.notify(ctx, notices); err != nil && ctx.Err() == nil {
			select {
			case s.failed <- err:
			default: // the last one is not yet told
			}
		}
	}
}

// notify sends notices in one transaction, so that no other face's come between them.
func (s *Store) notify(ctx context.Context, notices []string) error {
	ctx, cancel := context.WithTimeout(ctx, passTime)
	defer cancel()
	_, err := s.db.ExecContext(ctx, `SELECT pg_notify($1, t.notice) FROM unnest($2::text[]) WITH ORDINALITY AS t (notice, n) ORDER BY t.n`, passChannel, notices)
	if err != nil {
		return fmt.Errorf("pass ephemeral events to other faces: %w", err)
	}
	return nil
}

// hear takes a notice of another face's ephemeral event and calls live with the event once it is whole.
func (s *Store) hear(a *assembly, payload string, live func([]*nostr.Event)) {
	p, err := parsePart(payload)
	if err != nil || p.face == s.Face() {
		return // somebody else uses the channel
	}
	text, ok := a.add(p)
	if !ok {
		return
	}
	e, err := nostr.ParseEvent([]byte(text))
	if err != nil || !e.Kind.IsEphemeral() || e.ExpiredAt(time.Now().Unix()) {
		return
	}
	live([]*nostr.Event{e})
}
