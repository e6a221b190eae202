package blossom

import (
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"

	"fleetmesh.org/fleetmesh/nostr"
)

// Kinds of the BUDs.
const (
	KindToken      nostr.Kind = 24242 // authorization (BUD-11)
	KindServerList nostr.Kind = 10063 // a user's servers (BUD-03)
	kindReport     nostr.Kind = 1984  // NIP-56
)

// Verb is what a token allows (BUD-11).
type Verb string

// The verbs.
const (
	VerbGet    Verb = "get"
	VerbUpload Verb = "upload"
	VerbList   Verb = "list"
	VerbDelete Verb = "delete"
	VerbMedia  Verb = "media"
)

const (
	// maxToken is the longest Authorization header that is read: enough for one token that lists two thousand
	// blobs to delete.
	maxToken = 256 << 10
	// clockSkew is by how many seconds a client's clock may be ahead.
	clockSkew = 60
)

// Token is an authorization event as a server needs it (BUD-11). It may be used for every hash that it lists, as
// often as its holder likes, until it expires.
type Token struct {
	PubKey  nostr.PubKey
	Created int64 // unix seconds
	Expires int64 // unix seconds
	Verbs   []string
	Hashes  []Hash   // x tags
	Servers []string // server tags: lower-case names
}

// Covers tells whether the token lists a blob.
func (t *Token) Covers(h Hash) bool { return slices.Contains(t.Hashes, h) }

// ParseToken reads an Authorization header: the scheme Nostr and an event of kind 24242 in base64, with or without
// padding and in either alphabet, because clients differ. It does not look at the signature. Errors are sentences for the client.
func ParseToken(header string) (*Token, *nostr.Event, error) {
	if len(header) > maxToken {
		return nil, nil, fmt.Errorf("the Authorization header is longer than %d bytes", maxToken)
	}
	scheme, text, _ := strings.Cut(strings.TrimSpace(header), " ")
	if !strings.EqualFold(scheme, "Nostr") {
		return nil, nil, errors.New("the Authorization header has another scheme than Nostr")
	}
	text = strings.TrimRight(strings.TrimSpace(text), "=")
	text = strings.NewReplacer("+", "-", "/", "_").Replace(text)
	raw, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil {
		return nil, nil, errors.New("the Authorization header holds no base64")
	}
	e, err := nostr.ParseEvent(raw)
	if err != nil {
		return nil, nil, fmt.Errorf("the authorization event cannot be read: %w", err)
	}
	if e.Kind != KindToken {
		return nil, nil, fmt.Errorf("the authorization event has kind %d, want %d", e.Kind, KindToken)
	}
	t := &Token{PubKey: e.PubKey, Created: e.CreatedAt, Verbs: slices.Collect(e.TagValues("t"))}
	var ok bool
	if t.Expires, ok = e.Expiration(); !ok {
		return nil, nil, errors.New("the authorization event has no expiration")
	}
	for x := range e.TagValues("x") {
		if h, err := ParseHash(x); err == nil { // what is no hash covers nothing
			t.Hashes = append(t.Hashes, h)
		}
	}
	for s := range e.TagValues("server") {
		t.Servers = append(t.Servers, hostName(s))
	}
	return t, e, nil
}

// hostName brings a server tag into the form of BUD-11, a lower-case name; older clients write the whole URL there.
func hostName(s string) string {
	s = strings.ToLower(strings.TrimSpace(s))
	if _, rest, ok := strings.Cut(s, "://"); ok {
		s = rest
	}
	if i := strings.IndexAny(s, "/?#"); i >= 0 {
		s = s[:i]
	}
	if host, _, err := net.SplitHostPort(s); err == nil {
		s = host
	}
	return strings.Trim(s, "[]")
}

// check tells why a token does not allow a verb on a server with these names at the unix second now.
func (t *Token) check(verb Verb, hosts []string, now int64) error {
	switch {
	case t.Created > now+clockSkew:
		return errors.New("the authorization event is dated in the future")
	case t.Expires <= now:
		return errors.New("the authorization event has expired")
	case !slices.Contains(t.Verbs, string(verb)):
		return fmt.Errorf("the authorization event is not for the verb %q", verb)
	case len(t.Servers) > 0 && !slices.ContainsFunc(t.Servers, func(s string) bool { return slices.Contains(hosts, s) }):
		return errors.New("the authorization event is for other servers")
	}
	return nil
}
