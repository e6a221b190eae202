package relay

import (
	"encoding/json"
	"slices"

	"fleetmesh.org/fleetmesh/internal/policy"
	"fleetmesh.org/fleetmesh/nostr"
)

// Info is what the operator tells about the relay (NIP-11). Empty fields are left out.
type Info struct {
	Name           string
	Description    string
	Banner         string // URL
	Icon           string // URL
	PubKey         string // of the operator, hex
	Self           string // of the relay, hex
	Contact        string // URI
	Software       string // URL
	Version        string
	TermsOfService string // URL
}

// infoDocument is the NIP-11 document.
type infoDocument struct {
	Name           string     `json:"name,omitempty"`
	Description    string     `json:"description,omitempty"`
	Banner         string     `json:"banner,omitempty"`
	Icon           string     `json:"icon,omitempty"`
	PubKey         string     `json:"pubkey,omitempty"`
	Self           string     `json:"self,omitempty"`
	Contact        string     `json:"contact,omitempty"`
	SupportedNIPs  []int      `json:"supported_nips"`
	Software       string     `json:"software,omitempty"`
	Version        string     `json:"version,omitempty"`
	TermsOfService string     `json:"terms_of_service,omitempty"`
	Limitation     limitation `json:"limitation"`

	text []byte
}

type limitation struct {
	MaxMessageLength int    `json:"max_message_length"`
	MaxSubscriptions int    `json:"max_subscriptions"`
	MaxFilters       int    `json:"max_filters"`
	MaxLimit         int    `json:"max_limit"`
	DefaultLimit     int    `json:"default_limit"`
	MaxSubIDLength   int    `json:"max_subid_length"`
	MaxEventTags     int    `json:"max_event_tags,omitempty"`
	MaxContentLength int    `json:"max_content_length,omitempty"`
	MinPoW           int    `json:"min_pow_difficulty"`
	AuthRequired     bool   `json:"auth_required"`
	PaymentRequired  bool   `json:"payment_required"`
	RestrictedWrites bool   `json:"restricted_writes"`
	CreatedAtLower   int64  `json:"created_at_lower_limit,omitempty"`
	CreatedAtUpper   *int64 `json:"created_at_upper_limit,omitempty"`
}

// nips lists what is implemented and switched on. NIP-02, 44 and 65 ask little of relays but that their events are kept as they are;
// clients look for them all the same.
func (r *Relay) nips(d *policy.Demands) []int {
	off := &r.cfg.Off
	list := []int{1, 2, 9, 11, 40, 44, 62, 65, 70}
	if d.MinPoW > 0 {
		list = append(list, 13)
	}
	if !off.Auth {
		list = append(list, 42)
		if r.gate.Private(nostr.Kind(1059)) {
			list = append(list, 17, 59)
		}
	}
	if !off.Count {
		list = append(list, 45)
	}
	if !off.Search {
		list = append(list, 50)
	}
	if !off.Hints {
		list = append(list, 67)
	}
	if !off.Negentropy {
		list = append(list, 77)
	}
	slices.Sort(list)
	return list
}

// document derives the NIP-11 document from what is in force.
func (r *Relay) document() infoDocument {
	var d policy.Demands
	r.policy.Describe(&d)
	in, l := &r.cfg.Info, r.lim.Load()
	doc := infoDocument{
		Name: in.Name, Description: in.Description, Banner: in.Banner, Icon: in.Icon, PubKey: in.PubKey, Self: in.Self,
		Contact: in.Contact, Software: in.Software, Version: in.Version, TermsOfService: in.TermsOfService,
		SupportedNIPs: r.nips(&d),
		Limitation: limitation{
			MaxMessageLength: l.MaxMessageBytes, MaxSubscriptions: l.MaxSubscriptions, MaxFilters: l.MaxFilters,
			MaxLimit: l.MaxLimit, DefaultLimit: l.DefaultLimit, MaxSubIDLength: l.MaxSubIDLength,
			MaxEventTags: d.MaxTags, MaxContentLength: d.MaxContentRunes, MinPoW: d.MinPoW,
			AuthRequired:     r.cfg.AuthToRead && d.AuthToWrite,
			RestrictedWrites: d.RestrictedWrites || d.MinPoW > 0,
			CreatedAtLower:   d.OldestSeconds,
		},
	}
	if d.HasUpperBound {
		doc.Limitation.CreatedAtUpper = &d.NewestSeconds
	}
	text, err := json.Marshal(&doc)
	if err != nil {
		panic("relay: the information document always renders: " + err.Error())
	}
	doc.text = text
	return doc
}

// RefreshInfo derives the NIP-11 document anew, after the policy that the relay was made with began to demand something else.
func (r *Relay) RefreshInfo() {
	doc := r.document()
	r.info.Store(&doc)
}

// InfoDocument is the NIP-11 document as it is served. The caller must not change it.
func (r *Relay) InfoDocument() []byte { return r.info.Load().text }

// SupportedNIPs lists the NIPs that the document names, in ascending order.
func (r *Relay) SupportedNIPs() []int { return slices.Clone(r.info.Load().SupportedNIPs) }
