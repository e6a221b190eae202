package mesh

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"

	"fleetmesh.org/fleetmesh/nostr"
)

// A peer's record is written whenever anything about it changes, and its verdicts only when one is added: each is a record of its own, in one of as many places
// as are remembered, so that the oldest makes way. The peer's record says how many there were, and so which of them count: a crash may fall in between.

// closing is that record.
type closing struct {
	Key   nostr.PubKey
	N     int64 // its number, from 0
	Close WindowClose
}

// report remembers a verdict. It is written with the peer.
func (p *peer) report(c WindowClose) {
	p.Reported = append(p.Reported, c)
	p.Reported = p.Reported[max(0, len(p.Reported)-keptVerdicts):]
	p.Closes++
	p.Fresh = min(p.Fresh+1, len(p.Reported))
}

// saveVerdicts persists the verdicts that are not written yet. They become durable with the record that follows.
func (t *turn) saveVerdicts(p *peer) {
	for i := len(p.Reported) - p.Fresh; i < len(p.Reported); i++ {
		n := p.Closes - int64(len(p.Reported)-i)
		t.persist(closedKey+p.Key.String()+"/"+strconv.FormatInt(n%keptVerdicts, 10), closing{p.Key, n, p.Reported[i]}, true)
	}
	p.Fresh = 0
}

// restoreVerdict takes one up. Peers are restored before.
func (n *Node) restoreVerdict(name string, record json.RawMessage) error {
	var c closing
	if err := json.Unmarshal(record, &c); err != nil {
		return err
	}
	if key, _, _ := strings.Cut(name, "/"); c.Key.String() != key {
		return errForeign(c.Key)
	}
	if p := n.peers[c.Key]; p != nil && c.N < p.Closes && c.N >= p.Closes-keptVerdicts {
		p.closings = append(p.closings, c)
	}
	return nil
}

// verdictsInOrder puts what was taken up into the order in which it was found.
func (n *Node) verdictsInOrder() {
	for _, p := range n.peers {
		slices.SortFunc(p.closings, func(a, b closing) int { return int(a.N - b.N) })
		for _, c := range p.closings {
			p.Reported = append(p.Reported, c.Close)
		}
		p.closings = nil
	}
}
