package nostr

// Matcher is a filter made ready to meet many events: what Filter.Matches
// finds by walking through a list, it looks up where the list is long. It does not
// change and may be used by any number of goroutines.
type Matcher struct {
	f       Filter
	ids     set[ID]
	authors set[PubKey]
	kinds   set[Kind]
	tags    []set[string]
}

// longList is the length from which looking up beats walking through.
const longList = 24

// set is nil for a short list.
type set[T comparable] map[T]struct{}

func newSet[T comparable](list []T) set[T] {
	if len(list) < longList {
		return nil
	}
	s := make(set[T], len(list))
	for _, v := range list {
		s[v] = struct{}{}
	}
	return s
}

func (s set[T]) has(v T) bool {
	_, ok := s[v]
	return ok
}

// NewMatcher prepares a filter, whose lists must not change afterwards.
func NewMatcher(f Filter) *Matcher {
	m := &Matcher{f: f, ids: newSet(f.IDs), authors: newSet(f.Authors), kinds: newSet(f.Kinds)}
	// What has a set is asked there, and no more in the filter.
	if m.ids != nil {
		m.f.IDs = nil
	}
	if m.authors != nil {
		m.f.Authors = nil
	}
	if m.kinds != nil {
		m.f.Kinds = nil
	}
	for _, t := range f.Tags {
		m.tags = append(m.tags, newSet(t.Values))
	}
	return m
}

// Matches is Filter.Matches.
func (m *Matcher) Matches(e *Event) bool {
	if !m.f.matchesScalars(e) ||
		m.kinds != nil && !m.kinds.has(e.Kind) ||
		m.authors != nil && !m.authors.has(e.PubKey) ||
		m.ids != nil && !m.ids.has(e.ID) {
		return false
	}
	for i := range m.f.Tags {
		t := &m.f.Tags[i]
		if s := m.tags[i]; s == nil && !t.matches(e.Tags) || s != nil && !t.matchesSet(e.Tags, s) {
			return false
		}
	}
	return true
}

func (t *TagFilter) matchesSet(tags []Tag, s set[string]) bool {
	for _, tag := range tags {
		if len(tag) >= 2 && t.named(tag) && s.has(tag[1]) {
			return true
		}
	}
	return false
}
