package sim

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"fleetmesh.org/fleetmesh/internal/identity"
	"fleetmesh.org/fleetmesh/internal/ledger"
	"fleetmesh.org/fleetmesh/internal/mesh"
	"fleetmesh.org/fleetmesh/nostr"
	"fleetmesh.org/fleetmesh/spec"
)

// court is what complaints and reports need beside the accounts: the relays that hold reports, and what the checkers remember of them.
type court struct {
	held   map[[2]nostr.PubKey]*nostr.Event // by reporter and subject: a report is addressable, the newest stands
	frames map[nostr.ID]*ledger.Frame       // grants that nobody lays open, as relays hold them
	strict map[[2]nostr.PubKey]*ledger.Grant
}

func (c *court) init() {
	c.held, c.frames, c.strict = map[[2]nostr.PubKey]*nostr.Event{}, map[nostr.ID]*ledger.Frame{}, map[[2]nostr.PubKey]*ledger.Grant{}
}

// put publishes a grant, and gives it its id. Where there are reports it is an event, signed and with its commitment, that a report can lay open: only the
// ciphertext is left out, which nobody but the subject could read.
func (n *node) put(g *ledger.Grant) *nostr.Event {
	h := sha256.New()
	h.Write(g.Issuer[:])
	h.Write(g.Subject[:])
	h.Write(binary.BigEndian.AppendUint64(nil, uint64(g.CreatedAt)))
	g.ID = nostr.ID(h.Sum(nil))
	if !n.w.cfg.Reports {
		return nil
	}
	g.Blinding = [32]byte(g.ID)
	commit, err := commitment(g)
	if err != nil {
		n.w.violate("a grant can be published", "%v", err)
		return nil
	}
	blind := sha256.Sum256(g.Subject[:])
	e := &nostr.Event{Kind: spec.KindGrant, CreatedAt: g.CreatedAt, Content: "sealed", Tags: []nostr.Tag{
		{"d", hex.EncodeToString(blind[:])}, {"commit", hex.EncodeToString(commit[:])}, {"scheme", spec.C().Commitment.Scheme, spec.C().Commitment.ContentScheme},
		{"window", strconv.FormatInt(g.Window, 10)}, {"epoch", strconv.FormatInt(ledger.WindowAt(g.CreatedAt, g.Window).Epoch, 10)},
		{"expiration", strconv.FormatInt(g.Expiration, 10)}}}
	if err := identity.SignEvent(n.agent, e); err != nil {
		n.w.violate("a grant can be published", "%v", err)
		return nil
	}
	g.ID = e.ID
	return e
}

// commitment is what a grant's event commits to: its body without the blinding, canonical, behind the blinding.
func commitment(g *ledger.Grant) (c [32]byte, err error) {
	text, err := g.Disclosure()
	if err != nil {
		return c, err
	}
	var body map[string]json.RawMessage
	var tags [][]string
	if err = json.Unmarshal(text, &body); err == nil {
		err = json.Unmarshal(body["tags"], &tags)
	}
	if err != nil {
		return c, err
	}
	tags = slices.DeleteFunc(tags, func(t []string) bool { return t[0] == "blinding" })
	if body["tags"], err = json.Marshal(tags); err != nil {
		return c, err
	}
	if text, err = json.Marshal(body); err != nil {
		return c, err
	}
	canonical, err := spec.Canonical(text)
	return ledger.Commit(g.Blinding, canonical), err
}

// publish puts a report where others read it. In bad weather no relay is in reach, at times.
func (n *node) publish(eff mesh.PublishReport) mesh.Input {
	if !n.w.cfg.Reports {
		return nil
	}
	done := mesh.ReportPublished{Subject: eff.Subject, Thread: eff.Thread}
	if !n.w.calm && n.w.dice.below(4) == 0 {
		return done
	}
	if e := n.w.spread(n, eff.Report); e != nil {
		done.Event = e.ID
	}
	return done
}

// spread signs a report, has a stranger look at it, and lets everybody else read it within a minute.
func (w *world) spread(by *node, r *ledger.Report) *nostr.Event {
	e, err := r.Event()
	if err == nil {
		err = identity.SignEvent(by.agent, e)
	}
	if err != nil {
		w.violate("a report can be written", "%v", err)
		return nil
	}
	w.count.reports++
	w.note(by, "report %d %s %s", w.byKey[r.Subject].i, r.Outcome, e.ID)
	w.stranger(by, e)
	w.court.held[[2]nostr.PubKey{by.key, r.Subject}] = e
	for _, n := range w.nodes {
		if n != by {
			w.after(w.dice.between(100, 60_000), func() { n.read(e) })
		}
	}
	return e
}

