package identity

import (
	"fmt"
	"strconv"
	"strings"

	"fleetmesh.org/fleetmesh/nostr"
	"fleetmesh.org/fleetmesh/spec"
)

// Rules says what a reader holds a descriptor against.
type Rules struct {
	Subject *nostr.PubKey // the DID it was asked for; nil takes whoever signed
	Now     int64         // the reader's clock, unix seconds
	PoWBits int           // the work the reader's policy asks for, 0 for none
	Held    bool          // the signature was verified already, as in a group; else it is verified here
}

// CheckDescriptor reads a descriptor and tries every rule, the first breach being the
// error. What it returns is a descriptor that holds at rules.Now.
func CheckDescriptor(e *nostr.Event, rules Rules) (*Descriptor, error) {
	if e.Kind != spec.KindDescriptor {
		return nil, fault(WrongKind, strconv.Itoa(int(e.Kind)))
	}
	if rules.Subject != nil && *rules.Subject != e.PubKey {
		return nil, fault(WrongSubject, e.PubKey.String())
	}
	if !OnCurve(e.PubKey) {
		return nil, fault(OffCurve, "secp256k1 "+e.PubKey.String())
	}
	if !rules.Held && (e.ComputeID() != e.ID || !Verify(e.PubKey, e.ID, e.Sig)) {
		return nil, fault(BadSignature, e.ID.String())
	}
	d, err := ParseDescriptor(e)
	if err != nil {
		return nil, err
	}
	if err := d.checkTime(rules.Now); err != nil {
		return nil, err
	}
	if err := d.checkClass(); err != nil {
		return nil, err
	}
	return d, d.checkWork(rules.PoWBits)
}

// ParseDescriptor reads a descriptor's tags and everything that can be judged without a
// clock, a policy or a signature. Use CheckDescriptor unless those were judged before.
func ParseDescriptor(e *nostr.Event) (*Descriptor, error) {
	if e.Kind != spec.KindDescriptor {
		return nil, fault(WrongKind, strconv.Itoa(int(e.Kind)))
	}
	d := &Descriptor{Subject: e.PubKey, CreatedAt: e.CreatedAt, About: e.Content, Work: nostr.PoWDifficulty(e.ID)}
	seen := map[string]bool{}
	for _, t := range e.Tags {
		if len(t) == 0 {
			continue
		}
		read, known := descriptorTags[t[0]]
		if !known {
			continue // a tag of a later version is no fault
		}
		if read.once && seen[t[0]] {
			return nil, fault(DuplicateTag, t[0])
		}
		seen[t[0]] = true
		if len(t) < read.min {
			return nil, fault(BadTag, t[0]+" has too few values")
		}
		if err := read.into(d, t); err != nil {
			return nil, err
		}
	}
	return d, d.checkPresence(seen)
}

// tagReader reads one tag into a descriptor.
type tagReader struct {
	once bool // a second one is a contradiction
	min  int  // elements, name included
	into func(d *Descriptor, t nostr.Tag) error
}

var descriptorTags = map[string]tagReader{
	"class": {true, 2, func(d *Descriptor, t nostr.Tag) error {
		d.Class = spec.Class(t[1])
		if !knownClass(d.Class) {
			return fault(UnknownClass, t[1])
		}
		return nil
	}},
	"protocol": {true, 3, func(d *Descriptor, t nostr.Tag) error {
		d.Protocol, d.Digest = t[1], t[2]
		return checkDigest("protocol", t[2])
	}},
	"software": {true, 2, func(d *Descriptor, t nostr.Tag) error {
		d.Software, d.SoftwareVersion = t[1], at(t, 2)
		return nil
	}},
	"key":      {false, 3, readKey},
	"endpoint": {false, 3, readEndpoint},
	"mediator": {false, 2, func(d *Descriptor, t nostr.Tag) error {
		k, err := ParseDID(t[1])
		if err != nil {
			return fmt.Errorf("mediator: %w", err)
		}
		if k == d.Subject {
			return fault(SelfMediator, t[1])
		}
		d.Mediators = append(d.Mediators, k)
		return nil
	}},
	"c": {false, 2, func(d *Descriptor, t nostr.Tag) error {
		if strings.Contains(t[1], "://") {
			d.Protocols = append(d.Protocols, t[1])
		} else {
			d.Capabilities = append(d.Capabilities, t[1])
		}
		return nil
	}},
	"nips": {true, 1, func(d *Descriptor, t nostr.Tag) error { d.NIPs = t[1:]; return nil }},
	"coverage": {true, 2, func(d *Descriptor, t nostr.Tag) error {
		d.Coverage = t[1]
		return checkDigest("coverage", t[1])
	}},
	"policy": {true, 2, func(d *Descriptor, t nostr.Tag) error {
		d.PolicyDigest, d.PolicyURL = t[1], at(t, 2)
		return checkDigest("policy", t[1])
	}},
	"operator": {true, 2, func(d *Descriptor, t nostr.Tag) (err error) {
		if d.Operator, err = parseKey(t[1]); err != nil {
			return fmt.Errorf("operator: %w", err)
		}
		return nil
	}},
	"expiration": {true, 2, func(d *Descriptor, t nostr.Tag) (err error) {
		d.Expiration, err = parseSeconds("expiration", t[1])
		return err
	}},
	"nonce": {true, 3, func(d *Descriptor, t nostr.Tag) error {
		bits, err := parseSeconds("nonce", t[2])
		if err != nil || bits > 256 {
			return fault(BadTag, "nonce commits to "+t[2])
		}
		d.Committed = int(bits)
		return nil
	}},
}

