package ledger

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"fleetmesh.org/fleetmesh/internal/identity"
	"fleetmesh.org/fleetmesh/nostr"
	"fleetmesh.org/fleetmesh/spec"
)

// SubjectType says what a grant is about.
type SubjectType string

// A grant bounds a node's traffic or says whether an author's events are welcome.
const (
	NodeSubject   SubjectType = "node"
	AuthorSubject SubjectType = "author"
)

// Grant is the budget that an issuer gives a subject: what kind 30801 carries encrypted, and
// the public frame it stands in.
type Grant struct {
	// From the event that carries it; zero in a grant that was not sealed yet.
	ID        nostr.ID
	Issuer    nostr.PubKey
	CreatedAt int64

	// Public frame.
	Window     int64 // seconds
	Expiration int64 // unix seconds

	// Encrypted.
	Subject        nostr.PubKey
	SubjectType    SubjectType
	Tier           spec.Tier
	Limits         Limits // node grants: every limit of the table
	Scopes         []Scope
	ReceiptSeconds int64 // a receipt every so many seconds
	ReceiptBytes   int64 // or so many octets, whichever comes first
	Author         *AuthorEntry
	Blinding       [32]byte
}

// NewGrant is a node grant as it opens: the tier's opening limits, the default window, cadence
// and lifetime. Seeded grants set Limits to Seeded(tier).
func NewGrant(issuer, subject nostr.PubKey, tier spec.Tier, scopes []Scope, at int64) *Grant {
	c := spec.C()
	return &Grant{
		Issuer: issuer, CreatedAt: at, Window: c.Window.DefaultSeconds, Expiration: at + c.Lifetimes.GrantSeconds,
		Subject: subject, SubjectType: NodeSubject, Tier: tier, Limits: Opening(tier), Scopes: scopes,
		ReceiptSeconds: c.Receipt.CadenceSeconds, ReceiptBytes: c.Receipt.CadenceBytes,
	}
}

// Check tries every rule of a grant's body and frame that needs no key and no clock.
func (g *Grant) Check() error {
	if err := CheckWindowLength(g.Window); err != nil {
		return err
	}
	if g.Tier != spec.TierRevoked && spec.C().TierRank(g.Tier) < 0 {
		return fault(UnknownTier, string(g.Tier))
	}
	if g.Expiration <= g.CreatedAt {
		return fault(GrantExpired, "expires before it begins")
	}
	switch g.SubjectType {
	case AuthorSubject:
		if g.Author == nil {
			return fault(NoReason, "")
		}
		return g.Author.check()
	case NodeSubject:
		for i := range spec.C().Limits {
			n := spec.C().Limits[i].Name
			v, ok := g.Limits[n]
			switch {
			case !ok:
				return fault(MissingLimit, string(n))
			case v < 0:
				return fault(BadField, string(n)+" is negative")
			case v > spec.C().Ceiling(n, g.Tier):
				return fault(AboveCeiling, fmt.Sprintf("%s %d, tier %s allows %d", n, v, g.Tier, spec.C().Ceiling(n, g.Tier)))
			}
		}
		if g.ReceiptSeconds <= 0 || g.ReceiptBytes <= 0 {
			return fault(BadField, "receipt cadence")
		}
		return nil
	}
	return fault(BadSubject, string(g.SubjectType))
}

// LiveAt says whether the grant is in force at now: begun, within the skew, and not expired.
func (g *Grant) LiveAt(now int64) error {
	switch {
	case now >= g.Expiration:
		return fault(GrantExpired, strconv.FormatInt(g.Expiration, 10))
	case g.CreatedAt > now+spec.C().Window.SkewSeconds:
		return fault(NotInForce, strconv.FormatInt(g.CreatedAt, 10))
	}
	return nil
}

// WindowAt returns the grant's window of a moment.
func (g *Grant) WindowAt(t int64) Window { return WindowAt(t, g.Window) }

// body is the object that is encrypted: the tags in a fixed order, the blinding last.
func (g *Grant) body() ([]byte, error) {
	tags := [][]string{{"subject", g.Subject.String(), string(g.SubjectType)}, {"tier", string(g.Tier)}}
	if g.SubjectType == NodeSubject {
		for i := range spec.C().Limits {
			n := spec.C().Limits[i].Name
			tags = append(tags, []string{"limit", string(n), strconv.FormatInt(g.Limits[n], 10)})
		}
		tags = append(tags, []string{"limit", string(spec.LimitDupRatio), decimal(spec.C().DupRatio.Ceiling)})
		for i := range g.Scopes {
			tags = append(tags, []string{"scope", string(g.Scopes[i].Direction), string(g.Scopes[i].Filter.AppendJSON(nil))})
		}
		for _, s := range spec.C().Schedule {
			tags = append(tags, []string{"schedule", decimal(s.Ratio), s.Severity.String()})
		}
		tags = append(tags, []string{"receipt", strconv.FormatInt(g.ReceiptSeconds, 10), strconv.FormatInt(g.ReceiptBytes, 10)},
			[]string{"settlement", "none"})
	}
	if g.Author != nil {
		tags = append(tags, g.Author.tags()...)
	}
	tags = append(tags, []string{"blinding", hex.EncodeToString(g.Blinding[:])})
	return spec.Canonical(map[string]any{"tags": tags})
}

// decimal writes a ratio whose denominator divides a power of ten, with at least one decimal: 11/10
// as 1.1, 2/1 as 2.0, 3/20 as 0.15.
func decimal(r spec.Ratio) string {
	s := strconv.FormatInt(r.Num/r.Den, 10) + "."
	rest := r.Num % r.Den
	for digits := 0; digits == 0 || rest != 0 && digits < 18; digits++ {
		rest *= 10
		s += strconv.FormatInt(rest/r.Den, 10)
		rest %= r.Den
	}
	return s
}

