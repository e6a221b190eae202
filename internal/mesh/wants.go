package mesh

import (
	"bytes"
	"maps"
	"slices"

	"fleetmesh.org/fleetmesh/nostr"
)

// EndSync ends a live session of ours as its time being over does: what is under way is finished, and the next session takes up from there.
type EndSync struct {
	Peer    nostr.PubKey
	Session string
}

func (EndSync) effect() {}

// same reports whether two wants ask for the same.
func (w *Want) same(o *Want) bool {
	return w.Shard == o.Shard && w.Mode == o.Mode && w.Since == o.Since && w.Until == o.Until && bytes.Equal(w.Filter, o.Filter)
}

// leaveUnwanted ends the live sessions that were begun for what the operator no longer wants of a peer: a filter that was changed is in force with the
// session that follows.
func (t *turn) leaveUnwanted(p *peer) {
	for _, thread := range slices.Sorted(maps.Keys(t.threads)) {
		s := t.threads[thread]
		if s.peer != p.Key || !s.ours || !s.live || s.query {
			continue
		}
		if i := slices.IndexFunc(p.Wants, func(w Want) bool { return w.same(&s.asked) }); i >= 0 {
			s.want = i
			continue
		}
		s.left = true
		t.do(EndSync{Peer: p.Key, Session: thread})
	}
}
