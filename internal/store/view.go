package store

import (
	"errors"
	"iter"
	"slices"
	"strings"
	"unicode"

	"fleetmesh.org/fleetmesh/nostr"
)

var errNotHex = errors.New("not 64 lower-case hex digits")

// Allows says whether a reader with this view may see e.
func (v *View) Allows(e *nostr.Event) bool {
	if !slices.Contains(v.Hide, e.Kind) {
		return true
	}
	seen := false
	for _, t := range e.Tags {
		if len(t) == 0 || t[0] != "p" {
			continue
		}
		if len(t) < 2 {
			return false
		}
		k, err := parseKey(t[1])
		if err != nil || !slices.Contains(v.Reveal, k) {
			return false
		}
		seen = true
	}
	return seen
}

// Terms are the words of a NIP-50 search. All must occur, as whole words and without
// regard to case, in the content or in the value of one of the tags that carry text (title, name,
// summary, subject, alt, description, t). "key:value" extensions are ignored, as NIP-50
// wants. Words are runs of letters and digits.
type Terms []string

// ParseSearch reads a filter's Search. No words (an empty search, or only extensions)
// match every event.
func ParseSearch(s string) Terms {
	var out Terms
	for _, f := range strings.Fields(s) {
		if isExtension(f) {
			continue
		}
		for w := range words(f) {
			if !slices.Contains(out, w) {
				out = append(out, w)
			}
		}
	}
	return out
}

// isExtension says whether a field is a key:value pair and not, say, a URL.
func isExtension(f string) bool {
	i := strings.IndexByte(f, ':')
	if i <= 0 || i == len(f)-1 || strings.HasPrefix(f[i:], "://") {
		return false
	}
	for _, c := range f[:i] {
		if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && c != '_' && c != '-' {
			return false
		}
	}
	return true
}

// Match says whether e has all the words.
func (t Terms) Match(e *nostr.Event) bool {
	if len(t) == 0 {
		return true
	}
	found := make([]bool, len(t))
	left := len(t)
	for w := range WordsOf(e) {
		if i := slices.Index(t, w); i >= 0 && !found[i] {
			found[i] = true
			if left--; left == 0 {
				return true
			}
		}
	}
	return false
}

// WordsOf yields the words by which a search finds e, in the form of Terms; one may come several times.
func WordsOf(e *nostr.Event) iter.Seq[string] {
	return func(yield func(string) bool) {
		for w := range words(e.Content) {
			if !yield(w) {
				return
			}
		}
		for _, tag := range e.Tags {
			if len(tag) < 2 || !isTextTag(tag[0]) {
				continue
			}
			for w := range words(tag[1]) {
				if !yield(w) {
					return
				}
			}
		}
	}
}

func isTextTag(name string) bool {
	switch name {
	case "title", "name", "summary", "subject", "alt", "description", "t":
		return true
	}
	return false
}

// words yields the lower-cased runs of letters and digits.
func words(s string) func(yield func(string) bool) {
	return func(yield func(string) bool) {
		start := -1
		for i, c := range s {
			if unicode.IsLetter(c) || unicode.IsDigit(c) || unicode.IsMark(c) {
				if start < 0 {
					start = i
				}
				continue
			}
			if start >= 0 && !yield(strings.ToLower(s[start:i])) {
				return
			}
			start = -1
		}
		if start >= 0 {
			yield(strings.ToLower(s[start:]))
		}
	}
}
