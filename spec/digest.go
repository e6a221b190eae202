package spec

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"fmt"
	"strings"
	"sync"
)

//go:embed PROTOCOLS
var protocolsFile []byte

// Digest returns SHA-256 over kinds.json, messages.json and constants.json,
// each in canonical form, concatenated in that order (§ Governance, A version is
// a digest). It says exactly what a node was built from.
func Digest() [32]byte { return digest() }

// DigestHex returns Digest as the 64 hex digits of a descriptor's protocol tag.
func DigestHex() string {
	d := Digest()
	return hex.EncodeToString(d[:])
}

var digest = sync.OnceValue(func() [32]byte {
	return digestOf(kindsJSON, messagesJSON, constantsJSON)
})

func digestOf(files ...[]byte) [32]byte {
	h := sha256.New()
	for _, f := range files {
		h.Write(mustCanonical(f))
	}
	return [32]byte(h.Sum(nil))
}

// mustCanonical is for our own files, which tests have read before.
func mustCanonical(v any) []byte {
	b, err := Canonical(v)
	if err != nil {
		panic(fmt.Sprintf("spec: own file: %v", err))
	}
	return b
}

// ProtocolDigest returns SHA-256 over the canonical form of one protocol's
// block of messages.json, which holds the digest of its bodies' schemas; ok is
// false for an identifier that is not the protocol's own.
func ProtocolDigest(piuri string) (d [32]byte, ok bool) {
	p, ok := LookupProtocol(piuri)
	if !ok {
		return d, false
	}
	return sha256.Sum256(mustCanonical(p)), true
}

// PublishedProtocols returns the lines of the PROTOCOLS file: the digest that
// was recorded for each protocol identifier when its version was last moved
// (§ Governance, A version is a digest). Lines of versions no longer spoken stay.
func PublishedProtocols() (map[string]string, error) { return parseProtocols(protocolsFile) }

// parseProtocols reads lines of "identifier space digest"; # begins a comment.
func parseProtocols(b []byte) (map[string]string, error) {
	m := make(map[string]string)
	sc := bufio.NewScanner(bytes.NewReader(b))
	for n := 1; sc.Scan(); n++ {
		line := strings.TrimSpace(sc.Text())
		if line == "" || line[0] == '#' {
			continue
		}
		id, sum, ok := strings.Cut(line, " ")
		if raw, err := hex.DecodeString(sum); !ok || err != nil || len(raw) != 32 {
			return nil, fmt.Errorf("PROTOCOLS line %d: want an identifier, a space and 64 hex digits", n)
		}
		if _, twice := m[id]; twice {
			return nil, fmt.Errorf("PROTOCOLS line %d: %s is listed twice", n, id)
		}
		m[id] = sum
	}
	return m, sc.Err()
}