func readKey(d *Descriptor, t nostr.Tag) error {
	role := Role(t[1])
	if role != RoleAgreement && role != RoleTransport {
		return nil // a role of a later version
	}
	if !strings.HasPrefix(t[2], "f") {
		return fault(BadMultikey, string(role)+" key is not base16")
	}
	m, err := ParseMultikey(t[2])
	if err != nil {
		return fmt.Errorf("%s key: %w", role, err)
	}
	if role == RoleTransport {
		k, ok := m.Transport()
		if !ok {
			return fault(BadMultikey, "a transport key is of Ed25519, this one of "+string(m.Curve))
		}
		d.Transport = append(d.Transport, k)
		return nil
	}
	k, ok := m.Agreement()
	if !ok {
		return fault(BadMultikey, "an agreement key is of X25519, this one of "+string(m.Curve))
	}
	b := BoundKey{Key: k}
	if until := at(t, 3); until != "" {
		if b.Expires, err = parseSeconds("key", until); err != nil {
			return err
		}
	}
	d.Agreement = append(d.Agreement, b)
	return nil
}

func readEndpoint(d *Descriptor, t nostr.Tag) error {
	p := Endpoint{Scheme: t[1], Address: t[2]}
	if p.Scheme == "" || p.Address == "" {
		return fault(BadTag, "endpoint without a scheme or an address")
	}
	if s := at(t, 3); s != "" {
		n, err := parseSeconds("endpoint", s)
		if err != nil || n > 1_000_000 {
			return fault(BadTag, "endpoint preference "+s)
		}
		p.Preference = int(n)
	}
	d.Endpoints = append(d.Endpoints, p)
	return nil
}

func (d *Descriptor) checkPresence(seen map[string]bool) error {
	switch {
	case !seen["protocol"]:
		return fault(NoProtocol, "")
	case !seen["class"]:
		return fault(NoClass, "")
	case !seen["expiration"]:
		return fault(NoExpiration, "")
	case len(d.Agreement) == 0:
		return fault(NoAgreement, "")
	case len(d.Transport) == 0:
		return fault(NoTransport, "")
	case !d.declares("peering"):
		return fault(NoPeering, "")
	case !d.declares("budget"):
		return fault(NoBudget, "")
	}
	return nil
}

// declares reports whether any version of a protocol is declared; whether it is a version
// the reader speaks is for the handshake.
func (d *Descriptor) declares(name string) bool {
	for _, c := range d.Protocols {
		if n, _, _, ok := splitPIURI(c); ok && n == spec.PIURIBase+name {
			return true
		}
	}
	return false
}

func (d *Descriptor) checkTime(now int64) error {
	switch {
	case now >= d.Expiration:
		return fault(Expired, strconv.FormatInt(d.Expiration, 10))
	case d.CreatedAt > now+spec.C().Window.SkewSeconds:
		return fault(NotYet, strconv.FormatInt(d.CreatedAt, 10))
	case d.Expiration-d.CreatedAt > lifetime(d.Class):
		return fault(Overlong, fmt.Sprintf("%d s, at most %d for class %s", d.Expiration-d.CreatedAt, lifetime(d.Class), d.Class))
	}
	if _, ok := d.AgreementAt(now); !ok {
		return fault(StaleAgreement, "")
	}
	return nil
}

func (d *Descriptor) checkClass() error {
	if rules, _ := spec.C().Class(d.Class); !rules.Mediates && d.Can("mediator") {
		return fault(ClassMediates, string(d.Class))
	}
	switch d.Class {
	case spec.ClassAnchor:
		for _, p := range d.Endpoints {
			if p.Scheme == "wss" {
				return nil
			}
		}
		return fault(AnchorNoWSS, "")
	case spec.ClassLeaf:
		switch {
		case len(d.Endpoints) > 0:
			return fault(LeafEndpoint, d.Endpoints[0].Scheme)
		case len(d.Mediators) == 0:
			return fault(LeafNoMediator, "")
		case d.Coverage != "":
			return fault(LeafCoverage, "")
		}
	}
	return nil
}

func (d *Descriptor) checkWork(bits int) error {
	switch {
	case bits <= 0:
		return nil
	case d.Committed == 0:
		return fault(NoPoW, fmt.Sprintf("%d bits are required", bits))
	case d.Committed < bits:
		return fault(UncommittedPoW, fmt.Sprintf("commits to %d bits, %d are required", d.Committed, bits))
	case d.Work < bits:
		return fault(ShortPoW, fmt.Sprintf("%d bits, %d are required", d.Work, bits))
	}
	return nil
}

func checkDigest(tag, s string) error {
	if _, ok := parseHex32(s); !ok {
		return fault(BadDigest, tag)
	}
	return nil
}

// parseSeconds reads a non-negative decimal number without sign, leading zeros or blanks,
// so that a value has one spelling.
func parseSeconds(tag, s string) (int64, error) {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || n < 0 || strconv.FormatInt(n, 10) != s {
		return 0, fault(BadTag, tag+" is no number: "+strconv.Quote(s))
	}
	return n, nil
}

func at(t nostr.Tag, i int) string {
	if i < len(t) {
		return t[i]
	}
	return ""
}

func knownClass(c spec.Class) bool {
	_, ok := spec.C().Class(c)
	return ok
}
