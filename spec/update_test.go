package spec

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
)

// -update writes what is generated: the schema digests inside kinds.json and
// messages.json, the lines of new protocol versions in PROTOCOLS, the vectors, the
// samples' ids and signatures, and the pages of docs/. Without it the same code
// only compares.
var update = flag.Bool("update", false, "write the generated parts of the vocabulary")

var schemaRef = regexp.MustCompile(`"file": "(schema/[^"]+)"(, "sha256": "[0-9a-f]*")?`)

// withSchemaDigests puts the digest of each schema beside its name.
func withSchemaDigests(t *testing.T, text []byte) []byte {
	t.Helper()
	return schemaRef.ReplaceAllFunc(text, func(m []byte) []byte {
		file := string(schemaRef.FindSubmatch(m)[1])
		sum, err := schemaDigest(os.DirFS("."), file)
		if err != nil {
			t.Fatal(err)
		}
		return fmt.Appendf(nil, `"file": "%s", "sha256": "%x"`, file, sum)
	})
}

// sameFile compares a generated file with what it should be, or writes it.
func sameFile(t *testing.T, name string, want []byte) {
	t.Helper()
	got, err := os.ReadFile(name)
	if err == nil && string(got) == string(want) {
		return
	}
	if !*update {
		t.Errorf("%s is out of date: run go test ./spec -update", name)
		return
	}
	if err := os.WriteFile(name, want, 0o644); err != nil {
		t.Fatal(err)
	}
	t.Logf("wrote %s", name)
}

