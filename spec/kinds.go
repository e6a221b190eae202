package spec

import (
	_ "embed"
	"fmt"
	"sync"

	"github.com/go-json-experiment/json"

	"fleetmesh.org/fleetmesh/nostr"
)

//go:embed kinds.json
var kindsJSON []byte

// The event kinds this protocol defines (§ Registration).
const (
	KindDescriptor      nostr.Kind = 11801 // § The node descriptor
	KindRevocation      nostr.Kind = 11802 // § Revocation
	KindComputeProvider nostr.Kind = 11803 // § Compute market, Wire formats
	KindHeartbeat       nostr.Kind = 21801 // § Liveness
	KindDiagnostics     nostr.Kind = 21802 // § What alpha is for measuring
	KindGrant           nostr.Kind = 30801 // § The grant
	KindReport          nostr.Kind = 30802 // § The report
	KindCoverage        nostr.Kind = 30803 // § Coverage
	KindGossipRoster    nostr.Kind = 30804 // § Gossip topic membership
	KindComputeAsk      nostr.Kind = 30810 // § Compute market, Wire formats
	KindComputeReceipt  nostr.Kind = 30811 // § Compute market, Wire formats
)

// Kinds of other specifications that a node publishes or reads for this
// protocol's sake (§ Ecosystem Bridges, § Which gift wrap, § Never replicated).
const (
	KindRelayStatus       nostr.Kind = 30166 // NIP-66, projection of the face
	KindRelayScore        nostr.Kind = 30385 // NIP-85, projection of a report
	KindSeal              nostr.Kind = 13    // NIP-59
	KindGiftWrap          nostr.Kind = 1059  // NIP-59
	KindEphemeralGiftWrap nostr.Kind = 21059 // NIP-59
	KindDMRelays          nostr.Kind = 10050 // NIP-17
)

// Content says what an event's content field holds.
type Content string

// The content forms.
const (
	ContentEmpty Content = "empty"
	ContentText  Content = "text"  // for people; may be empty
	ContentJSON  Content = "json"  // the text of a JSON object: KindSpec.ContentSchema
	ContentNIP44 Content = "nip44" // ciphertext; once decrypted, JSON: KindSpec.ContentSchema
)

// SchemaRef points to one schema file of this package. SHA256 is the digest of
// its canonical form without annotations (title, description, $comment,
// examples), so that the protocol digest covers what the schema says and not
// how it is worded.
type SchemaRef struct {
	File   string `json:"file"`
	SHA256 string `json:"sha256,omitzero"`
}

// TagSpec describes one tag of a kind. Values names the form of each value
// after the tag's name; the forms are those of docs/kinds.md.
type TagSpec struct {
	Name      string   `json:"name"`
	Values    []string `json:"values"`
	Repeat    bool     `json:"repeat,omitzero"`     // may occur more than once
	Variadic  bool     `json:"variadic,omitzero"`   // the last form may occur more than once
	MinValues int      `json:"min_values,omitzero"` // values that must be there; 0 is all of them
}

// KindSpec is one kind of kinds.json.
type KindSpec struct {
	Kind          nostr.Kind `json:"kind"`
	Name          string     `json:"name"`
	Class         string     `json:"class"` // replaceable, ephemeral or addressable
	Content       Content    `json:"content"`
	Schema        SchemaRef  `json:"schema"`                  // of the event object
	ContentSchema *SchemaRef `json:"content_schema,omitzero"` // of the object the content carries
	Required      []TagSpec  `json:"required"`
	Optional      []TagSpec  `json:"optional"`
}

type kindsFile struct {
	Kinds []KindSpec `json:"kinds"`
}

var kinds = sync.OnceValue(func() *kindsFile {
	f := new(kindsFile)
	if err := json.Unmarshal(kindsJSON, f, json.RejectUnknownMembers(true)); err != nil {
		panic(fmt.Sprintf("spec: kinds.json: %v", err)) // our own file
	}
	return f
})

// Kinds returns every kind of the protocol, ascending. The slice is shared: do
// not modify it.
func Kinds() []KindSpec { return kinds().Kinds }

// LookupKind returns the entry of kind k; ok is false for a kind that is not
// the protocol's own.
func LookupKind(k nostr.Kind) (spec *KindSpec, ok bool) {
	all := kinds().Kinds
	for i := range all {
		if all[i].Kind == k {
			return &all[i], true
		}
	}
	return nil, false
}