// grantObject is the decrypted object, its other members kept for the commitment.
type grantObject struct {
	members map[string]json.RawMessage
	tags    [][]string
}

func parseGrantObject(text []byte) (*grantObject, error) {
	o := &grantObject{}
	if _, err := spec.Canonical(text); err != nil { // duplicate names, fractions, broken UTF-8
		return nil, fault(BadJSON, err.Error())
	}
	if err := json.Unmarshal(text, &o.members); err != nil || o.members == nil {
		return nil, fault(BadJSON, "grant is no object")
	}
	if err := json.Unmarshal(o.members["tags"], &o.tags); err != nil || o.tags == nil {
		return nil, fault(BadJSON, "grant without tags")
	}
	return o, nil
}

// canonicalGrant is canonical(grant): the object without its blinding tag.
func (o *grantObject) canonical() ([]byte, error) {
	open := make(map[string]any, len(o.members))
	for k, v := range o.members {
		open[k] = v
	}
	open["tags"] = slices.DeleteFunc(slices.Clone(o.tags), func(t []string) bool {
		return len(t) > 0 && t[0] == spec.C().Commitment.ExcludedTag
	})
	return spec.Canonical(open)
}

// readBody fills the encrypted part of a grant from the decrypted tags.
func (g *Grant) readBody(tags [][]string) error {
	g.Limits = Limits{}
	seen := map[string]bool{}
	var schedule []string
	for _, t := range tags {
		if len(t) < 2 {
			return fault(BadField, "a tag without a value")
		}
		if slices.Contains([]string{"subject", "tier", "receipt", "settlement", "blinding"}, t[0]) {
			if seen[t[0]] {
				return fault(identity.DuplicateTag, t[0])
			}
			seen[t[0]] = true
		}
		if t[0] == "schedule" {
			schedule = append(schedule, strings.Join(t[1:], " "))
			continue
		}
		if err := g.readTag(t); err != nil {
			return err
		}
	}
	switch {
	case !seen["subject"]:
		return fault(BadSubject, "missing")
	case !seen["tier"]:
		return fault(UnknownTier, "missing")
	case !seen["blinding"]:
		return fault(BadField, "blinding is missing")
	case g.SubjectType == NodeSubject && !slices.Equal(schedule, scheduleLines()):
		return fault(BadSchedule, strings.Join(schedule, ", "))
	}
	if g.SubjectType == AuthorSubject {
		entry, err := readAuthorEntry(tags)
		if err != nil {
			return err
		}
		g.Author = entry
	}
	return nil
}

func scheduleLines() []string {
	var out []string
	for _, s := range spec.C().Schedule {
		out = append(out, decimal(s.Ratio)+" "+s.Severity.String())
	}
	return out
}

func (g *Grant) readTag(t []string) error {
	third := ""
	if len(t) > 2 {
		third = t[2]
	}
	switch t[0] {
	case "subject":
		k, ok := parseHex32(t[1])
		g.Subject, g.SubjectType = nostr.PubKey(k), SubjectType(third)
		if !ok || (g.SubjectType != NodeSubject && g.SubjectType != AuthorSubject) {
			return fault(BadSubject, t[1]+" "+third)
		}
	case "tier":
		g.Tier = spec.Tier(t[1])
	case "limit":
		return g.readLimit(spec.Limit(t[1]), third)
	case "scope":
		d := Direction(t[1])
		if d != Push && d != Pull {
			return fault(BadScope, "direction "+t[1])
		}
		f, err := nostr.ParseFilter([]byte(third))
		if err != nil {
			return fault(BadScope, err.Error())
		}
		g.Scopes = append(g.Scopes, Scope{d, f})
	case "receipt":
		s, err1 := parseCount(t[1])
		b, err2 := parseCount(third)
		if err1 != nil || err2 != nil {
			return fault(BadField, "receipt cadence")
		}
		g.ReceiptSeconds, g.ReceiptBytes = s, b
	case "settlement":
		if t[1] != "none" {
			return fault(BadSettlement, t[1])
		}
	case "blinding":
		b, ok := parseHex32(t[1])
		if !ok {
			return fault(BadField, "blinding")
		}
		g.Blinding = b
	}
	return nil
}

func (g *Grant) readLimit(name spec.Limit, value string) error {
	if name == spec.LimitDupRatio {
		if value != decimal(spec.C().DupRatio.Ceiling) {
			return fault(BadField, "dup_ratio is the same for everybody")
		}
		return nil
	}
	if _, ok := spec.C().Limit(name); !ok {
		return fault(UnknownLimit, string(name))
	}
	if _, twice := g.Limits[name]; twice {
		return fault(identity.DuplicateTag, "limit "+string(name))
	}
	v, err := parseCount(value)
	if err != nil {
		return err
	}
	g.Limits[name] = v
	return nil
}

// parseCount reads a count in its one spelling: decimal, no sign, no leading zero, at most 2^53-1.
func parseCount(s string) (int64, error) {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || n < 0 || n > maxCount || strconv.FormatInt(n, 10) != s {
		return 0, fault(BadField, "no count: "+strconv.Quote(s))
	}
	return n, nil
}

func parseHex32(s string) (out [32]byte, ok bool) {
	if len(s) != 64 || s != strings.ToLower(s) {
		return out, false
	}
	_, err := hex.Decode(out[:], []byte(s))
	return out, err == nil
}
