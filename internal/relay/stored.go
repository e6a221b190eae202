package relay

import (
	"slices"

	"fleetmesh.org/fleetmesh/internal/store"
	"fleetmesh.org/fleetmesh/nostr"
)

// The hints of NIP-67.
const (
	hintFinish = "finish"
	hintMore   = "more"
)

// tieSlack is how many events beyond our own cap are sent so that all of the same second as the last
// come in one answer: a client that pages by "until" would otherwise miss some (NIP-67).
const tieSlack = 1000

// quota is what one filter may still send.
type quota struct {
	f     *nostr.Filter
	limit int
	own   bool // the limit is ours, not the client's
	found int
}

// stream sends the stored events of the subscription's filters and says what an EOSE may
// tell about the rest. The last of them are left in s.burst, to go with the EOSE.
func (s *sub) stream() (hints []string, err error) {
	ask, quotas, mayHint := s.plan()
	if len(ask) == 0 {
		if mayHint {
			hints = []string{hintFinish}
		}
		return s.hints(hints), nil
	}
	r := s.c.r
	dropped := false
	last := int64(-1)
	view := r.gate.View(s.c.readers())
	most := burstBytes
	if slices.ContainsFunc(ask, func(f nostr.Filter) bool { return f.Search != "" }) {
		most = 0 // much may be read for each
	}
	for row, err := range store.Rows(s.ctx, r.cfg.Store, ask, view, 0, r.now().Unix()) {
		if err != nil {
			return nil, err
		}
		if !grant(quotas, row, last) {
			dropped = true
			if len(quotas) == 1 {
				break
			}
			continue
		}
		last = row.CreatedAt
		s.burst.add(row)
		if s.burst.size > most && !s.emit() {
			return nil, s.stopped()
		}
	}
	if !mayHint {
		return nil, nil
	}
	return s.hints(verdictOn(quotas, dropped)), nil
}

// burstBytes is how many octets of stored events are gathered before they are queued: few enough that the
// first are sent while others are read.
const burstBytes = 32 << 10

// burst is stored events that are on their way to the client's queue.
type burst struct {
	rows []burstRow
	size int
}

type burstRow struct {
	id     nostr.ID
	text   []byte
	flying bool // the live stream may have yet to carry it
}

func (b *burst) add(row *store.Row) {
	b.rows = append(b.rows, burstRow{id: row.ID, text: row.Text})
	b.size += len(row.Text)
}

func (b *burst) reset() {
	clear(b.rows)
	b.rows, b.size = b.rows[:0], 0
}

func (s *sub) stopped() error {
	if err := s.ctx.Err(); err != nil {
		return err
	}
	return errEnded
}

func (s *sub) hints(h []string) []string {
	if s.c.r.cfg.Off.Hints {
		return nil
	}
	return h
}

// plan makes the filters for the store. Each asks for at least one event more than it will
// send, to know whether there is more. No hint can be given if a filter asks for nothing stored, or if a search
// stands beside other filters, since it is then unknown which filter an event came by.
func (s *sub) plan() (ask []nostr.Filter, quotas []quota, mayHint bool) {
	mayHint = true
	search := false
	for i := range s.filters {
		f := &s.filters[i]
		if f.MatchesNothing() {
			continue
		}
		search = search || f.Search != ""
		q := quota{f: f, limit: s.c.r.lim.Load().DefaultLimit, own: true}
		if f.IDs != nil {
			q.limit = s.c.r.lim.Load().MaxLimit // who names ids wants each of them
		}
		if f.Limit != nil {
			q.limit, q.own = *f.Limit, false
			if q.limit > s.c.r.lim.Load().MaxLimit {
				q.limit, q.own = s.c.r.lim.Load().MaxLimit, true
			}
		}
		if q.limit <= 0 {
			mayHint = false
			continue
		}
		quotas = append(quotas, q)
	}
	single := len(quotas) == 1
	if search && !single {
		mayHint = false
	}
	for i := range quotas {
		q := &quotas[i]
		n := q.limit + 1
		switch {
		case single && q.own:
			n = q.limit + tieSlack
		case search && !single:
			n = q.limit
		}
		f := *q.f
		f.Limit = &n
		ask = append(ask, f)
	}
	if search && !single {
		quotas = nil // everything that comes is sent
	}
	return ask, quotas, mayHint
}

// grant says whether a row is to be sent, and books it. last is the created_at of the one sent before, -1 for none.
func grant(quotas []quota, row *store.Row, last int64) bool {
	if len(quotas) == 1 {
		q := &quotas[0]
		q.found++
		if q.found <= q.limit {
			return true
		}
		return q.own && row.CreatedAt == last && q.found < q.limit+tieSlack
	}
	send := len(quotas) == 0
	for _, i := range row.By {
		if len(quotas) > 0 {
			q := &quotas[i]
			q.found++
			send = send || q.found <= q.limit
		}
	}
	return send
}

// verdictOn says what is known: all was sent, more is there, or nothing for sure.
func verdictOn(quotas []quota, dropped bool) []string {
	if dropped {
		return []string{hintMore}
	}
	if len(quotas) == 1 {
		return []string{hintFinish}
	}
	for i := range quotas {
		if quotas[i].found > quotas[i].limit {
			return nil
		}
	}
	return []string{hintFinish}
}
