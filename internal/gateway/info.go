package gateway

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"mime"
	"net/http"
	"slices"
	"strings"

	"fleetmesh.org/fleetmesh/nostr"
)

// Info is a relay's information document (NIP-11), as far as a client needs it.
type Info struct {
	Name          string     `json:"name"`
	Description   string     `json:"description"`
	PubKey        string     `json:"pubkey"`
	Self          string     `json:"self"`
	Contact       string     `json:"contact"`
	SupportedNIPs []int      `json:"-"`
	Software      string     `json:"software"`
	Version       string     `json:"version"`
	Limitation    Limitation `json:"limitation"`

	CORS bool `json:"-"` // the answer allowed any origin
}

// Limitation is the limitation block of NIP-11. Zero is "not said".
type Limitation struct {
	MaxMessageLength    int64 `json:"max_message_length"`
	MaxSubscriptions    int   `json:"max_subscriptions"`
	MaxLimit            int   `json:"max_limit"`
	DefaultLimit        int   `json:"default_limit"`
	MaxSubIDLength      int   `json:"max_subid_length"`
	MaxEventTags        int   `json:"max_event_tags"`
	MaxContentLength    int   `json:"max_content_length"`
	MinPoWDifficulty    int   `json:"min_pow_difficulty"`
	AuthRequired        bool  `json:"auth_required"`
	PaymentRequired     bool  `json:"payment_required"`
	RestrictedWrites    bool  `json:"restricted_writes"`
	CreatedAtLowerLimit int64 `json:"created_at_lower_limit"`
	CreatedAtUpperLimit int64 `json:"created_at_upper_limit"`
}

// Supports says whether the document advertises a NIP.
func (i *Info) Supports(nip int) bool { return slices.Contains(i.SupportedNIPs, nip) }

// maxInfo bounds an information document, in octets.
const maxInfo = 1 << 20

// FetchInfo gets the information document from the relay's URL (NIP-11).
func FetchInfo(ctx context.Context, relay string, o Options) (*Info, error) {
	o.fill()
	norm, err := nostr.NormalizeRelayURL(relay)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrURL, err)
	}
	ctx, cancel := context.WithTimeout(ctx, o.DialTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http"+strings.TrimPrefix(norm, "ws"), nil)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrURL, err)
	}
	for k, v := range o.Header {
		req.Header[k] = v
	}
	req.Header.Set("Accept", "application/nostr+json")
	resp, err := o.Client.Do(req)
	if err != nil {
		return nil, fmt.Errorf("get the information document: %w", err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("get the information document: the server answered %s", resp.Status)
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxInfo))
	if err != nil {
		return nil, fmt.Errorf("read the information document: %w", err)
	}
	info, err := ParseInfo(body)
	if err != nil {
		kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
		return nil, fmt.Errorf("%w (content type %q)", err, kind)
	}
	info.CORS = resp.Header.Get("Access-Control-Allow-Origin") != ""
	return info, nil
}

// ParseInfo reads an information document. Fields of the wrong type are read as absent, one by one: relays get
// them wrong in many ways, and one bad field should not hide the others.
func ParseInfo(b []byte) (*Info, error) {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(b, &fields); err != nil || fields == nil {
		return nil, fmt.Errorf("the information document is not a JSON object")
	}
	info := new(Info)
	for name, to := range map[string]any{
		"name": &info.Name, "description": &info.Description, "pubkey": &info.PubKey, "self": &info.Self,
		"contact": &info.Contact, "software": &info.Software, "version": &info.Version,
	} {
		lenient(fields[name], to)
	}
	var nips []json.RawMessage
	lenient(fields["supported_nips"], &nips)
	for _, raw := range nips {
		var n int
		if lenient(raw, &n) {
			info.SupportedNIPs = append(info.SupportedNIPs, n)
		}
	}
	l := &info.Limitation
	var limits map[string]json.RawMessage
	lenient(fields["limitation"], &limits)
	for name, to := range map[string]any{
		"max_message_length": &l.MaxMessageLength, "max_subscriptions": &l.MaxSubscriptions, "max_limit": &l.MaxLimit,
		"default_limit": &l.DefaultLimit, "max_subid_length": &l.MaxSubIDLength, "max_event_tags": &l.MaxEventTags,
		"max_content_length": &l.MaxContentLength, "min_pow_difficulty": &l.MinPoWDifficulty,
		"auth_required": &l.AuthRequired, "payment_required": &l.PaymentRequired, "restricted_writes": &l.RestrictedWrites,
		"created_at_lower_limit": &l.CreatedAtLowerLimit, "created_at_upper_limit": &l.CreatedAtUpperLimit,
	} {
		lenient(limits[name], to)
	}
	return info, nil
}

func lenient(raw json.RawMessage, to any) bool {
	return len(raw) > 0 && json.Unmarshal(raw, to) == nil
}
