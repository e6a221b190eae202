package daemon

import (
	"cmp"
	"slices"
	"strings"

	"fleetmesh.org/fleetmesh/internal/didcomm/mediate"
	"fleetmesh.org/fleetmesh/internal/host"
	"fleetmesh.org/fleetmesh/internal/relay"
	"fleetmesh.org/fleetmesh/internal/transport"
	"fleetmesh.org/fleetmesh/spec"
)

// carriers are the ways to peers that this build has. Another carrier is a package beside transport and a line here.
func (f *federation) carriers() []transport.Transport {
	list := []transport.Transport{f.wss, f.https, transport.Unix{}}
	if f.wraps != nil {
		list = append(list, f.wraps)
	}
	return list
}

// ladderSide is our side of the ladder. WebSocket and gift wrap need no door of ours, since answers come back the way they went. HTTPS goes one
// way, and a Unix socket is a path on this machine that somebody else's descriptor names: both are used only by a node that has such a door.
func (f *federation) ladderSide() []transport.Endpoint {
	best := map[string]int{}
	for _, e := range doors(&f.n.cfg().Spec, f.n.url) {
		if p, ok := best[e.Scheme]; !ok || e.Preference < p {
			best[e.Scheme] = e.Preference
		}
	}
	always := map[string]int{f.wss.Scheme(): 0}
	if f.wraps != nil {
		always[f.wraps.Scheme()] = transport.LastPreference
	}
	for scheme, p := range always {
		if _, ok := best[scheme]; !ok {
			best[scheme] = p
		}
	}
	var out []transport.Endpoint
	for scheme, p := range best {
		out = append(out, transport.Endpoint{Scheme: scheme, Preference: p})
	}
	slices.SortFunc(out, func(a, b transport.Endpoint) int { return cmp.Compare(a.Scheme, b.Scheme) })
	return out
}

// mount puts the doors that are HTTP paths on the relay face's server, before federation is up: a peer that comes too early is told so.
func (f *federation) mount(r *relay.Relay) {
	for _, e := range f.n.cfg().Spec.Endpoints {
		if e.Transport == f.https.Scheme() {
			_, path, _ := strings.Cut(gateKey(&e), " ")
			r.Handle(path, f.https)
		}
	}
}

// mediation sets what the host does for leaves, or as one.
func (f *federation) mediation(c *host.Config) error {
	s := &f.n.cfg().Spec
	if s.Class == string(spec.ClassAnchor) && slices.Contains(s.Capabilities, "mediator") {
		lim := mediate.DefaultLimits()
		c.Mediator = &lim
	}
	if s.Class != string(spec.ClassLeaf) {
		return nil
	}
	c.MediatorHints = s.Relays
	var err error
	c.Mediators, err = f.n.opt.Dir.mediators(s)
	return err
}
