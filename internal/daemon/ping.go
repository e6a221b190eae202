package daemon

import (
	"context"
	"fmt"
	"slices"
	"time"

	"fleetmesh.org/fleetmesh/internal/control"
	"fleetmesh.org/fleetmesh/internal/host"
	"fleetmesh.org/fleetmesh/internal/identity"
	"fleetmesh.org/fleetmesh/internal/transport"
	"fleetmesh.org/fleetmesh/nostr"
	"fleetmesh.org/fleetmesh/spec"
)

// PingParams are those of net.ping.
type PingParams struct {
	DID    string   `json:"did"`
	Relays []string `json:"relays,omitempty"` // where its descriptor may be found
}

// Ping is what a trust ping found out.
type Ping struct {
	DID       string    `json:"did"`
	OK        bool      `json:"ok"`
	Carrier   string    `json:"carrier,omitempty"` // scheme of the session; "mediator" by way of one
	Rung      string    `json:"rung,omitempty"`    // address of the rung, where this node dialled it
	Fresh     bool      `json:"fresh"`             // the session was opened for the ping
	RoundTrip float64   `json:"round_trip_ms"`
	Attempts  []Attempt `json:"attempts"`       // of the climb that opened the session, in order
	Code      spec.Code `json:"code,omitempty"` // why not: UNREACHABLE, TIMEOUT, or what the other side refused with
	Error     string    `json:"error,omitempty"`
	Help      string    `json:"help,omitempty"`
}

// Attempt is what became of one rung.
type Attempt struct {
	Scheme  string `json:"scheme"`
	Address string `json:"address"`
	TookMS  int64  `json:"took_ms"`
	Error   string `json:"error,omitempty"`
}

func (n *node) ping(ctx context.Context, p PingParams) (Ping, error) {
	key, err := n.other(p.DID)
	if err != nil {
		return Ping{}, err
	}
	h, err := n.fed.get(ctx)
	if err != nil {
		return Ping{}, err
	}
	h.Hint(key, p.Relays)
	pong, err := h.Ping(ctx, key)
	out := Ping{DID: p.DID, OK: err == nil, Carrier: pong.Carrier, Rung: pong.Rung, Fresh: pong.Fresh, Attempts: attempts(pong.Attempts)}
	if err != nil {
		out.Code, out.Error, out.Help = host.CodeOf(err), err.Error(), "meshnode net doctor "+p.DID+" dials every rung and says what would help"
		return out, nil
	}
	out.RoundTrip = float64(pong.RoundTrip.Microseconds()) / 1000
	return out, nil
}

func attempts(list []transport.Attempt) []Attempt {
	out := []Attempt{}
	for _, a := range list {
		one := Attempt{Scheme: a.Rung.Endpoint.Scheme, Address: a.Rung.Endpoint.Address, TookMS: a.Took.Milliseconds()}
		if a.Err != nil {
			one.Error = a.Err.Error()
		}
		out = append(out, one)
	}
	return out
}

// ParseNode reads the DID of a node. The error says what one looks like.
func ParseNode(did string) (key nostr.PubKey, err error) {
	if key, err = identity.ParseDID(did); err != nil {
		return key, fmt.Errorf("%q names no node (%w): a node's DID is did:nostr: and 64 lower-case hex digits, as its meshnode id prints it", did, err)
	}
	return key, nil
}

// other reads the DID of a node that is not this one.
func (n *node) other(did string) (key nostr.PubKey, err error) {
	if key, err = ParseNode(did); err != nil {
		return key, control.BadParams("%v", err)
	}
	if key == n.agent.PubKey() {
		return key, control.BadParams("%s is this node itself", did)
	}
	return key, nil
}

// Doctor is what `meshnode net doctor` found.
type Doctor struct {
	Healthy   bool              `json:"healthy"` // every node asked about can be reached, and so can this one
	Class     string            `json:"class"`
	Proxy     *ProxyCheck       `json:"proxy,omitempty"`
	Clock     ClockCheck        `json:"clock"`
	Doors     []DoorCheck       `json:"doors"`               // of this node, as it advertises them
	Endpoints []host.Finding    `json:"endpoints,omitempty"` // of this node, that cannot work or not for everybody
	Peers     []host.PeerHealth `json:"peers"`
	Mediators []Registration    `json:"mediators,omitempty"` // of a leaf
	Mediation *host.Held        `json:"mediation,omitempty"` // of a mediator
	Problems  []string          `json:"problems"`            // a sentence each; empty when all is well
}

