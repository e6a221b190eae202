package host

import (
	"context"
	"errors"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"fleetmesh.org/fleetmesh/internal/didcomm"
	"fleetmesh.org/fleetmesh/internal/identity"
	"fleetmesh.org/fleetmesh/internal/transport"
	"fleetmesh.org/fleetmesh/nostr"
)

// Probe is what became of one rung to a peer.
type Probe struct {
	Scheme  string `json:"scheme"`
	Address string `json:"address"`
	Sum     int    `json:"preference_sum"`
	Dialled bool   `json:"dialled"` // false: the session that is open was left in peace
	TookMS  int64  `json:"took_ms"`
	OK      bool   `json:"ok"`
	Error   string `json:"error,omitempty"`
	Help    string `json:"help,omitempty"`
}

// PeerHealth is what a doctor finds on the way to one node.
type PeerHealth struct {
	Peer      nostr.PubKey `json:"-"`
	DID       string       `json:"did"`
	Reachable bool         `json:"reachable"`
	Session   string       `json:"session,omitempty"` // carrier of the session that is open
	Mediators []string     `json:"mediators,omitempty"`
	Rungs     []Probe      `json:"rungs"` // best first
	Unusable  []Finding    `json:"unusable,omitempty"`
	Error     string       `json:"error,omitempty"`
	Help      string       `json:"help,omitempty"`
}

// Finding is an endpoint that cannot work, or not for everybody, and why.
type Finding struct {
	Scheme  string `json:"scheme"`
	Address string `json:"address"`
	Problem string `json:"problem"`
	Help    string `json:"help"`
}

// Examine dials every rung to a node, each for the ladder's five seconds and whether or not a better one holds, and sends a ping from nobody on
// it that asks for no answer: it counts for nothing in anybody's books. A session that is open is left as it is.
func (h *Host) Examine(ctx context.Context, peer nostr.PubKey) PeerHealth {
	out := PeerHealth{Peer: peer, DID: identity.FormatDID(peer), Rungs: []Probe{}}
	d, err := h.descriptor(ctx, peer, true)
	if err != nil {
		out.Error, out.Help = err.Error(), "name a relay that holds its descriptor: meshnode peer add --relay wss://…"
		return out
	}
	h.mu.Lock()
	l := h.links[peer]
	h.mu.Unlock()
	var open transport.Endpoint
	if l != nil {
		l.mu.Lock()
		if l.stream != nil {
			out.Session, out.Reachable = l.stream.Scheme(), true
			if l.ours {
				open = l.last
			} else if out.Session == "giftwrap" {
				open.Scheme = out.Session // whichever relay it goes through: a second stream would take its place
			}
		}
		l.mu.Unlock()
	}
	out.Unusable = Unusable(d.Endpoints)
	if via := h.via(ctx, peer); len(via) > 0 {
		h.examineVia(ctx, peer, via, &out)
		return out
	}
	for _, r := range transport.Ladder(*h.ours.Load(), endpoints(d)) {
		p := h.probe(ctx, r, peer, d, open)
		out.Reachable = out.Reachable || p.OK
		out.Rungs = append(out.Rungs, p)
	}
	for _, e := range d.Endpoints {
		if h.dialers[e.Scheme] == nil {
			out.Unusable = append(out.Unusable, Finding{e.Scheme, e.Address, "this build has no such transport", "nothing: the rungs above are used"})
		}
	}
	if len(out.Rungs) == 0 {
		out.Error = "no transport in common"
		out.Help = "the peer has to advertise an endpoint of a scheme that this node speaks, such as wss"
	}
	return out
}

// examineVia looks at the mediators between us and a node.
func (h *Host) examineVia(ctx context.Context, peer nostr.PubKey, via []nostr.PubKey, out *PeerHealth) {
	for _, m := range via {
		out.Mediators = append(out.Mediators, identity.FormatDID(m))
		if m == h.selfKey {
			continue
		}
		d, err := h.descriptorFrom(ctx, m, peer)
		if err != nil {
			out.Rungs = append(out.Rungs, Probe{Scheme: "mediator", Address: identity.FormatDID(m), Error: err.Error(), Help: "the mediator's descriptor has to be on a relay that this node asks"})
			continue
		}
		for _, r := range transport.Ladder(*h.ours.Load(), endpoints(d)) {
			p := h.probe(ctx, r, m, d, transport.Endpoint{})
			out.Reachable = out.Reachable || p.OK
			out.Rungs = append(out.Rungs, p)
		}
	}
}

// probe tries one rung.
func (h *Host) probe(ctx context.Context, r transport.Rung, peer nostr.PubKey, d *identity.Descriptor, open transport.Endpoint) Probe {
	p := Probe{Scheme: r.Endpoint.Scheme, Address: r.Endpoint.Address, Sum: r.Sum}
	if open.Scheme == p.Scheme && (open.Address == p.Address || open.Address == "") {
		p.OK = true
		return p
	}
	ctx, cancel := context.WithTimeout(ctx, transport.RungTimeout)
	defer cancel()
	p.Dialled = true
	start := Now()
	err := h.knock(ctx, r.Endpoint, peer, d)
	p.TookMS = Now().Sub(start).Milliseconds()
	if p.OK = err == nil; err == nil {
		return p
	}
	if ctx.Err() != nil && errors.Is(ctx.Err(), context.DeadlineExceeded) {
		err = errors.New("no answer in " + transport.RungTimeout.String())
	}
	p.Error, p.Help = err.Error(), Advice(p.Scheme, err)
	return p
}

