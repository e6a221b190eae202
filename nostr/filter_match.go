package nostr

import "slices"

// Matches tells whether an event meets every condition of the filter. Limit and
// Search are no conditions on one event and are not looked at.
func (f *Filter) Matches(e *Event) bool {
	if !f.matchesScalars(e) {
		return false
	}
	for i := range f.Tags {
		if !f.Tags[i].matches(e.Tags) {
			return false
		}
	}
	return true
}

// matchesScalars is Matches without the tags.
func (f *Filter) matchesScalars(e *Event) bool {
	if f.Since != nil && e.CreatedAt < *f.Since || f.Until != nil && e.CreatedAt > *f.Until {
		return false
	}
	if f.Kinds != nil && !slices.Contains(f.Kinds, e.Kind) {
		return false
	}
	if f.Authors != nil && !containsKey(f.Authors, &e.PubKey) {
		return false
	}
	return f.IDs == nil || containsKey(f.IDs, &e.ID)
}

// containsKey is slices.Contains for ids and keys, which mostly differ in their
// first byte: comparing that first makes long lists of authors several times faster.
func containsKey[T ~[32]byte](list []T, key *T) bool {
	first := (*key)[0]
	for i := range list {
		if list[i][0] == first && list[i] == *key {
			return true
		}
	}
	return false
}

// matches tells whether one of the tags has the letter as its name and one of
// the values as its first value.
func (t *TagFilter) matches(tags []Tag) bool {
	for _, tag := range tags {
		if len(tag) >= 2 && t.named(tag) && slices.Contains(t.Values, tag[1]) {
			return true
		}
	}
	return false
}

// named tells whether a tag, which is not empty, has the letter as its name.
func (t *TagFilter) named(tag Tag) bool { return len(tag[0]) == 1 && tag[0][0] == t.Letter }

// MatchesNothing tells whether no event can meet the filter: a list is there
// but empty, or since is after until. A limit of 0 is not such a filter: it
// asks for live events only.
func (f *Filter) MatchesNothing() bool {
	if f.IDs != nil && len(f.IDs) == 0 || f.Authors != nil && len(f.Authors) == 0 ||
		f.Kinds != nil && len(f.Kinds) == 0 {
		return true
	}
	for i := range f.Tags {
		if len(f.Tags[i].Values) == 0 {
			return true
		}
	}
	return f.Since != nil && f.Until != nil && *f.Since > *f.Until
}