// stranger is somebody who has nothing but the event: what an honest node publishes must convince it, and what was made up must not.
func (w *world) stranger(by *node, e *nostr.Event) {
	text, err := nostr.ParseEvent(e.JSON())
	if err != nil || !identity.Verify(text.PubKey, text.ID, text.Sig) {
		w.violate("a report is an event that holds", "of node %d: %v", by.i, err)
		return
	}
	r, err := ledger.ParseReport(text)
	if err != nil {
		w.violate("a report can be read", "of node %d: %v", by.i, err)
		return
	}
	j, subject := r.Judge(ledger.Known{Now: origin + w.now/1000}), w.byKey[r.Subject]
	switch {
	case subject.rogue == nil && j.Support == ledger.Supported:
		w.violate("no honest node is reported with evidence", "by node %d: node %d, %s", by.i, subject.i, r.Outcome)
	case by.rogue != nil:
	case subject.rogue == nil:
		w.violate("no honest node is reported", "by node %d: node %d, %s", by.i, subject.i, r.Outcome)
	case j.Support != ledger.Supported:
		w.violate("what is published convinces a stranger", "node %d about %d, %s: %s %s", by.i, subject.i, r.Outcome, j.Code, j.Detail)
	case r.Outcome < spec.S3 && (r.Thread == "" || r.At < r.NoticedAt+w.cfg.Seconds):
		w.violate("a notice stands for a window before a report", "node %d about %d, %s: noticed %d, published %d", by.i, subject.i, r.Outcome, r.NoticedAt, r.At)
	case r.Outcome == spec.S1 && w.watch.of(by.i, subject.i).Closed[spec.S1] < 2:
		w.violate("a first overrun is not published", "node %d about %d", by.i, subject.i)
	}
}

// read judges a report as a node does that finds it at a relay.
func (n *node) read(e *nostr.Event) {
	if !n.up {
		return
	}
	r, err := ledger.ParseReport(e)
	if err != nil || n.w.court.held[[2]nostr.PubKey{r.Reporter, r.Subject}] != e || !n.mesh.News(r) {
		return
	}
	n.w.count.readings++
	n.step(mesh.ReportJudged{Report: r, Judgement: n.w.judged(r, n)})
}

func (w *world) judged(r *ledger.Report, by *node) ledger.Judgement {
	return r.Judge(ledger.Known{Now: by.unix(), Frame: w.court.frames[r.Grant]})
}

// catchUp reads what relays hold, as a node does that was away, and again from time to time: it may have read before it granted the reporter anything.
func (n *node) catchUp() {
	if !n.w.cfg.Reports {
		return
	}
	life := n.life
	n.w.after(n.w.dice.between(1000, 300_000), func() {
		if n.life != life || !n.up {
			return
		}
		for _, at := range slices.SortedFunc(maps.Keys(n.w.court.held), byPair) {
			if n.life == life && at[0] != n.key {
				n.read(n.w.court.held[at])
			}
		}
		if n.life == life {
			n.catchUp()
		}
	})
}

func byPair(a, b [2]nostr.PubKey) int {
	return bytes.Compare(append(a[0][:], a[1][:]...), append(b[0][:], b[1][:]...))
}

// told looks at what mesh reports of complaints and views.
func (c *court) told(w *world, n, subject *node, t mesh.Tell) {
	switch {
	case t.What == "window-closed" && t.Severity == spec.S0:
		delete(c.strict, [2]nostr.PubKey{n.key, subject.key})
	case t.What == "complaint-noticed":
		w.count.notices++
	case n.rogue != nil:
	case t.What == "complaint-received" && subject.rogue == nil:
		w.violate("an honest node never complains about an honest node", "node %d hears of %s from node %d", n.i, t.Severity, subject.i)
	case t.What == "view-lowered" && subject.rogue == nil:
		w.violate("nothing that is said lowers the view of an honest node", "node %d sees node %d at %s", n.i, subject.i, t.Severity)
	}
}

