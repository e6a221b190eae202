package blossom

import (
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
)

// Hash is the SHA-256 of a blob's bytes: its name.
type Hash [32]byte

// String is the hash as 64 lower-case hex digits, the form that Blossom uses everywhere.
func (h Hash) String() string { return hex.EncodeToString(h[:]) }

var errHash = errors.New("a blob's name is 64 lower-case hex digits")

// ParseHash reads 64 lower-case hex digits.
func ParseHash(s string) (h Hash, err error) {
	if len(s) != 64 || !isHex(s) || s != strings.ToLower(s) {
		return h, errHash
	}
	_, err = hex.Decode(h[:], []byte(s))
	return h, err
}

// maxExt is the longest file extension that is read, without its dot. Nothing that is served depends on it.
const maxExt = 16

// parseName reads the last element of a blob's path: a hash with or without a file extension (BUD-01). The
// extension says nothing about the blob and is only checked.
func parseName(name string) (Hash, error) {
	base, ext, dotted := strings.Cut(name, ".")
	h, err := ParseHash(base)
	if err != nil {
		return h, err
	}
	if dotted && (ext == "" || len(ext) > maxExt || strings.ContainsFunc(ext, notExt)) {
		return h, fmt.Errorf("a file extension is up to %d letters and digits", maxExt)
	}
	return h, nil
}

func notExt(r rune) bool {
	return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '.' && r != '-' && r != '_' && r != '+'
}

func isHex(s string) bool {
	for i := range len(s) {
		c := s[i]
		if (c < '0' || c > '9') && (c < 'a' || c > 'f') && (c < 'A' || c > 'F') {
			return false
		}
	}
	return true
}

// looksLikeName tells whether a path element was meant for a blob, so that a mistyped hash is told as such.
func looksLikeName(s string) bool {
	base, _, _ := strings.Cut(s, ".")
	return len(base) >= 32 && isHex(base)
}

// HashInURL returns the last run of exactly 64 hex digits in a URL, which is how clients find the blob that a URL
// stands for (BUD-03). The second result is false if there is none.
func HashInURL(url string) (h Hash, ok bool) {
	for end := len(url); end > 0; {
		if !isHex(url[end-1 : end]) {
			end--
			continue
		}
		start := end
		for start > 0 && isHex(url[start-1:start]) {
			start--
		}
		if end-start == 64 {
			h, err := ParseHash(strings.ToLower(url[start:end]))
			return h, err == nil
		}
		end = start
	}
	return h, false
}
