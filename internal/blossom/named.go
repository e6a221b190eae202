package blossom

import (
	"slices"
	"strings"

	"fleetmesh.org/fleetmesh/nostr"
)

// Named returns the blobs that an event names, each once, in the order in which it names them: x tags (NIP-94), imeta tags
// (NIP-92), tags that hold a URL, and URLs and blossom: links in the text. Kinds that are about blobs but do not carry them,
// such as tokens, reports and deletions, name none.
func Named(e *nostr.Event) []Hash {
	if e.Kind == KindToken || e.Kind == kindReport || e.Kind == 5 || e.Kind == 62 || e.Kind == KindServerList {
		return nil
	}
	var out []Hash
	add := func(h Hash, ok bool) {
		if ok && !slices.Contains(out, h) {
			out = append(out, h)
		}
	}
	for _, t := range e.Tags {
		if len(t) < 2 {
			continue
		}
		switch t[0] {
		case "x", "ox":
			h, err := ParseHash(t[1])
			add(h, err == nil)
		case "imeta":
			for _, field := range t[1:] {
				name, value, _ := strings.Cut(field, " ")
				if name == "x" || name == "ox" {
					h, err := ParseHash(value)
					add(h, err == nil)
				} else if isLink(value) {
					add(HashInURL(value))
				}
			}
		default:
			for _, v := range t[1:] {
				if isLink(v) {
					add(HashInURL(v))
				}
			}
		}
	}
	for word := range strings.FieldsFuncSeq(e.Content, notInURL) {
		if i := max(strings.LastIndex(word, "https://"), strings.LastIndex(word, "http://"), strings.LastIndex(word, "blossom:")); i >= 0 {
			add(HashInURL(word[i:]))
		}
	}
	return out
}

func isLink(s string) bool {
	return strings.HasPrefix(s, "https://") || strings.HasPrefix(s, "http://") || strings.HasPrefix(s, "blossom:")
}

// notInURL splits text into what may hold a URL.
func notInURL(r rune) bool { return r <= ' ' || strings.ContainsRune(`"'<>()[]{}|\^`+"`,", r) }

// Servers returns the servers of a user's list, the most trusted first (BUD-03): http and https URLs without what follows
// the host, each once. It returns nil for another kind.
func Servers(e *nostr.Event) []string {
	if e.Kind != KindServerList {
		return nil
	}
	var out []string
	for v := range e.TagValues("server") {
		scheme, rest, ok := strings.Cut(strings.ToLower(strings.TrimSpace(v)), "://")
		if i := strings.IndexAny(rest, "/?#"); i >= 0 {
			rest = rest[:i]
		}
		if !ok || (scheme != "https" && scheme != "http") || rest == "" || strings.ContainsAny(rest, "@ ") {
			continue
		}
		if u := scheme + "://" + rest; !slices.Contains(out, u) {
			out = append(out, u)
		}
	}
	return out
}

// ServerList makes the unsigned event that says where a key keeps its blobs (BUD-03). now is unix seconds.
func ServerList(servers []string, now int64) *nostr.Event {
	e := &nostr.Event{Kind: KindServerList, CreatedAt: now}
	for _, s := range servers {
		e.Tags = append(e.Tags, nostr.Tag{"server", s})
	}
	return e
}
