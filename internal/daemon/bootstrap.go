package daemon

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"strconv"
	"strings"

	"fleetmesh.org/fleetmesh/internal/identity"
	"fleetmesh.org/fleetmesh/nostr"
)

// emptyBootstrap is the file as it ships: no node is named, and a node works without any.
const emptyBootstrap = `# Where this node looks for other nodes first. Edit it freely; empty works.
# meshnode up --bootstrap wss://relay.example.org bypasses this file.
#
# [[node]]
# relay = "wss://relay.example.org"   # any Nostr relay, or a node's own face
# did = "did:nostr:…"                 # optional: the node that is expected there
# operator = "…"                      # optional: who runs it, for people who read this list
`

// Seed is one place to look for nodes.
type Seed struct {
	Relay    string       `json:"relay"`
	Node     nostr.PubKey `json:"-"` // zero: whoever is found there
	Operator string       `json:"operator,omitempty"`
}

// ParseSeed reads what --bootstrap takes: a relay's URL, or did:nostr:…@URL.
func ParseSeed(s string) (seed Seed, err error) {
	if did, url, ok := strings.Cut(s, "@"); ok && strings.HasPrefix(did, "did:") {
		if seed.Node, err = identity.ParseDID(did); err != nil {
			return seed, fmt.Errorf("bootstrap %q: %w", s, err)
		}
		s = url
	}
	if seed.Relay, err = nostr.NormalizeRelayURL(s); err != nil {
		return seed, fmt.Errorf("bootstrap %q: %w", s, err)
	}
	return seed, nil
}

// Seeds reads bootstrap.toml. A file that is not there is empty.
func (d Dir) Seeds() ([]Seed, error) {
	text, err := os.ReadFile(d.Bootstrap())
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read bootstrap.toml: %w", err)
	}
	seeds, err := parseBootstrap(text)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", d.Bootstrap(), err)
	}
	return seeds, nil
}

// parseBootstrap reads the part of TOML that the file needs: [[node]] tables of basic or literal strings on one line, and comments.
func parseBootstrap(text []byte) (seeds []Seed, err error) {
	lines := bufio.NewScanner(bytes.NewReader(text))
	n, open := 0, false
	set := map[string]bool{}
	for lines.Scan() {
		n++
		line := strings.TrimSpace(lines.Text())
		switch {
		case line == "" || line[0] == '#':
			continue
		case line[0] == '[':
			name, rest, ok := strings.Cut(strings.TrimPrefix(line, "[["), "]]")
			if !strings.HasPrefix(line, "[[") || !ok || strings.TrimSpace(name) != "node" || !onlyComment(rest) {
				return nil, fmt.Errorf("line %d: %q, want [[node]]", n, line)
			}
			if open && !set["relay"] {
				return nil, fmt.Errorf("line %d: the node before it has no relay", n)
			}
			seeds, open = append(seeds, Seed{}), true
			clear(set)
			continue
		case !open:
			return nil, fmt.Errorf("line %d: a key outside of [[node]]", n)
		}
		key, value, err := tomlPair(line)
		if err == nil && set[key] {
			err = fmt.Errorf("%s is there twice", key)
		}
		if err == nil {
			set[key] = true
			err = seeds[len(seeds)-1].set(key, value)
		}
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", n, err)
		}
	}
	if err := lines.Err(); err != nil {
		return nil, err
	}
	if open && !set["relay"] {
		return nil, errors.New("the last node has no relay")
	}
	return seeds, nil
}

func onlyComment(rest string) bool {
	rest = strings.TrimSpace(rest)
	return rest == "" || rest[0] == '#'
}

// tomlPair reads `key = "value"`.
func tomlPair(line string) (key, value string, err error) {
	key, rest, ok := strings.Cut(line, "=")
	key, rest = strings.TrimSpace(key), strings.TrimSpace(rest)
	if !ok || rest == "" || (rest[0] != '"' && rest[0] != '\'') {
		return "", "", fmt.Errorf("%q, want key = \"value\"", line)
	}
	end := 1
	for end < len(rest) && rest[end] != rest[0] {
		if rest[0] == '"' && rest[end] == '\\' {
			end++
		}
		end++
	}
	if end >= len(rest) || !onlyComment(rest[end+1:]) {
		return "", "", fmt.Errorf("%q: the string does not end, or something follows it", line)
	}
	if value = rest[1:end]; rest[0] == '"' {
		if value, err = strconv.Unquote(rest[:end+1]); err != nil {
			return "", "", fmt.Errorf("%q: %w", line, err)
		}
	}
	return key, value, nil
}

func (s *Seed) set(key, value string) (err error) {
	switch key {
	case "relay":
		s.Relay, err = nostr.NormalizeRelayURL(value)
	case "did":
		s.Node, err = identity.ParseDID(value)
	case "operator":
		s.Operator = value
	default:
		err = fmt.Errorf("%q is none of relay, did, operator", key)
	}
	return err
}

// TXTResolver looks up DNS TXT records; *net.Resolver is one.
type TXTResolver interface {
	LookupTXT(ctx context.Context, name string) ([]string, error)
}

var _ TXTResolver = (*net.Resolver)(nil)

// dnsSeedPrefix begins a TXT record that names a seed, as --bootstrap takes it.
const dnsSeedPrefix = "fleetmesh="

// maxDNSSeeds is how many seeds of one name are taken.
const maxDNSSeeds = 32

// dnsSeeds asks the names that the operator listed. Records that are no seed are passed over.
func dnsSeeds(ctx context.Context, r TXTResolver, names []string) (seeds []Seed, err error) {
	for _, name := range names {
		records, e := r.LookupTXT(ctx, name)
		if e != nil {
			err = errors.Join(err, fmt.Errorf("look up the seeds of %s: %w", name, e))
			continue
		}
		taken := 0
		for _, text := range records {
			value, ok := strings.CutPrefix(text, dnsSeedPrefix)
			if !ok || taken == maxDNSSeeds {
				continue
			}
			if seed, e := ParseSeed(value); e == nil {
				seeds = append(seeds, seed)
				taken++
			}
		}
	}
	return seeds, err
}