// remediesStand demands of a node that starts that every remedy it granted is in force: a crash is no way out of one.
func (w *world) remediesStand(n *node) {
	for _, p := range n.mesh.Peers(n.clock()) {
		g := w.court.strict[[2]nostr.PubKey{n.key, p.Key}]
		if g == nil || p.Issued == nil {
			continue
		}
		for i := range spec.C().Limits {
			l := spec.C().Limits[i].Name
			if p.Issued.Limits[l] > g.Limits[l] && p.Standing.Limits[l] > g.Limits[l] && p.Standing.ZeroUntil == 0 {
				w.violate("a remedy is in force across a crash", "node %d about %d: %s is %d, was %d", n.i, w.byKey[p.Key].i, l, p.Issued.Limits[l], g.Limits[l])
			}
		}
		if rank(p.Standing.Tier) > rank(g.Tier) {
			w.violate("a remedy is in force across a crash", "node %d about %d: tier %s, was %s", n.i, w.byKey[p.Key].i, p.Standing.Tier, g.Tier)
		}
	}
}

// heardOut demands, when all is calm again, that whoever a node found at S3 or S4 is reported by it and that its honest peers have read so. A forged hop is
// not reported: who holds an envelope could have spoilt it.
func (w *world) heardOut(n *node) {
	for _, p := range n.mesh.Peers(n.clock()) {
		s := w.byKey[p.Key]
		worst, err := spec.ParseSeverity(p.Worst) // what it holds: a crash may have made it forget what it was about to write down
		if err != nil {
			w.violate("a severity can be read", "%v", err)
		}
		if s.rogue == nil || worst < spec.S3 || s.rogue.act.forge != nil {
			continue
		}
		ours, _ := n.mesh.Cases(s.key)
		if !slices.ContainsFunc(ours, func(c mesh.Complaint) bool { return c.Stage == "published" && c.Outcome == worst }) {
			w.violate("abuse and malice are reported", "node %d found node %d at %s: %s", n.i, s.i, worst, stages(ours))
			continue
		}
		for _, m := range w.nodes {
			if m.rogue != nil || m == n || !m.up || !m.hasGranted(n) {
				continue
			}
			if !slices.ContainsFunc(m.mesh.Findings(), func(f mesh.Finding) bool {
				return f.Reporter == n.key && f.Subject == s.key && f.Support == ledger.Supported
			}) {
				w.violate("who grants a reporter anything reads its reports", "node %d of node %d about %d", m.i, n.i, s.i)
			}
		}
	}
}

// hasReported is the gravest outcome of a report about another that stands, "" if there is none.
func (n *node) hasReported(of *node) string {
	worst := spec.S0
	ours, _ := n.mesh.Cases(of.key)
	for _, c := range ours {
		if c.Stage == "published" {
			worst = worst.Worse(c.Outcome)
		}
	}
	if worst == spec.S0 {
		return ""
	}
	return worst.String()
}

func stages(list []mesh.Complaint) (out string) {
	for _, c := range list {
		out += fmt.Sprintf("%s %s %s; ", c.Outcome, c.Stage, c.Why)
	}
	return out
}

// hasGranted reports whether a node granted another anything.
func (n *node) hasGranted(peer *node) bool {
	return slices.ContainsFunc(n.mesh.Peers(n.clock()), func(p mesh.Peer) bool { return p.Key == peer.key && p.Issued != nil })
}

// sample is an envelope of a deliver, as evidence that its sender was there.
func (f *frame) sample() json.RawMessage {
	if len(f.envelopes) == 0 {
		return nil
	}
	return f.envelopes[0].JSON()
}

// sign puts one signed envelope into a deliver of the rogue's: what it cannot deny later.
func (r *rogue) sign(f *frame, g *ledger.Grant) {
	e := &nostr.Event{Kind: 1, CreatedAt: r.n.unix(), Content: "delivered", Tags: []nostr.Tag{}}
	err := identity.SignEvent(r.n.agent, e)
	env := &ledger.Envelope{Event: e, Grant: g.ID, Window: ledger.WindowAt(r.n.unix(), r.n.w.cfg.Seconds).Epoch}
	if err == nil {
		err = env.SignHop(r.n.agent, r.n.unix())
	}
	if err != nil {
		r.n.w.violate("a hop can be signed", "%v", err)
		return
	}
	f.envelopes = []*ledger.Envelope{env}
}

// accuse publishes a report about an honest node, by turns with a receipt of its that says something else and with nothing.
func (r *rogue) accuse() {
	w := r.n.w
	for _, victim := range w.nodes {
		if victim.rogue == nil {
			report := w.falseReport(r.n, victim, w.now/1000/w.cfg.Seconds%2 == 0)
			if len(report.Evidence) == 0 { // a report without any is none
				report.Evidence = []ledger.Artefact{{Type: ledger.EvidenceEvent, Digest: [32]byte{1}}}
			}
			w.spread(r.n, report)
			return
		}
	}
}