// Registration is a leaf's with one of its mediators.
type Registration struct {
	DID    string `json:"did"`
	Served bool   `json:"served"` // it holds our messages, and delivers them live
}

// ProxyCheck says whether the proxy takes connections.
type ProxyCheck struct {
	OK    bool   `json:"ok"`
	Error string `json:"error,omitempty"`
	Help  string `json:"help,omitempty"`
}

// ClockCheck compares this machine's clock with those of other servers, as they show them in their answers.
type ClockCheck struct {
	Compared int      `json:"compared"` // with how many servers
	Offset   *float64 `json:"offset_seconds,omitempty"`
	OK       bool     `json:"ok"`
	Help     string   `json:"help,omitempty"`
}

// DoorCheck is one of this node's own endpoints, dialled from here.
type DoorCheck struct {
	Scheme  string `json:"scheme"`
	Address string `json:"address"`
	Dialled bool   `json:"dialled"`
	OK      bool   `json:"ok"`
	TookMS  int64  `json:"took_ms"`
	Error   string `json:"error,omitempty"`
	Help    string `json:"help,omitempty"`
}

// examinedAtOnce is how many nodes a doctor looks at together.
const examinedAtOnce = 8

func (n *node) doctor(ctx context.Context, p PingParams) (Doctor, error) {
	h, err := n.fed.get(ctx)
	if err != nil {
		return Doctor{}, err
	}
	var keys []nostr.PubKey
	if p.DID != "" {
		key, err := n.other(p.DID)
		if err != nil {
			return Doctor{}, err
		}
		h.Hint(key, p.Relays)
		keys = append(keys, key)
	} else {
		for _, peer := range h.Peers() {
			if peer.Stage != "ended" && (peer.Stage != "known" || len(peer.Wants) > 0) {
				keys = append(keys, peer.Key)
			}
		}
	}
	mine := h.MyMediators()
	for m := range mine {
		if p.DID == "" && !slices.Contains(keys, m) {
			keys = append(keys, m)
		}
	}
	out := Doctor{Class: n.cfg().Spec.Class, Problems: []string{}, Peers: examine(ctx, h, keys), Mediation: h.Held()}
	for m, served := range mine {
		out.Mediators = append(out.Mediators, Registration{identity.FormatDID(m), served.Now})
	}
	out.Proxy = n.fed.checkProxy(ctx)
	out.Doors = n.fed.checkDoors(ctx)
	out.Endpoints = host.Unusable(doors(&n.cfg().Spec, n.url))
	out.Clock = n.fed.checkClock(ctx, out.Peers)
	out.judge()
	return out, nil
}

func examine(ctx context.Context, h *host.Host, keys []nostr.PubKey) []host.PeerHealth {
	out := make([]host.PeerHealth, len(keys))
	slots := make(chan struct{}, examinedAtOnce)
	done := make(chan struct{})
	for i, k := range keys {
		go func() {
			slots <- struct{}{}
			out[i] = h.Examine(ctx, k)
			<-slots
			done <- struct{}{}
		}()
	}
	for range keys {
		<-done
	}
	return out
}

// judge sums up. A rung that fails while another holds is no problem: that is what the ladder is for.
func (d *Doctor) judge() {
	say := func(s string) { d.Problems = append(d.Problems, s) }
	if d.Proxy != nil && !d.Proxy.OK {
		say("the proxy does not answer: " + d.Proxy.Help)
	}
	if !d.Clock.OK {
		say("the clock is wrong: " + d.Clock.Help)
	}
	for _, door := range d.Doors {
		if !door.OK && door.Dialled {
			say("this node's own " + door.Scheme + " endpoint " + door.Address + " does not answer: " + door.Help)
		}
	}
	for _, p := range d.Peers {
		if p.Reachable {
			continue
		}
		help := p.Help
		if help == "" && len(p.Rungs) > 0 {
			help = p.Rungs[0].Help
		}
		say(p.DID + " cannot be reached: " + help)
	}
	if len(d.Mediators) > 0 && !slices.ContainsFunc(d.Mediators, func(r Registration) bool { return r.Served }) {
		say("no mediator serves this leaf, so nobody can reach it: see the log for what they answer; they take peers, and strangers as their enrolment says")
	}
	if d.Mediation != nil && d.Mediation.Broken {
		say("the mediation log cannot be written: check the disk, then restart the node")
	}
	d.Healthy = len(d.Problems) == 0
}

// clockTolerance is how far the clock may be off: what the protocol allows between two nodes.
const clockTolerance = time.Minute
