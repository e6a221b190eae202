package identity

import (
	"encoding/json"
	"strconv"
	"time"

	"fleetmesh.org/fleetmesh/nostr"
)

// Document is a DID document. Marshalled, its members stand in the order below; for a user's identity
// it is what did:nostr prescribes, for a node the enhanced form of § Identity.
type Document struct {
	Context            []string             `json:"@context"`
	ID                 string               `json:"id"`
	Type               string               `json:"type,omitempty"`
	VerificationMethod []VerificationMethod `json:"verificationMethod"`
	Authentication     []string             `json:"authentication,omitempty"`
	AssertionMethod    []string             `json:"assertionMethod,omitempty"`
	KeyAgreement       []string             `json:"keyAgreement,omitempty"`
	Service            []Service            `json:"service,omitempty"`
	AlsoKnownAs        []string             `json:"alsoKnownAs,omitempty"`
	Profile            json.RawMessage      `json:"profile,omitempty"`
	Follows            []string             `json:"follows,omitempty"`
	Modified           string               `json:"modified,omitempty"`
}

// VerificationMethod is one key of a document.
type VerificationMethod struct {
	ID         string `json:"id"`
	Type       string `json:"type"`
	Controller string `json:"controller"`
	Multibase  string `json:"publicKeyMultibase"`
}

// Service is one endpoint of a document. Endpoint is a string or a DIDCommEndpoint.
type Service struct {
	ID       string `json:"id"`
	Type     string `json:"type"`
	Endpoint any    `json:"serviceEndpoint"`
}

// DIDCommEndpoint says where and through whom envelopes reach a node.
type DIDCommEndpoint struct {
	URI         string   `json:"uri"`
	Accept      []string `json:"accept"`
	RoutingKeys []string `json:"routingKeys,omitempty"`
}

var didContext = []string{"https://www.w3.org/ns/cid/v1", "https://w3id.org/nostr/context"}

// MinimalDocument is what a public key alone resolves to, offline.
func MinimalDocument(k nostr.PubKey) *Document {
	did := FormatDID(k)
	return &Document{
		Context: didContext,
		ID:      did,
		Type:    "DIDNostr",
		VerificationMethod: []VerificationMethod{
			{ID: did + "#key1", Type: "Multikey", Controller: did, Multibase: NodeMultikey(k)},
		},
		Authentication:  []string{"#key1"},
		AssertionMethod: []string{"#key1"},
	}
}

// UserFacts are what the kinds 0, 3 and 10002 of an ordinary identity add to its document.
type UserFacts struct {
	Relays      []string        // of kind 10002, in order
	AlsoKnownAs []string        // of kind 0
	Profile     json.RawMessage // chosen members of kind 0
	Follows     []nostr.PubKey  // of kind 3
	Modified    int64           // created_at of the newest of them, 0 if there is none
}

// UserDocument is the document of an identity that is no node: the minimal one and what its own events add.
func UserDocument(k nostr.PubKey, facts UserFacts) *Document {
	d := MinimalDocument(k)
	for i, r := range facts.Relays {
		d.Service = append(d.Service, Service{ID: d.ID + "#relay" + strconv.Itoa(i+1), Type: "Relay", Endpoint: r})
	}
	d.AlsoKnownAs = facts.AlsoKnownAs
	d.Profile = facts.Profile
	for _, f := range facts.Follows {
		d.Follows = append(d.Follows, FormatDID(f))
	}
	if facts.Modified > 0 {
		d.Modified = time.Unix(facts.Modified, 0).UTC().Format(time.RFC3339)
	}
	return d
}

// NodeDocument is the enhanced document of a node whose descriptor is live at now; of an expired
// one it is the minimal document, because a descriptor past its time says nothing.
func NodeDocument(desc *Descriptor, now int64) *Document {
	if !desc.LiveAt(now) {
		return MinimalDocument(desc.Subject)
	}
	did := FormatDID(desc.Subject)
	d := &Document{
		Context: didContext,
		ID:      did,
		VerificationMethod: []VerificationMethod{
			{ID: "#nostr", Type: "Multikey", Controller: did, Multibase: NodeMultikey(desc.Subject)},
		},
		Authentication:  []string{"#nostr"},
		AssertionMethod: []string{"#nostr"},
	}
	add := func(id string, n int, multibase string) string {
		if n > 0 {
			id += strconv.Itoa(n + 1)
		}
		d.VerificationMethod = append(d.VerificationMethod, VerificationMethod{ID: id, Type: "Multikey", Controller: did, Multibase: multibase})
		return id
	}
	live := 0
	for _, k := range desc.Agreement {
		if k.Expires != 0 && now >= k.Expires {
			continue
		}
		d.KeyAgreement = append(d.KeyAgreement, add("#agree", live, k.Key.Multikey()))
		live++
	}
	for i, k := range desc.Transport {
		add("#wire", i, k.Multikey())
	}
	d.Service = nodeServices(desc)
	return d
}

// serviceTypes are the services that endpoints of a scheme make.
var serviceTypes = map[string]struct{ id, kind string }{
	"wss":     {"#relay", "NostrRelay"},
	"blossom": {"#blossom", "BlossomServer"},
	"iroh":    {"#iroh", "IrohNode"},
	"libp2p":  {"#libp2p", "Libp2pNode"},
}

func nodeServices(desc *Descriptor) []Service {
	var out []Service
	if uri := didcommURI(desc); uri != "" {
		c := DIDCommEndpoint{URI: uri, Accept: []string{"didcomm/v2"}}
		for _, m := range desc.Mediators {
			c.RoutingKeys = append(c.RoutingKeys, FormatDID(m)+"#agree")
		}
		out = append(out, Service{ID: "#didcomm", Type: "DIDCommMessaging", Endpoint: c})
	}
	count := map[string]int{}
	for _, p := range desc.Endpoints {
		t, ok := serviceTypes[p.Scheme]
		if !ok {
			continue
		}
		id := t.id
		if n := count[p.Scheme]; n > 0 {
			id += strconv.Itoa(n + 1)
		}
		count[p.Scheme]++
		out = append(out, Service{ID: id, Type: t.kind, Endpoint: p.Address})
	}
	return out
}

// didcommURI is the most preferred address that takes envelopes over wss or https; a node that has
// none is addressed at its first mediator's DID, as DIDComm allows.
func didcommURI(desc *Descriptor) string {
	best := -1
	for i, p := range desc.Endpoints {
		if p.Scheme != "wss" && p.Scheme != "https" {
			continue
		}
		if best < 0 || p.Preference < desc.Endpoints[best].Preference {
			best = i
		}
	}
	if best >= 0 {
		return desc.Endpoints[best].Address
	}
	if len(desc.Mediators) > 0 {
		return FormatDID(desc.Mediators[0])
	}
	return ""
}