// sourceFiles returns the three digested files as they stand on disk, with their
// schema digests in place.
func sourceFiles(t *testing.T) (kinds, messages, constants []byte) {
	t.Helper()
	read := func(name string) []byte {
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	return withSchemaDigests(t, read("kinds.json")), withSchemaDigests(t, read("messages.json")), read("constants.json")
}

func TestSchemaDigestsAreInPlace(t *testing.T) {
	k, m, _ := sourceFiles(t)
	sameFile(t, "kinds.json", k)
	sameFile(t, "messages.json", m)
}

// protocolDigests computes each block's digest from the text of messages.json.
func protocolDigests(messages []byte) (ids []string, sums map[string]string, err error) {
	var f struct{ Protocols []json.RawMessage }
	if err := json.Unmarshal(messages, &f); err != nil {
		return nil, nil, err
	}
	sums = map[string]string{}
	for _, block := range f.Protocols {
		var p struct{ PIURI string }
		if err := json.Unmarshal(block, &p); err != nil {
			return nil, nil, err
		}
		c, err := Canonical(block)
		if err != nil {
			return nil, nil, err
		}
		sum := sha256.Sum256(c)
		ids = append(ids, p.PIURI)
		sums[p.PIURI] = hex.EncodeToString(sum[:])
	}
	return ids, sums, nil
}

// recordProtocols returns the PROTOCOLS file with a line for each new version.
// It refuses a block that changed under a version already recorded: the version
// has to move when the wire moves.
func recordProtocols(published, messages []byte) ([]byte, error) {
	held, err := parseProtocols(published)
	if err != nil {
		return nil, err
	}
	ids, sums, err := protocolDigests(messages)
	if err != nil {
		return nil, err
	}
	out := slices.Clone(published)
	for _, id := range ids {
		switch was, ok := held[id]; {
		case !ok:
			out = fmt.Appendf(out, "%s %s\n", id, sums[id])
		case was != sums[id]:
			return nil, fmt.Errorf("%s changed under an unchanged version: its block hashes to %s, PROTOCOLS has %s; give it a new version", id, sums[id], was)
		}
	}
	return out, nil
}

func TestProtocolVersionsMoveWithTheirBlocks(t *testing.T) {
	_, m, _ := sourceFiles(t)
	published, err := os.ReadFile("PROTOCOLS")
	if err != nil {
		t.Fatal(err)
	}
	want, err := recordProtocols(published, m)
	if err != nil {
		t.Fatal(err)
	}
	sameFile(t, "PROTOCOLS", want)
}

func TestChangedBlockIsRefused(t *testing.T) {
	m := []byte(`{"protocols":[{"piuri":"https://fleetmesh.org/x/1.0","messages":["a"]}]}`)
	first, err := recordProtocols([]byte("# kept\n"), m)
	if err != nil || !strings.HasPrefix(string(first), "# kept\nhttps://fleetmesh.org/x/1.0 ") {
		t.Fatalf("first record: %q, %v", first, err)
	}
	if again, err := recordProtocols(first, m); err != nil || string(again) != string(first) {
		t.Errorf("an unchanged block rewrites the file: %q, %v", again, err)
	}
	changed := []byte(strings.Replace(string(m), `"a"`, `"b"`, 1))
	if _, err := recordProtocols(first, changed); err == nil || !strings.Contains(err.Error(), "unchanged version") {
		t.Errorf("a changed block under an unchanged version: %v", err)
	}
	moved := []byte(strings.Replace(string(changed), "1.0", "1.1", 1))
	second, err := recordProtocols(first, moved)
	if err != nil || !strings.HasPrefix(string(second), string(first)) || strings.Count(string(second), "\n") != 3 {
		t.Errorf("a moved version: %q, %v", second, err)
	}
	for _, bad := range []string{"x\n", "x 12\n", string(first) + strings.TrimPrefix(string(first), "# kept\n")} {
		if _, err := recordProtocols([]byte(bad), m); err == nil {
			t.Errorf("a broken PROTOCOLS file was read: %q", bad)
		}
	}
}

// What a node says of its protocols is what was published for their versions.
func TestProtocolDigestIsTheOnePublished(t *testing.T) {
	if *update {
		t.Skip("what is embedded here is older than what -update wrote")
	}
	published, err := PublishedProtocols()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range Messages().Protocols {
		d, ok := ProtocolDigest(p.PIURI)
		if got := hex.EncodeToString(d[:]); !ok || got != published[p.PIURI] {
			t.Errorf("%s: %s is not the digest published, %s", p.PIURI, got, published[p.PIURI])
		}
	}
	if _, ok := ProtocolDigest(PIURIRouting); ok {
		t.Error("a standard protocol has a digest here")
	}
	if len(DigestHex()) != 64 || Digest() == [32]byte{} {
		t.Errorf("digest %s", DigestHex())
	}
}

// Rewording a schema, or changing a definition that nothing of it uses, moves no digest; changing
// what it says does, also where that stands in another file.
func TestSchemaDigestCoversMeaningAlone(t *testing.T) {
	files := func(change ...string) fs.FS {
		m := fstest.MapFS{}
		for _, name := range []string{"schema/common.json", "schema/message/sync-1.0.json", "schema/object/receipt.json", "schema/message/budget-1.0.json"} {
			text, err := schemaFS.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			s := string(text)
			if len(change) == 3 && change[0] == name {
				if s = strings.ReplaceAll(s, change[1], change[2]); s == string(text) {
					t.Fatalf("%s holds no %s", name, change[1])
				}
			}
			m[name] = &fstest.MapFile{Data: []byte(s)}
		}
		return m
	}
	sum := func(f fs.FS, name string) [32]byte {
		d, err := schemaDigest(f, name)
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	const sync, budget, common = "schema/message/sync-1.0.json", "schema/message/budget-1.0.json", "schema/common.json"
	for _, c := range []struct {
		what, file string
		change     []string
		moves      bool
	}{
		{"a title", sync, []string{sync, "Bodies of", "The bodies of"}, false},
		{"a description of a shared definition", sync, []string{common, "32 octets in lower-case hex", "a hash"}, false},
		{"a shared definition that is not used", sync, []string{common, "^did:nostr:", "^did:web:"}, false},
		{"a body", sync, []string{sync, `"maxItems": 20000`, `"maxItems": 20001`}, true},
		{"a shared definition", sync, []string{common, "^[0-9a-f]{64}$", "^[0-9a-f]{66}$"}, true},
		{"a definition two files away", budget, []string{common, "^did:nostr:", "^did:web:"}, true},
	} {
		if moved := sum(files(c.change...), c.file) != sum(files(), c.file); moved != c.moves {
			t.Errorf("%s changes, and the digest of %s moves: %v, want %v", c.what, c.file, moved, c.moves)
		}
	}
	for _, bad := range []fs.FS{fstest.MapFS{}, files(sync, `#/$defs/hex32`, `#/$defs/hex33`), files(common, `{`, ``)} {
		if _, err := schemaDigest(bad, sync); err == nil {
			t.Error("a schema that leads nowhere has a digest")
		}
	}
}
