package ledger

import (
	"slices"
	"strconv"

	"fleetmesh.org/fleetmesh/internal/identity"
	"fleetmesh.org/fleetmesh/nostr"
	"fleetmesh.org/fleetmesh/spec"
)

// AuthorEntry is what makes a grant about an author a list entry that can be explained:
// where it came from, why, on what evidence, and whether it was taken back. Its expiry is
// the grant's own.
type AuthorEntry struct {
	Source    string // "own", or the list, key or event it was taken from
	Reason    string
	Evidence  string // SHA-256 of what it rests on, 64 hex digits; "" if none
	Derived   bool   // repeats somebody else's entry: it explains, and supports nothing
	Retracted int64  // unix second at which the issuer took it back, 0 if it stands
}

// OwnSource is the source of an entry that the issuer made on its own finding.
const OwnSource = "own"

// NewAuthorGrant makes an entry of an allow or block list. Blocking is the tier revoked.
func NewAuthorGrant(issuer, author nostr.PubKey, block bool, entry AuthorEntry, at, expires int64) *Grant {
	tier := spec.TierMember
	if block {
		tier = spec.TierRevoked
	}
	return &Grant{Issuer: issuer, CreatedAt: at, Window: spec.C().Window.DefaultSeconds, Expiration: expires,
		Subject: author, SubjectType: AuthorSubject, Tier: tier, Author: &entry}
}

func (a *AuthorEntry) check() error {
	switch {
	case a.Source == "" || a.Reason == "":
		return fault(NoReason, "source and reason are needed")
	case a.Derived && a.Source == OwnSource:
		return fault(DerivedSupport, "a derived entry names what it derives from")
	case a.Retracted < 0:
		return fault(BadField, "retracted")
	}
	if _, ok := parseHex32(a.Evidence); a.Evidence != "" && !ok {
		return fault(BadField, "evidence is no digest")
	}
	return nil
}

func (a *AuthorEntry) tags() [][]string {
	out := [][]string{{"source", a.Source}, {"reason", a.Reason}}
	if a.Evidence != "" {
		out = append(out, []string{"evidence", a.Evidence})
	}
	if a.Derived {
		out = append(out, []string{"derived", "true"})
	}
	if a.Retracted > 0 {
		out = append(out, []string{"retracted", strconv.FormatInt(a.Retracted, 10)})
	}
	return out
}

func readAuthorEntry(tags [][]string) (*AuthorEntry, error) {
	a := &AuthorEntry{}
	seen := map[string]bool{}
	for _, t := range tags {
		if !slices.Contains([]string{"source", "reason", "evidence", "derived", "retracted"}, t[0]) {
			continue
		}
		if seen[t[0]] {
			return nil, fault(identity.DuplicateTag, t[0])
		}
		seen[t[0]] = true
		switch t[0] {
		case "source":
			a.Source = t[1]
		case "reason":
			a.Reason = t[1]
		case "evidence":
			a.Evidence = t[1]
		case "derived":
			if a.Derived = t[1] == "true"; !a.Derived {
				return nil, fault(BadField, "derived")
			}
		case "retracted":
			n, err := parseCount(t[1])
			if err != nil {
				return nil, err
			}
			a.Retracted = n
		}
	}
	return a, nil
}

// Verdict is what a set of entries says about an author.
type Verdict struct {
	Allowed, Blocked bool
	Because          *Grant // the entry that decided, nil if none did
}

// Judge weighs the entries about one author that one reader accepts, at now: entries that expired or were
// retracted are void, derived ones support nothing, a block outweighs an allow, and of one issuer's
// entries the latest stands.
func Judge(entries []*Grant, now int64) Verdict {
	latest := map[nostr.PubKey]*Grant{}
	for _, g := range entries {
		if g.SubjectType != AuthorSubject || g.Author == nil {
			continue
		}
		if old := latest[g.Issuer]; old == nil || g.CreatedAt > old.CreatedAt ||
			g.CreatedAt == old.CreatedAt && g.ID.String() < old.ID.String() {
			latest[g.Issuer] = g
		}
	}
	var v Verdict
	for _, g := range entries { // in the order given, so that the answer does not depend on a map
		if latest[g.Issuer] != g || g.LiveAt(now) != nil || g.Author.Derived ||
			g.Author.Retracted > 0 && g.Author.Retracted <= now {
			continue
		}
		switch {
		case g.Tier == spec.TierRevoked && !v.Blocked:
			v = Verdict{Blocked: true, Because: g}
		case g.Tier != spec.TierRevoked && !v.Blocked && !v.Allowed:
			v = Verdict{Allowed: true, Because: g}
		}
	}
	return v
}

// SwapEntries decides whether a list that was fetched anew replaces the one in use. A fetch that was throttled or cut short
// looks like a shorter list, and would lock honest people out; so the new one must still name at least a share of the authors
// whose entries are live in the old one. Entries that were retracted on purpose are still entries and count as named. covered and
// of say how many were, for an operator's alarm.
func SwapEntries(old, fetched []*Grant, least spec.Ratio, now int64) (use []*Grant, covered, of int64) {
	named := map[nostr.PubKey]bool{}
	for _, g := range fetched {
		named[g.Subject] = true
	}
	seen := map[nostr.PubKey]bool{}
	for _, g := range old {
		if seen[g.Subject] || g.LiveAt(now) != nil || g.Author == nil || g.Author.Retracted > 0 {
			continue
		}
		seen[g.Subject] = true
		of++
		if named[g.Subject] {
			covered++
		}
	}
	if of > 0 && least.CmpFraction(covered, of) < 0 {
		return old, covered, of
	}
	return fetched, covered, of
}
