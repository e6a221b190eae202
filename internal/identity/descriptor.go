package identity

import (
	"strconv"
	"strings"

	"fleetmesh.org/fleetmesh/nostr"
	"fleetmesh.org/fleetmesh/spec"
)

// lifetime is the longest a descriptor of a class may live, in seconds.
func lifetime(c spec.Class) int64 {
	if rules, ok := spec.C().Class(c); ok {
		return rules.DescriptorMaxSeconds
	}
	return 0
}

// BoundKey is an agreement key and the unix second after which it is no longer used, 0 for
// "as long as the descriptor". A rotation lists the new key first and the old one with its end.
type BoundKey struct {
	Key     AgreementKey
	Expires int64
}

// Endpoint is one inbound door. Preference: low first; it is summed with the other side's.
type Endpoint struct {
	Scheme     string `json:"scheme"` // "iroh", "libp2p", "wss", "https", …
	Address    string `json:"address"`
	Preference int    `json:"preference"`
}

// Descriptor is a node's own account of itself, kind 11801. Zero values mean "not said".
type Descriptor struct {
	Subject   nostr.PubKey
	CreatedAt int64
	About     string // free text, the event's content

	Class           spec.Class
	Protocol        string // "fleetmesh/0.1-draft": for people
	Digest          string // schema digest, 64 hex: what a build was made from
	Software        string // an address
	SoftwareVersion string

	Agreement []BoundKey
	Transport []TransportKey
	Endpoints []Endpoint
	Mediators []nostr.PubKey

	Protocols    []string // c tags that are URIs: the protocols the node speaks, with versions
	Capabilities []string // the other c tags: hints
	NIPs         []string

	Coverage     string // digest of the claim set
	PolicyDigest string
	PolicyURL    string
	Operator     nostr.PubKey // zero: not declared, and then independent of nobody

	Expiration int64
	Committed  int // bits the nonce tag commits to, 0 if there is none
	Work       int // leading zero bits of the id
}

// Event builds the unsigned descriptor. The nonce tag is Mine's to add; SignEvent signs.
func (d *Descriptor) Event() *nostr.Event {
	e := &nostr.Event{PubKey: d.Subject, CreatedAt: d.CreatedAt, Kind: spec.KindDescriptor, Content: d.About}
	add := func(t ...string) { e.Tags = append(e.Tags, nostr.Tag(t)) }
	add("class", string(d.Class))
	add("protocol", d.Protocol, d.Digest)
	if d.Software != "" {
		add("software", d.Software, d.SoftwareVersion)
	}
	for _, k := range d.Agreement {
		if k.Expires == 0 {
			add("key", string(RoleAgreement), k.Key.Multikey())
			continue
		}
		add("key", string(RoleAgreement), k.Key.Multikey(), strconv.FormatInt(k.Expires, 10))
	}
	for _, k := range d.Transport {
		add("key", string(RoleTransport), k.Multikey())
	}
	for _, p := range d.Endpoints {
		add("endpoint", p.Scheme, p.Address, strconv.Itoa(p.Preference))
	}
	for _, m := range d.Mediators {
		add("mediator", FormatDID(m))
	}
	for _, c := range d.Protocols {
		add("c", c)
	}
	for _, c := range d.Capabilities {
		add("c", c)
	}
	if len(d.NIPs) > 0 {
		add(append([]string{"nips"}, d.NIPs...)...)
	}
	if d.Coverage != "" {
		add("coverage", d.Coverage)
	}
	if d.PolicyDigest != "" {
		add("policy", d.PolicyDigest, d.PolicyURL)
	}
	if d.Operator != (nostr.PubKey{}) {
		add("operator", d.Operator.String())
	}
	add("expiration", strconv.FormatInt(d.Expiration, 10))
	return e
}

// Speaks reports whether the descriptor declares the named protocol ("sync/1.0") in the same major
// version with a minor at or above the one named (§ Governance). It returns the version declared.
func (d *Descriptor) Speaks(protocol string) (string, bool) {
	for _, c := range d.Protocols {
		if VersionAtLeast(c, spec.PIURIBase+protocol) {
			return strings.TrimPrefix(c, spec.PIURIBase), true
		}
	}
	return "", false
}

// VersionAtLeast reports whether the protocol URI has is the same protocol as floor, of the same major
// version, and of a minor version not below. Everything before the version is compared byte for byte.
func VersionAtLeast(has, floor string) bool {
	hn, hMajor, hMinor, ok := splitPIURI(has)
	if !ok {
		return false
	}
	fn, fMajor, fMinor, ok := splitPIURI(floor)
	return ok && hn == fn && hMajor == fMajor && hMinor >= fMinor
}

func splitPIURI(s string) (name string, major, minor int, ok bool) {
	i := strings.LastIndexByte(s, '/')
	if i < 0 {
		return "", 0, 0, false
	}
	a, b, ok := strings.Cut(s[i+1:], ".")
	if !ok {
		return "", 0, 0, false
	}
	major, err1 := strconv.Atoi(a)
	minor, err2 := strconv.Atoi(b)
	canonical := strconv.Itoa(major) == a && strconv.Itoa(minor) == b
	return s[:i], major, minor, err1 == nil && err2 == nil && canonical && major >= 0 && minor >= 0
}

// Can reports whether the descriptor lists a plain capability such as "mediator".
func (d *Descriptor) Can(capability string) bool {
	for _, c := range d.Capabilities {
		if c == capability {
			return true
		}
	}
	return false
}

// AgreementAt returns the first agreement key that is live at now; peers encrypt to it.
func (d *Descriptor) AgreementAt(now int64) (AgreementKey, bool) {
	for _, k := range d.Agreement {
		if k.Expires == 0 || now < k.Expires {
			return k.Key, true
		}
	}
	return AgreementKey{}, false
}

// HasTransport reports whether the descriptor binds a transport key. A connection from an
// Ed25519 key that no live descriptor names comes from an unknown node.
func (d *Descriptor) HasTransport(k TransportKey) bool {
	for _, t := range d.Transport {
		if t == k {
			return true
		}
	}
	return false
}

// BindTransport says whether a connection from a transport key is the node's: the descriptor is live at
// now and names the key. Anything else comes from an unknown node.
func (d *Descriptor) BindTransport(k TransportKey, now int64) error {
	if !d.LiveAt(now) {
		return fault(Expired, strconv.FormatInt(d.Expiration, 10))
	}
	if !d.HasTransport(k) {
		return fault(UnknownWire, k.Multikey())
	}
	return nil
}

// RefreshAt is when a node should publish its next descriptor: two thirds into the life of this one, so
// that a day's silence of a relay does not make it vanish.
func (d *Descriptor) RefreshAt() int64 { return d.CreatedAt + (d.Expiration-d.CreatedAt)/3*2 }

// LiveAt reports whether now lies before the expiration.
func (d *Descriptor) LiveAt(now int64) bool { return now < d.Expiration }
