package cluster

import (
	"maps"
	"slices"
)

// peer is what peer.list says of a peering, as far as it is audited here. The names are those of the control protocol.
type peer struct {
	Key      string    `json:"key"`
	Stage    string    `json:"stage"`
	Worst    string    `json:"worst_severity"`
	Windows  []verdict `json:"windows"`
	Accounts []account `json:"accounts"`
}

type counters map[string]int64

// verdict is a closed window of a grant that the node issued.
type verdict struct {
	Window   int64    `json:"window"`
	Severity string   `json:"severity"`
	Measured counters `json:"measured"`
	Claimed  counters `json:"claimed"`
	Limit    string   `json:"limit"`
}

// account is a window that is still open.
type account struct {
	Way     string   `json:"way"` // issued or held
	Window  int64    `json:"window"`
	Counted counters `json:"counted"`
	InDoubt counters `json:"in_doubt"`
}

// LinkAccount compares what one end of a link claims to have used with what the other measured, over all windows.
type LinkAccount struct {
	Issuer     int      `json:"issuer"`
	Subject    int      `json:"subject"`
	Closed     int      `json:"windows_closed"`
	Open       int      `json:"windows_open"`
	Measured   counters `json:"measured"`
	Claimed    counters `json:"claimed"`
	Divergence int64    `json:"divergence"` // the sum of what the two differ by, in every window and counter
	Worst      string   `json:"worst_severity"`
}

// Finding is a verdict above S0 on a node of the cluster.
type Finding struct {
	By       int    `json:"by"`
	On       int    `json:"on"`
	Window   int64  `json:"window,omitempty"`
	Severity string `json:"severity"`
	Limit    string `json:"limit,omitempty"`
}

// compare audits one direction of a link: issuer's view of the subject, and the subject's view of the issuer. In a closed window the claim is the
// subject's last receipt. In one that is still open it is what the subject knows of and would claim now; what it sent and got no answer to may
// have arrived or not, and either is no difference.
func compare(issuer, subject int, at, by *peer) LinkAccount {
	out := LinkAccount{Issuer: issuer, Subject: subject, Measured: counters{}, Claimed: counters{}, Worst: at.Worst}
	for _, v := range at.Windows {
		out.Closed++
		out.add(v.Measured, v.Claimed, nil)
	}
	for _, a := range at.Accounts {
		if a.Way != "issued" {
			continue
		}
		out.Open++
		var claimed, doubt counters
		if i := slices.IndexFunc(by.Accounts, func(b account) bool { return b.Way == "held" && b.Window == a.Window }); i >= 0 {
			claimed, doubt = by.Accounts[i].Counted, by.Accounts[i].InDoubt
		}
		out.add(a.Counted, claimed, doubt)
	}
	return out
}

func (l *LinkAccount) add(measured, claimed, doubt counters) {
	names := map[string]bool{}
	for _, c := range []counters{measured, claimed} {
		for n := range c {
			names[n] = true
		}
	}
	for n := range names {
		m, c := measured[n], claimed[n]
		l.Measured[n] += m
		l.Claimed[n] += c
		switch most := c + doubt[n]; {
		case m < c:
			l.Divergence += c - m
		case m > most:
			l.Divergence += m - most
		}
	}
}

// findings are the verdicts above S0 of one node on another.
func findings(by, on int, p *peer) (out []Finding) {
	for _, v := range p.Windows {
		if v.Severity != clean {
			out = append(out, Finding{by, on, v.Window, v.Severity, v.Limit})
		}
	}
	if len(out) == 0 && p.Worst != clean { // found otherwise than by a window's close
		out = append(out, Finding{By: by, On: on, Severity: p.Worst})
	}
	return out
}

const clean = "S0"

// unsettled says whether the subject caused anything in a window up to the epoch that its issuer has not closed yet.
func unsettled(p *peer, epoch int64) bool {
	return slices.ContainsFunc(p.Accounts, func(a account) bool {
		return a.Way == "issued" && a.Window <= epoch && slices.ContainsFunc(slices.Collect(maps.Values(a.Counted)), func(v int64) bool { return v > 0 })
	})
}
