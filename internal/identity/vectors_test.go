package identity

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"testing"

	"fleetmesh.org/fleetmesh/internal/vectors"
	"fleetmesh.org/fleetmesh/nostr"
	"fleetmesh.org/fleetmesh/spec"
)

const vectorNow = 1787000100

// vectorKeys are the keys of a vector's actor: each is SHA-256 of a sentence.
func vectorKeys(name string) *Keys {
	h := func(what string) [32]byte { return sha256.Sum256([]byte("fleetmesh vector " + what + " " + name)) }
	return &Keys{Node: nostr.SecretKey(h("node")), Agreement: AgreementSecret(h("agreement")), Transport: TransportSecret(h("transport"))}
}

func agentOf(t testing.TB, name string) *KeyAgent {
	a, err := NewKeyAgent(vectorKeys(name).Node)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func pubOf(name string) nostr.PubKey { return vectorKeys(name).Node.PubKey() }

// anchorDescriptor is a descriptor without a fault.
func anchorDescriptor(name string) *Descriptor {
	k := vectorKeys(name)
	return &Descriptor{
		Subject: k.Node.PubKey(), CreatedAt: 1787000000, About: "A relay for vectors.",
		Class: spec.ClassAnchor, Protocol: spec.ProtocolName, Digest: fmt.Sprintf("%064x", 1),
		Software: "https://fleetmesh.org", SoftwareVersion: "0.1.0",
		Agreement:    []BoundKey{{Key: k.Agreement.Public(), Expires: 1787500000}},
		Transport:    []TransportKey{k.Transport.Public()},
		Endpoints:    []Endpoint{{"libp2p", "/dnsaddr/relay.example.org", 20}, {"wss", "wss://relay.example.org", 40}},
		Protocols:    []string{"https://fleetmesh.org/peering/1.0", "https://fleetmesh.org/budget/1.0", "https://fleetmesh.org/sync/1.0"},
		Capabilities: []string{"relay", "mediator", "negentropy"}, NIPs: []string{"1", "11", "77"},
		PolicyDigest: fmt.Sprintf("%064x", 2), PolicyURL: "https://relay.example.org/policy.txt",
		Operator: pubOf(name + " operator"), Expiration: 1787604800,
	}
}

func leafDescriptor(name string) *Descriptor {
	d := anchorDescriptor(name)
	d.Class, d.Endpoints, d.Capabilities, d.Expiration = spec.ClassLeaf, nil, nil, 1787000000+86400
	d.Mediators = []nostr.PubKey{pubOf("one"), pubOf("two")}
	return d
}

func signed(t testing.TB, name string, e *nostr.Event) *nostr.Event {
	if err := SignEvent(agentOf(t, name), e); err != nil {
		t.Fatal(err)
	}
	return e
}

type descriptorInput struct {
	Event   json.RawMessage `json:"event"`
	Subject string          `json:"subject,omitempty"`
	Now     int64           `json:"now"`
	PoWBits int             `json:"pow_bits"`
}

// functions are the functions of spec/vectors/identity, by name.
var functions = map[string]vectors.Function{
	"descriptor": func(in json.RawMessage) (any, string) {
		var v descriptorInput
		mustUnmarshal(in, &v)
		e, err := nostr.ParseEvent(v.Event)
		if err != nil {
			return nil, "unparsable"
		}
		rules := Rules{Now: v.Now, PoWBits: v.PoWBits}
		if v.Subject != "" {
			k, err := ParseDID(v.Subject)
			if err != nil {
				return nil, string(CodeOf(err))
			}
			rules.Subject = &k
		}
		d, err := CheckDescriptor(e, rules)
		if err != nil {
			return nil, string(CodeOf(err))
		}
		agree, _ := d.AgreementAt(v.Now)
		return map[string]any{"did": FormatDID(d.Subject), "class": d.Class, "agreement": agree.Multikey(),
			"endpoints_digest": EndpointsDigest(d.Endpoints), "document": NodeDocument(d, v.Now)}, ""
	},
	"transport": func(in json.RawMessage) (any, string) { // is the dialler the node that the descriptor names?
		var v struct {
			Event json.RawMessage
			Key   string
			Now   int64
		}
		mustUnmarshal(in, &v)
		e, err := nostr.ParseEvent(v.Event)
		if err != nil {
			return nil, "unparsable"
		}
		d, err := ParseDescriptor(e)
		if err != nil {
			return nil, string(CodeOf(err))
		}
		m, err := ParseMultikey(v.Key)
		if err != nil {
			return nil, string(CodeOf(err))
		}
		k, ok := m.Transport()
		if !ok {
			return nil, string(BadMultikey)
		}
		if err := d.BindTransport(k, v.Now); err != nil {
			return nil, string(CodeOf(err))
		}
		return FormatDID(d.Subject), ""
	},
	"revocation": func(in json.RawMessage) (any, string) {
		e, subject := eventOf(in)
		r, err := CheckRevocation(e, subject, false)
		if err != nil {
			return nil, string(CodeOf(err))
		}
		out := map[string]any{"subject": FormatDID(r.Subject), "reason": r.Reason}
		if r.Successor != (nostr.PubKey{}) {
			out["successor"] = FormatDID(r.Successor)
		}
		return out, ""
	},
	"heartbeat": func(in json.RawMessage) (any, string) {
		var v struct{ Event, Descriptor json.RawMessage }
		mustUnmarshal(in, &v)
		e, err1 := nostr.ParseEvent(v.Event)
		de, err2 := nostr.ParseEvent(v.Descriptor)
		if err1 != nil || err2 != nil {
			return nil, "unparsable"
		}
		d, err := ParseDescriptor(de)
		if err != nil {
			return nil, string(CodeOf(err))
		}
		h, err := ParseHeartbeat(e)
		if err != nil {
			return nil, string(CodeOf(err))
		}
		if err := h.Against(d); err != nil {
			return nil, string(CodeOf(err))
		}
		return map[string]any{"class": h.Class}, ""
	},
	"coverage": func(in json.RawMessage) (any, string) {
		e, _ := eventOf(in)
		c, err := ParseCoverage(e)
		if err != nil {
			return nil, string(CodeOf(err))
		}
		return map[string]any{"shard": c.Shard, "completeness": c.Completeness, "count": c.Count}, ""
	},
	"roster": func(in json.RawMessage) (any, string) {
		e, _ := eventOf(in)
		r, err := ParseRoster(e)
		if err != nil {
			return nil, string(CodeOf(err))
		}
		return map[string]any{"admin": FormatDID(r.Admin), "topic": r.Topic, "members": len(r.Members)}, ""
	},
	"multikey": func(in json.RawMessage) (any, string) {
		var s string
		mustUnmarshal(in, &s)
		m, err := ParseMultikey(s)
		if err != nil {
			return nil, string(CodeOf(err))
		}
		return map[string]any{"curve": m.Curve, "key": hex.EncodeToString(m.Key), "base16": m.Base16(), "base58": m.Base58()}, ""
	},
	"did": func(in json.RawMessage) (any, string) {
		var s string
		mustUnmarshal(in, &s)
		k, fragment, err := ParseDIDURL(s)
		if err != nil {
			return nil, string(CodeOf(err))
		}
		return map[string]any{"key": k.String(), "fragment": fragment}, ""
	},
	"did-peer": func(in json.RawMessage) (any, string) {
		var s string
		mustUnmarshal(in, &s)
		d, err := ParseDIDPeer(s)
		if err != nil {
			return nil, string(CodeOf(err))
		}
		return d, ""
	},
	"did-key": func(in json.RawMessage) (any, string) {
		var s string
		mustUnmarshal(in, &s)
		m, err := ParseDIDKey(s)
		if err != nil {
			return nil, string(CodeOf(err))
		}
		return KeyDocument(m), ""
	},
	"derive": func(in json.RawMessage) (any, string) {
		var v struct {
			Node, Role string
			Counter    uint32
		}
		mustUnmarshal(in, &v)
		k, err := nostr.ParseSecretKey(v.Node)
		if err != nil {
			return nil, "unparsable"
		}
		out := Derive(k, Role(v.Role), v.Counter)
		return hex.EncodeToString(out[:]), ""
	},
	"endpoints-digest": func(in json.RawMessage) (any, string) {
		var v []Endpoint
		mustUnmarshal(in, &v)
		return EndpointsDigest(v), ""
	},
}

func mustUnmarshal(in []byte, v any) {
	if err := json.Unmarshal(in, v); err != nil {
		panic(err)
	}
}

func eventOf(in json.RawMessage) (*nostr.Event, *nostr.PubKey) {
	var v struct {
		Event   json.RawMessage
		Subject string
	}
	mustUnmarshal(in, &v)
	e, err := nostr.ParseEvent(v.Event)
	if err != nil {
		panic(err)
	}
	if v.Subject == "" {
		return e, nil
	}
	k, err := ParseDID(v.Subject)
	if err != nil {
		panic(err)
	}
	return e, &k
}

func TestVectors(t *testing.T) { vectors.Check(t, "identity", functions, drafts(t)) }

func drafts(t *testing.T) []vectors.Draft {
	return slices.Concat(descriptorDrafts(t), eventDrafts(t), keyDrafts())
}

// broken is a way to break the anchor's or the leaf's descriptor.
type broken struct {
	code  Code
	about string
	fix   func(d *Descriptor)       // before the event is built
	tag   func(e *nostr.Event)      // after, before signing
	after func(e *nostr.Event)      // after signing
	in    func(in *descriptorInput) // what the reader knows
	leaf  bool
	name  string // beside the code, where one code has several cases
}

func dropTag(name string, n int) func(e *nostr.Event) {
	return func(e *nostr.Event) {
		kept := e.Tags[:0:0]
		for _, t := range e.Tags {
			if t[0] == name && n != 0 {
				n--
				continue
			}
			kept = append(kept, t)
		}
		e.Tags = kept
	}
}

func addTag(t ...string) func(e *nostr.Event) {
	return func(e *nostr.Event) { e.Tags = append(e.Tags, nostr.Tag(t)) }
}

func setTag(name string, values ...string) func(e *nostr.Event) {
	return func(e *nostr.Event) {
		for i, t := range e.Tags {
			if t[0] == name {
				e.Tags[i] = append(nostr.Tag{name}, values...)
				return
			}
		}
	}
}

func dropC(uri string) func(e *nostr.Event) {
	return func(e *nostr.Event) {
		e.Tags = slices.DeleteFunc(e.Tags, func(t nostr.Tag) bool { return t[0] == "c" && t[1] == uri })
	}
}

const offCurveX = "0000000000000000000000000000000000000000000000000000000000000005" // x = 5 is on no point

var brokenDescriptors = []broken{
	{code: WrongKind, about: "Another kind is no descriptor.", tag: func(e *nostr.Event) { e.Kind = 11803 }},
	{code: WrongSubject, about: "A resolver asked for another DID.", in: func(in *descriptorInput) { in.Subject = FormatDID(pubOf("two")) }},
	{code: BadSignature, about: "The id fits, the signature is another event's.", after: func(e *nostr.Event) { e.Sig[40] ^= 1 }},
	{code: NoProtocol, about: "Without a protocol tag it is no fleetmesh descriptor.", tag: dropTag("protocol", 1)},
	{code: BadDigest, name: "protocol", about: "The schema digest is abbreviated.", tag: setTag("protocol", spec.ProtocolName, "6d8c8126a619e25c")},
	{code: BadDigest, name: "policy", about: "The policy digest is in upper case.", tag: setTag("policy", "ABCDEF0123456789ABCDEF0123456789ABCDEF0123456789ABCDEF0123456789", "https://example.org")},
	{code: NoClass, about: "No class.", tag: dropTag("class", 1)},
	{code: UnknownClass, about: "A class this version does not define.", tag: setTag("class", "hub")},
	{code: DuplicateTag, about: "Two classes contradict each other, even where they are alike.", tag: addTag("class", "anchor")},
	{code: NoExpiration, about: "An expiration is mandatory.", tag: dropTag("expiration", 1)},
	{code: BadTag, name: "expiration", about: "A number has one spelling: no sign, no leading zero.", tag: setTag("expiration", "01787604800")},
	{code: BadTag, name: "endpoint", about: "An endpoint without an address.", tag: addTag("endpoint", "wss")},
	{code: Expired, about: "The second of the expiration is already too late.", in: func(in *descriptorInput) { in.Now = 1787604800 }},
	{code: Overlong, name: "anchor", about: "31 days for an anchor.", fix: func(d *Descriptor) { d.Expiration = d.CreatedAt + 31*86400; d.Agreement[0].Expires = 0 }},
	{code: Overlong, name: "leaf", about: "25 hours for a leaf.", leaf: true, fix: func(d *Descriptor) { d.Expiration = d.CreatedAt + 25*3600 }},
	{code: NotYet, about: "Made 61 s in the reader's future.", in: func(in *descriptorInput) { in.Now = 1787000000 - 61 }},
	{code: NoAgreement, about: "Nobody could write to the node.", fix: func(d *Descriptor) { d.Agreement = nil }},
	{code: StaleAgreement, about: "Every agreement key is past its time.", in: func(in *descriptorInput) { in.Now = 1787500000 }},
	{code: NoTransport, about: "No transport key.", fix: func(d *Descriptor) { d.Transport = nil }},
	{code: BadMultikey, name: "base58", about: "A descriptor never mixes bases: base58 is refused.", tag: addTag("key", "agreement", "z6LSeu9HkTHSfLLeUs2nnzUSNedgDUevfNQgQjQC23ZCit6F")},
	{code: BadMultikey, name: "codec", about: "An agreement key under the Ed25519 codec.", tag: addTag("key", "agreement", vectorKeys("one").Transport.Public().Multikey())},
	{code: BadMultikey, name: "short", about: "A key of 31 octets.", tag: addTag("key", "transport", "fed01"+fmt.Sprintf("%062x", 9))},
	{code: OffCurve, name: "operator", about: "The operator's key is no point of secp256k1.", tag: setTag("operator", offCurveX)},
	{code: OffCurve, name: "transport", about: "An Ed25519 key whose y has no x.", tag: addTag("key", "transport", "fed01"+"02"+fmt.Sprintf("%062x", 0))},
	{code: OffCurve, name: "transport-small-order", about: "The neutral point would verify signatures nobody made.", tag: addTag("key", "transport", "fed01"+"01"+fmt.Sprintf("%062x", 0))},
	{code: OffCurve, name: "agreement-small-order", about: "An X25519 key of small order agrees on zero with everybody.", tag: addTag("key", "agreement", "fec01"+fmt.Sprintf("%064x", 0))},
	{code: NoPeering, about: "peering is required.", tag: dropC("https://fleetmesh.org/peering/1.0")},
	{code: NoBudget, about: "budget is required.", tag: dropC("https://fleetmesh.org/budget/1.0")},
	{code: AnchorNoWSS, about: "An anchor has a public wss endpoint.", fix: func(d *Descriptor) { d.Endpoints = d.Endpoints[:1] }},
	{code: ClassMediates, about: "Only anchors mediate.", fix: func(d *Descriptor) { d.Class = spec.ClassEdge }},
	{code: LeafEndpoint, about: "A leaf has no inbound door.", leaf: true, fix: func(d *Descriptor) { d.Endpoints = []Endpoint{{"wss", "wss://leaf.example.org", 1}} }},
	{code: LeafNoMediator, about: "A leaf without a mediator cannot be reached.", leaf: true, fix: func(d *Descriptor) { d.Mediators = nil }},
	{code: LeafCoverage, about: "A leaf claims no coverage.", leaf: true, fix: func(d *Descriptor) { d.Coverage = fmt.Sprintf("%064x", 3) }},
	{code: SelfMediator, about: "A node cannot be its own mediator.", leaf: true, fix: func(d *Descriptor) { d.Mediators = []nostr.PubKey{d.Subject} }},
	{code: NoPoW, about: "Work is required, and no nonce commits to any.", in: func(in *descriptorInput) { in.PoWBits = 8 }},
	{code: UncommittedPoW, about: "The nonce commits to less than is required, so luck does not count.", tag: addTag("nonce", "1", "4"), in: func(in *descriptorInput) { in.PoWBits = 8 }},
	{code: ShortPoW, about: "The nonce promises 200 bits, the id does not keep them.", tag: addTag("nonce", "1", "200"), in: func(in *descriptorInput) { in.PoWBits = 200 }},
}

func descriptorDrafts(t *testing.T) []vectors.Draft {
	var out []vectors.Draft
	add := func(name, about string, refuse Code, e *nostr.Event, in descriptorInput) {
		in.Event = e.JSON()
		if in.Now == 0 {
			in.Now = vectorNow
		}
		out = append(out, vectors.Draft{Name: "descriptor-" + name, About: about, Layer: "identity", Function: "descriptor", Refuse: string(refuse), Input: in})
	}
	add("anchor", "An anchor's descriptor without a fault, and its document.", "", signed(t, "one", anchorDescriptor("one").Event()), descriptorInput{Subject: FormatDID(pubOf("one"))})
	add("leaf", "A leaf's descriptor without a fault.", "", signed(t, "leaf", leafDescriptor("leaf").Event()), descriptorInput{})
	mined := anchorDescriptor("one").Event()
	if _, done, err := Mine(mined, 8, 0, 1<<20); !done || err != nil {
		t.Fatal("mine", done, err)
	}
	add("mined", "Eight bits of work, committed to and done.", "", signed(t, "one", mined), descriptorInput{PoWBits: 8})
	add("unknown-tag", "A tag of a later version is no fault.", "", func() *nostr.Event {
		e := anchorDescriptor("one").Event()
		e.Tags = append(e.Tags, nostr.Tag{"later", "x"}, nostr.Tag{"key", "attestation", "z"})
		return signed(t, "one", e)
	}(), descriptorInput{})
	wire := func(name, about string, refuse Code, key string, now int64) {
		out = append(out, vectors.Draft{Name: "transport-" + name, About: about, Layer: "identity", Function: "transport", Refuse: string(refuse),
			Input: map[string]any{"event": json.RawMessage(signed(t, "one", anchorDescriptor("one").Event()).JSON()), "key": key, "now": now}})
	}
	wire("bound", "The key that dialled is the one the descriptor names.", "", vectorKeys("one").Transport.Public().Multikey(), vectorNow)
	wire("unknown", "A key that no descriptor names comes from an unknown node.", UnknownWire, vectorKeys("two").Transport.Public().Multikey(), vectorNow)
	wire("expired", "An expired descriptor binds nothing.", Expired, vectorKeys("one").Transport.Public().Multikey(), 1787604800)
	for _, b := range brokenDescriptors {
		d, who := anchorDescriptor("one"), "one"
		if b.leaf {
			d, who = leafDescriptor("leaf"), "leaf"
		}
		if b.fix != nil {
			b.fix(d)
		}
		e := d.Event()
		if b.tag != nil {
			b.tag(e)
		}
		signed(t, who, e)
		if b.after != nil {
			b.after(e)
		}
		var in descriptorInput
		if b.in != nil {
			b.in(&in)
		}
		name := string(b.code)
		if b.name != "" {
			name += "-" + b.name
		}
		add(name, b.about, b.code, e, in)
	}
	return out
}

type eventInput struct {
	Event      json.RawMessage `json:"event"`
	Subject    string          `json:"subject,omitempty"`
	Descriptor json.RawMessage `json:"descriptor,omitempty"`
}

func eventDrafts(t *testing.T) []vectors.Draft {
	var out []vectors.Draft
	add := func(function, name, about string, refuse Code, e *nostr.Event, in eventInput) {
		in.Event = e.JSON()
		out = append(out, vectors.Draft{Name: function + "-" + name, About: about, Layer: "identity", Function: function, Refuse: string(refuse), Input: in})
	}
	revoke := func(r *Revocation, who string) *nostr.Event { return signed(t, who, r.Event()) }
	r := &Revocation{Subject: pubOf("one"), At: 1787000000, Reason: KeyCompromise, Successor: pubOf("two"), Note: "Host lost."}
	add("revocation", "successor", "The successor is named and inherits nothing.", "", revoke(r, "one"), eventInput{Subject: FormatDID(pubOf("one"))})
	add("revocation", "wrong-subject", "Nobody revokes another's key.", WrongSubject, revoke(r, "two"), eventInput{Subject: FormatDID(pubOf("one"))})
	self := &Revocation{Subject: pubOf("one"), At: 1787000000, Reason: Retired, Successor: pubOf("one")}
	add("revocation", "bad-successor", "A successor that makes no sense is dropped; the revocation stands.", "", revoke(self, "one"), eventInput{})
	forged := revoke(r, "one")
	forged.Sig[3] ^= 1
	add("revocation", "bad-signature", "A forged revocation revokes nothing.", BadSignature, forged, eventInput{})

	d := anchorDescriptor("one")
	desc := signed(t, "one", d.Event()).JSON()
	beat := func(class spec.Class, digest string) *nostr.Event {
		return signed(t, "one", (&Heartbeat{Subject: pubOf("one"), At: vectorNow, Class: class, Endpoints: digest, Load: "0.42"}).Event())
	}
	add("heartbeat", "matches", "Class and endpoint digest are the descriptor's.", "", beat(spec.ClassAnchor, EndpointsDigest(d.Endpoints)), eventInput{Descriptor: desc})
	add("heartbeat", "class-mismatch", "A heartbeat that contradicts the live descriptor is a misreport.", ClassMismatch, beat(spec.ClassEdge, ""), eventInput{Descriptor: desc})
	add("heartbeat", "stale-endpoints", "The node serves other doors than its descriptor lists.", StaleEndpoints, beat(spec.ClassAnchor, EndpointsDigest(d.Endpoints[:1])), eventInput{Descriptor: desc})
	add("heartbeat", "leaf", "A leaf does not announce its waking hours.", LeafHeartbeat, beat(spec.ClassLeaf, ""), eventInput{Descriptor: desc})

	c := &Coverage{Subject: pubOf("one"), At: vectorNow, Shard: "town-2026", Filter: nostr.Filter{Kinds: []nostr.Kind{0, 1}}, Since: 1751328000, Until: 1767225600,
		Completeness: Asserted, Fingerprint: "00112233445566778899aabbccddeeff", FingerprintAt: vectorNow, Count: 418902}
	add("coverage", "asserted", "A falsifiable claim.", "", signed(t, "one", c.Event()), eventInput{})
	vague := *c
	vague.Completeness = "mostly"
	add("coverage", "completeness", "Neither asserted nor best-effort.", BadCompleteness, signed(t, "one", vague.Event()), eventInput{})
	noFilter := c.Event()
	dropTag("filter", 1)(noFilter)
	add("coverage", "no-filter", "A shard is a filter and a range.", BadShard, signed(t, "one", noFilter), eventInput{})
	badFP := *c
	badFP.Fingerprint = "00112233"
	add("coverage", "fingerprint", "A fingerprint has 16 octets.", BadTag, signed(t, "one", badFP.Event()), eventInput{})

	ro := &Roster{Admin: pubOf("one"), At: vectorNow, Topic: "town-ops", Members: []nostr.PubKey{pubOf("two"), pubOf("three")}, Expiration: 1790000000}
	add("roster", "members", "Two members.", "", signed(t, "one", ro.Event()), eventInput{})
	add("roster", "shadow", "Another key cannot shadow a roster.", BadRoster, signed(t, "two", ro.Event()), eventInput{})
	badMember := ro.Event()
	addTag("member", offCurveX)(badMember)
	add("roster", "bad-member", "A member that is no key.", BadMember, signed(t, "one", badMember), eventInput{})
	open := ro.Event()
	dropTag("expiration", 1)(open)
	add("roster", "no-expiration", "A roster ends.", NoExpiration, signed(t, "one", open), eventInput{})
	return out
}

func keyDrafts() []vectors.Draft {
	k := vectorKeys("one")
	var out []vectors.Draft
	add := func(function, name, about string, refuse Code, in any) {
		out = append(out, vectors.Draft{Name: function + "-" + name, About: about, Layer: "identity", Function: function, Refuse: string(refuse), Input: in})
	}
	add("multikey", "node", "A node key, even parity.", "", NodeMultikey(k.Node.PubKey()))
	add("multikey", "agreement", "X25519.", "", k.Agreement.Public().Multikey())
	add("multikey", "transport", "Ed25519.", "", k.Transport.Public().Multikey())
	add("multikey", "upper-case", "Upper-case digits are another multibase.", BadMultikey, "fEC01"+hex.EncodeToString(make([]byte, 31))+"09")
	add("multikey", "upper-base", "F is another multibase.", BadMultikey, "FE70102124C0FA99407182ECE5A24FAD9B7F6674902FC422843D3128D38A0AFBEE0FDD2")
	add("multikey", "codec", "A codec that no node uses.", BadMultikey, "f8024"+fmt.Sprintf("%064x", 9))
	add("did", "plain", "A DID.", "", FormatDID(k.Node.PubKey()))
	add("did", "fragment", "A key of a DID.", "", FormatDID(k.Node.PubKey())+"#agree")
	add("did", "upper-case", "DIDs are compared octet by octet.", BadDID, "did:nostr:124C0FA99407182ECE5A24FAD9B7F6674902FC422843D3128D38A0AFBEE0FDD2")
	add("did", "off-curve", "x = 5 is on no point.", OffCurve, "did:nostr:"+offCurveX)
	add("did", "method", "Another method.", BadDID, "did:web:example.org")
	p2, err := NewDIDPeer2(k.Transport.Public(), k.Agreement.Public(), "wss://relay.example.org", []string{FormatDID(k.Node.PubKey()) + "#agree"})
	if err != nil {
		panic(err)
	}
	p4, err := NewDIDPeer4(MinimalDocument(k.Node.PubKey()))
	if err != nil {
		panic(err)
	}
	add("did-peer", "2", "Keys and a service spelled out.", "", p2)
	add("did-peer", "4", "A document and its hash.", "", p4)
	add("did-peer", "4-changed", "The document is not the hash's.", BadPeerDID, p4[:len(p4)-1]+"1")
	add("did-peer", "4-short", "A short form resolves only where the long one is known.", BadPeerDID, ShortDIDPeer4(p4))
	add("did-peer", "2-purpose", "A purpose nobody defined.", BadPeerDID, "did:peer:2.X"+k.Transport.Public().Multikey())
	agree := k.Agreement.Public()
	wire := k.Transport.Public()
	add("did-key", "agreement", "An X25519 key agrees and signs nothing.", "", FormatDIDKey(Multikey{X25519, agree[:]}))
	add("did-key", "transport", "An Ed25519 key signs and agrees on nothing.", "", FormatDIDKey(Multikey{Ed25519, wire[:]}))
	add("did-key", "base16", "The same key under the other multibase resolves to the one DID.", "", "did:key:"+wire.Multikey()+"#"+wire.Multikey())
	add("did-key", "fragment", "A fragment that is another key.", BadDID, "did:key:"+wire.Multikey()+"#"+agree.Multikey())
	add("did-key", "method", "Another method.", BadDID, FormatDID(k.Node.PubKey()))
	add("did-key", "short", "A key of the wrong length.", BadMultikey, "did:key:"+wire.Multikey()[:20])
	for _, role := range []Role{RoleAgreement, RoleTransport} {
		for counter := range uint32(2) {
			add("derive", fmt.Sprintf("%s-%d", role, counter), "HKDF at provisioning.", "",
				map[string]any{"node": hex.EncodeToString(k.Node[:]), "role": role, "counter": counter})
		}
	}
	add("endpoints-digest", "sorted", "Order and preference do not matter, repeats count once.", "",
		[]Endpoint{{"wss", "wss://b.example.org", 1}, {"iroh", "ticket", 9}, {"wss", "wss://a.example.org", 5}, {"iroh", "ticket", 2}})
	add("endpoints-digest", "none", "No endpoint.", "", []Endpoint{})
	return out
}
