package identity

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strconv"

	"fleetmesh.org/fleetmesh/nostr"
	"fleetmesh.org/fleetmesh/spec"
)

// The two completeness values of a coverage claim.
const (
	Asserted   = "asserted"    // falsifiable: a hole in it is an S2
	BestEffort = "best-effort" // nobody may report against it, nobody may rely on it
)

// Coverage is a node's claim to hold a shard, kind 30803. A shard is a filter and a time range.
type Coverage struct {
	Subject       nostr.PubKey
	At            int64
	Shard         string // stable identifier, the d tag
	Filter        nostr.Filter
	Since, Until  int64
	Completeness  string
	Fingerprint   string // negentropy root over the shard, 32 hex digits
	FingerprintAt int64  // when it was taken
	Count         int64
}

// Event builds the unsigned claim. Leaves publish none: the caller checks MayClaim first.
func (c *Coverage) Event() *nostr.Event {
	e := &nostr.Event{PubKey: c.Subject, CreatedAt: c.At, Kind: spec.KindCoverage}
	e.Tags = []nostr.Tag{
		{"d", c.Shard},
		{"filter", string(c.Filter.AppendJSON(nil))},
		{"completeness", c.Completeness},
	}
	if c.Since > 0 {
		e.Tags = append(e.Tags, nostr.Tag{"since", strconv.FormatInt(c.Since, 10)})
	}
	if c.Until > 0 {
		e.Tags = append(e.Tags, nostr.Tag{"until", strconv.FormatInt(c.Until, 10)})
	}
	if c.Fingerprint != "" {
		e.Tags = append(e.Tags, nostr.Tag{"fingerprint", c.Fingerprint, strconv.FormatInt(c.FingerprintAt, 10)})
	}
	e.Tags = append(e.Tags, nostr.Tag{"count", strconv.FormatInt(c.Count, 10)})
	return e
}

// MayClaim says whether a node of the class may publish the completeness, over data of which
// meshOnly says that it came through the mesh alone. Such data is provisional: a claim over it
// would launder what a peer said into what this node knows.
func MayClaim(class spec.Class, completeness string, meshOnly bool) error {
	rules, ok := spec.C().Class(class)
	switch {
	case !ok:
		return fault(UnknownClass, string(class))
	case len(rules.Coverage) == 0:
		return fault(LeafCoverage, "")
	case !slices.Contains(rules.Coverage, completeness):
		return fault(BadCompleteness, completeness)
	case completeness == Asserted && meshOnly:
		return fault(MeshOnly, "")
	}
	return nil
}

// ParseCoverage reads a claim, whose signature is the caller's to verify.
func ParseCoverage(e *nostr.Event) (*Coverage, error) {
	if e.Kind != spec.KindCoverage {
		return nil, fault(WrongKind, strconv.Itoa(int(e.Kind)))
	}
	c := &Coverage{Subject: e.PubKey, At: e.CreatedAt, Shard: e.D()}
	seen := map[string]bool{}
	for _, t := range e.Tags {
		if len(t) < 2 {
			continue
		}
		if slices.Contains([]string{"d", "filter", "since", "until", "completeness", "fingerprint", "count"}, t[0]) {
			if seen[t[0]] {
				return nil, fault(DuplicateTag, t[0])
			}
			seen[t[0]] = true
		}
		if err := c.readTag(t); err != nil {
			return nil, err
		}
	}
	switch {
	case c.Shard == "" || !seen["filter"]:
		return nil, fault(BadShard, "d and filter are needed")
	case seen["until"] && c.Since > c.Until:
		return nil, fault(BadShard, "since is after until")
	case c.Completeness != Asserted && c.Completeness != BestEffort:
		return nil, fault(BadCompleteness, c.Completeness)
	case c.Completeness == Asserted && c.Fingerprint == "":
		return nil, fault(BadShard, "an asserted claim needs its fingerprint")
	}
	return c, nil
}

func (c *Coverage) readTag(t nostr.Tag) (err error) {
	switch t[0] {
	case "filter":
		if c.Filter, err = nostr.ParseFilter([]byte(t[1])); err != nil {
			return fault(BadShard, "filter: "+err.Error())
		}
	case "since":
		c.Since, err = parseSeconds("since", t[1])
	case "until":
		c.Until, err = parseSeconds("until", t[1])
	case "completeness":
		c.Completeness = t[1]
	case "fingerprint":
		if b, err := hex.DecodeString(t[1]); err != nil || len(b) != 16 || hex.EncodeToString(b) != t[1] {
			return fault(BadTag, "fingerprint is not 32 lower-case hex digits")
		}
		c.Fingerprint = t[1]
		if s := at(t, 2); s != "" {
			c.FingerprintAt, err = parseSeconds("fingerprint", s)
		}
	case "count":
		c.Count, err = parseSeconds("count", t[1])
	}
	return err
}

// CoverageDigest is the descriptor's coverage tag: SHA-256 over the canonical JSON of the sorted ids
// of the claims in force, as 64 hex digits; "" without claims.
func CoverageDigest(claims []nostr.ID) string {
	if len(claims) == 0 {
		return ""
	}
	ids := make([]string, 0, len(claims))
	for _, id := range claims {
		ids = append(ids, id.String())
	}
	slices.Sort(ids)
	text, err := spec.Canonical(slices.Compact(ids))
	if err != nil {
		panic("identity: hex digits have a canonical form: " + err.Error())
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}