// knock opens a stream and sends a ping from nobody on it.
func (h *Host) knock(ctx context.Context, ep transport.Endpoint, peer nostr.PubKey, d *identity.Descriptor) error {
	to, err := agreementOf(d, Now().Unix())
	if err != nil {
		return err
	}
	m, err := didcomm.NewPing(newID(), h.self, identity.FormatDID(peer), Now().Unix(), false)
	if err != nil {
		return err
	}
	frame, err := didcomm.Pack(m, didcomm.PackOptions{To: []didcomm.PublicKey{to}})
	if err != nil {
		return err
	}
	s, err := h.dialers[ep.Scheme].Dial(ctx, ep, peer)
	if err != nil {
		return err
	}
	defer s.Close()
	return s.Send(ctx, frame)
}

// Advice says what would help against an error on a rung. The words of the network differ between systems, so it looks for what they share.
func Advice(scheme string, err error) string {
	text := strings.ToLower(err.Error())
	has := func(parts ...string) bool {
		return slices.ContainsFunc(parts, func(p string) bool { return strings.Contains(text, p) })
	}
	var refused *transport.RefusedError
	switch {
	case errors.Is(err, transport.ErrOrdinaryRelay):
		return "a relay answers there that is no node, or a proxy in front of it drops the Sec-WebSocket-Protocol header: forward that header, or rely on gift wraps through it"
	case errors.As(err, &refused) && refused.Status == 404, has("answers 404"):
		return "the server is there, and nothing is mounted at that path: compare the path in the peer's endpoint with its spec.endpoints"
	case errors.As(err, &refused) && refused.Status == 503, has("answers 502", "answers 503", "answers 504"):
		return "the server in front is up and the node behind it is not: start the node, or try again in a minute"
	case has("no answer in", "i/o timeout", "deadline exceeded"):
		return "packets get lost on the way: a firewall drops them, the address is out of date, or the machine is off"
	case has("connection refused") && scheme == "unix":
		return "the socket was left behind by a node that is gone: start that node"
	case has("connection refused"):
		return "the machine answers and nothing listens on that port: start the node, or correct the port in its endpoint"
	case has("no such host", "server misbehaving"):
		return "the name does not resolve: correct the endpoint, or this machine's DNS"
	case has("network is unreachable", "no route to host"):
		return "this machine has no route there: check its network, and IPv6 if the address is one"
	case has("certificate", "x509", "tls:"):
		return "the TLS certificate is not accepted: renew it, make it cover the host name, and check the clocks of both machines"
	case has("socks"):
		return "the proxy could not make the connection: check spec.proxy, and that the proxy runs"
	case has("no such file"):
		return "no socket is at that path: the node is not running, or listens elsewhere"
	case has("permission denied"):
		return "the socket belongs to another user: run both nodes under one user"
	case has("relay refuses", "auth-required", "blocked:", "restricted:"):
		return "the relay does not take gift wraps from this node: name another relay, or ask its operator to allow kinds 1059 and 21059"
	case has("no live agreement key", "no live descriptor"):
		return "the peer's descriptor has expired: its node has to publish a new one"
	}
	return "see the error; meshnode ping tells whether another rung holds"
}

// Unusable names the endpoints of a descriptor that can work for nobody, or for this machine or network alone.
func Unusable(list []identity.Endpoint) (out []Finding) {
	for _, e := range list {
		if problem, help := unusable(e); problem != "" {
			out = append(out, Finding{e.Scheme, e.Address, problem, help})
		}
	}
	return out
}

func unusable(e identity.Endpoint) (problem, help string) {
	if e.Scheme == "unix" {
		return "reaches nodes of this machine alone", "fine for nodes side by side; others need a wss endpoint too"
	}
	if e.Scheme != "wss" && e.Scheme != "https" {
		return "", ""
	}
	u, err := url.Parse(e.Address)
	if err != nil || u.Hostname() == "" {
		return "is not a URL", "write it as " + e.Scheme + "://host/"
	}
	if u.Port() == "0" {
		return "has port 0, which nobody can dial", "give spec.relay.listen a fixed port"
	}
	name := u.Hostname()
	ip, err := netip.ParseAddr(name)
	switch {
	case name == "localhost" || err == nil && ip.IsLoopback():
		return "reaches this machine alone", "fine for a trial; for others put the public URL into spec.relay.publicUrls"
	case err == nil && ip.IsUnspecified():
		return "is no address", "put the public URL into spec.relay.publicUrls"
	case err == nil && (ip.IsPrivate() || ip.IsLinkLocalUnicast()):
		return "reaches this network alone", "for others put the public URL into spec.relay.publicUrls"
	case err != nil && !strings.Contains(name, "."):
		return "is a name without a domain", "use the full name, such as relay.example.org"
	case u.Scheme != e.Scheme && !strings.HasSuffix(name, ".onion"):
		return "goes over the open network without TLS", "put a TLS proxy in front and advertise " + e.Scheme + "://"
	}
	return "", ""
}
