package daemon

import (
	"context"
	"fmt"
	"slices"
	"time"

	"fleetmesh.org/fleetmesh/internal/host"
	"fleetmesh.org/fleetmesh/internal/identity"
	"fleetmesh.org/fleetmesh/internal/ledger"
	"fleetmesh.org/fleetmesh/internal/mesh"
	"fleetmesh.org/fleetmesh/internal/trail"
	"fleetmesh.org/fleetmesh/spec"
)

// WhyPeerParams name a peer, empty for all, and, where it is not 0, one window.
type WhyPeerParams struct {
	DID    string `json:"did,omitempty"`
	Window int64  `json:"window,omitempty"`
}

// WhyPeer answers why a peer gets what it gets: what binds now, how its windows were priced, and what happened.
type WhyPeer struct {
	Peer     string         `json:"peer"`
	Stage    string         `json:"stage"`
	Tier     spec.Tier      `json:"tier"`
	Worst    string         `json:"worst_severity"`
	Says     []string       `json:"says"`     // what binds now, a sentence each; of a window, what is charged to it
	Windows  []WindowReport `json:"windows"`  // closed, oldest first, with the arithmetic; without a window named, those above S0 and the last
	Open     []mesh.Account `json:"open"`     // windows that are not closed yet
	Receipts []ReceiptChain `json:"receipts"` // of the window named
	Charged  *Charged       `json:"charged,omitempty"`
	Cases    []host.Case    `json:"cases"`
	Happened []Happened     `json:"happened"`        // the earliest first
	Since    int64          `json:"since,omitempty"` // unix second before which nothing is remembered
}

// Charged are the events of one window: what was delivered under which grant.
type Charged struct {
	Sent     int               `json:"sent"` // deliveries to the peer
	LastSent []trail.Departure `json:"last_sent"`
	Came     int               `json:"came"` // events that came from it and were kept
	LastCame []host.Origin     `json:"last_came"`
}

// fewEvents is how many events of a window are named, and happenings how many of a peer's are told.
const (
	fewEvents  = 20
	happenings = 200
)

func (n *node) whyPeer(ctx context.Context, p WhyPeerParams) ([]WhyPeer, error) {
	peers, err := n.named(ctx, p.DID)
	if err != nil {
		return nil, err
	}
	h, err := n.fed.get(ctx)
	if err != nil {
		return nil, err
	}
	cases, _ := h.Cases()
	out := []WhyPeer{}
	for i := range peers {
		w, err := n.whyOne(h, &peers[i], p.Window)
		if err != nil {
			return nil, err
		}
		for _, c := range cases {
			if c.Peer == peers[i].Key && concerns(&c, p.Window) {
				w.Cases = append(w.Cases, c)
			}
		}
		if p.DID != "" || p.Window == 0 || len(w.Windows)+len(w.Open)+len(w.Happened)+len(w.Receipts) > 0 {
			out = append(out, w)
		}
	}
	return out, nil
}

// concerns cuts a case down to what is about a window, and says whether anything is. Window 0 stands for all.
func concerns(c *host.Case, window int64) bool {
	if window != 0 {
		c.Ours = slices.DeleteFunc(slices.Clone(c.Ours), func(o mesh.Complaint) bool { return window < o.First || window > o.Last })
		c.Theirs = nil
	}
	return len(c.Ours)+len(c.Theirs) > 0
}

func (n *node) whyOne(h *host.Host, p *mesh.Peer, window int64) (w WhyPeer, err error) {
	did := identity.FormatDID(p.Key)
	w = WhyPeer{Peer: did, Stage: p.Stage, Tier: p.Tier, Worst: p.Worst, Says: []string{}, Windows: []WindowReport{}, Open: []mesh.Account{}, Receipts: []ReceiptChain{}, Cases: []host.Case{}, Happened: []Happened{}}
	for i, c := range p.Windows {
		if c.Window == window || window == 0 && (c.Severity != spec.S0.String() || i == len(p.Windows)-1) {
			w.Windows = append(w.Windows, reportWindow(c))
		}
	}
	for _, a := range p.Accounts {
		if window == 0 || a.Window == window {
			w.Open = append(w.Open, a)
		}
	}
	list, since, err := n.diary.Of(did, func(e *trail.Entry) bool { return window == 0 || e.Window == window })
	if err != nil {
		return w, err
	}
	w.Since = since
	for _, e := range list[max(0, len(list)-happenings):] {
		w.Happened = append(w.Happened, Happened{At: e.At, Peer: did, What: e.What, Window: e.Window, Severity: e.Severity, Code: spec.Code(e.Code), Detail: e.Detail})
	}
	if window == 0 {
		w.Says = binding(p, host.Now())
		return w, nil
	}
	r, err := n.receiptsOf(p.Key, window)
	if err != nil {
		return w, err
	}
	w.Receipts = r.Chains
	w.Charged = &Charged{}
	if w.Charged.Sent, w.Charged.LastSent, err = n.trail.Window(did, window, fewEvents); err != nil {
		return w, err
	}
	w.Charged.Came, w.Charged.LastCame, err = h.Provenance().Window(p.Key, window, fewEvents)
	w.Says = append(w.Says, fmt.Sprintf("%d events came from it and were kept, %d were delivered to it", w.Charged.Came, w.Charged.Sent))
	return w, err
}

// binding says in sentences what stands between the two nodes now.
func binding(p *mesh.Peer, now time.Time) (says []string) {
	say := func(format string, args ...any) { says = append(says, fmt.Sprintf(format, args...)) }
	if p.Stage != "active" {
		say("the peering is %s: nothing is exchanged under it", p.Stage)
	}
	if until := p.Standing.ZeroUntil; until > now.Unix() {
		say("every limit of our grant to it is zero until %s, after an S3", clockTime(until))
	}
	for _, v := range slices.Backward(p.Windows) {
		if v.Severity == spec.S0.String() {
			continue
		}
		limit := ""
		if v.Limit != "" {
			limit = " by " + string(v.Limit)
		}
		say("window %d closed with %s%s, since when %d windows in a row were clean: its tier is %s", v.Window, v.Severity, limit, p.Clean, p.Tier)
		break
	}
	if p.Issued == nil {
		say("this node has granted it nothing")
	} else {
		for _, s := range usedUp(p.Issued) {
			say("it may cause no more here: %s", s)
		}
	}
	if p.Held == nil {
		say("it has granted this node nothing that is in force")
	} else {
		for _, s := range usedUp(p.Held) {
			say("what leaves here for it waits: %s", s)
		}
	}
	for _, a := range p.Accounts {
		if n := a.InDoubt.Of(spec.LimitEventsIn); a.Way == "held" && n > 0 {
			say("%d events of window %d were sent and are not answered: they may have arrived or not", n, a.Window)
		}
	}
	if p.Digest == "differs" {
		say("it speaks another schema than this node")
	}
	if len(says) == 0 {
		say("nothing stands between the two nodes: the peering is active and no limit is used up")
	}
	return says
}

// usedUp says which limits of a grant's window are spent, and until when.
func usedUp(b *mesh.Budget) (out []string) {
	w := ledger.Window{Epoch: b.Epoch, Length: b.Window}
	for _, l := range spec.C().Limits {
		used, most := b.Used.Of(l.Name), b.Limits[l.Name]
		if used > 0 && used >= most {
			out = append(out, fmt.Sprintf("%s, %d of %d are used in window %d, which ends at %s", l.Name, used, most, b.Epoch, clockTime(w.End())))
		}
	}
	return out
}

func clockTime(at int64) string { return time.Unix(at, 0).UTC().Format(time.DateTime) + " UTC" }
