package nostr

import (
	"iter"
	"strconv"
)

// TagValues yields, in order, the first value of each tag of that name which
// has one. NIP-01 indexes only the first value of a tag.
func (e *Event) TagValues(name string) iter.Seq[string] {
	return func(yield func(string) bool) {
		for _, t := range e.Tags {
			if len(t) >= 2 && t[0] == name && !yield(t[1]) {
				return
			}
		}
	}
}

// D returns the first value of the first d tag, or "" if there is none
// (NIP-01).
func (e *Event) D() string {
	for _, t := range e.Tags {
		if len(t) >= 1 && t[0] == "d" {
			if len(t) == 1 {
				return ""
			}
			return t[1]
		}
	}
	return ""
}

// Expiration returns the unix second of the first expiration tag that holds a
// decimal number (NIP-40). The second result is false if there is none.
// Numbers too large for an int64 count as the largest: they never pass.
func (e *Event) Expiration() (int64, bool) {
	for v := range e.TagValues("expiration") {
		if !isDecimal(v) {
			continue
		}
		// The only error left is overflow, and ParseInt then returns the nearest value.
		n, _ := strconv.ParseInt(v, 10, 64)
		return n, true
	}
	return 0, false
}

func isDecimal(s string) bool {
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return false
		}
	}
	return s != ""
}

// ExpiredAt tells whether the event is expired at the unix second now
// (NIP-40): from the second that its tag names on.
func (e *Event) ExpiredAt(now int64) bool {
	t, ok := e.Expiration()
	return ok && t <= now
}

// Protected tells whether the event carries the "-" tag, so that only its
// author may publish it (NIP-70).
func (e *Event) Protected() bool {
	for _, t := range e.Tags {
		if len(t) >= 1 && t[0] == "-" {
			return true
		}
	}
	return false
}
