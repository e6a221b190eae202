package daemon

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"sort"
	"strings"
	"testing"
	"time"

	"github.com/goccy/go-yaml"

	"fleetmesh.org/fleetmesh/internal/gateway/border"
	"fleetmesh.org/fleetmesh/internal/policy"
	"fleetmesh.org/fleetmesh/internal/store"
	"fleetmesh.org/fleetmesh/nostr"
	"fleetmesh.org/fleetmesh/spec"
)

const exampleKey = "f9308a019258c31049344f85f89d5229b531c845836f99b08601f113bce036f9"

// TestPluginExamples runs every example of docs/plugins.md: as a part of node.yaml that is read strictly and fits the schema, and on events that it lets pass and stops.
func TestPluginExamples(t *testing.T) {
	if _, err := exec.LookPath("sh"); err != nil {
		t.Skip("there is no sh here")
	}
	t.Chdir(filepath.Join("..", ".."))
	text, err := os.ReadFile(filepath.Join("docs", "plugins.md"))
	if err != nil {
		t.Fatal(err)
	}
	key, err := nostr.ParsePubKey(exampleKey)
	if err != nil {
		t.Fatal(err)
	}
	friend := nostr.PubKey{1}
	e := func(kind nostr.Kind, by nostr.PubKey, content string, tags ...nostr.Tag) *nostr.Event {
		e := &nostr.Event{Kind: kind, PubKey: by, Content: content, Tags: tags}
		e.ID = e.ComputeID()
		return e
	}
	mined := e(1, key, "mined")
	for i := 0; nostr.PoWDifficulty(mined.ID) < 16; i++ {
		mined.Tags = []nostr.Tag{{"nonce", fmt.Sprint(i), "16"}}
		mined.ID = mined.ComputeID()
	}
	bristol := nostr.Tag{"t", "bristol"}
	cases := []struct{ pass, stop *nostr.Event }{
		{e(1, key, ""), e(7, key, "")},
		{e(1, key, ""), e(1, friend, "")},
		{mined, e(1, key, "not mined")},
		{e(1, key, "", bristol), e(1, key, "", bristol, nostr.Tag{"t", "nsfw"})},
		{e(1, friend, ""), e(1, nostr.PubKey{2}, "")},
		{e(1, key, "hello"), e(1, key, "a casino")},
		{e(1, key, "hello"), e(1984, key, "")},
	}
	follows := store.NewMemory()
	if _, err := follows.Insert(t.Context(), []*nostr.Event{e(3, key, "", nostr.Tag{"p", friend.String()})}, 1); err != nil {
		t.Fatal(err)
	}
	blocks := regexp.MustCompile("(?s)```yaml (pluginIn|pluginOut)\n(.*?)```").FindAllStringSubmatch(string(text), -1)
	if len(blocks) != len(cases) {
		t.Fatalf("%d examples, and %d cases for them", len(blocks), len(cases))
	}
	for i, b := range blocks {
		c := exampleConfig(t, b[2])
		cfg := map[string]*policy.SeamConfig{"pluginIn": c.Spec.PluginIn, "pluginOut": c.Spec.PluginOut}[b[1]]
		seam, err := policy.NewSeam(cfg, "spec."+b[1], t.TempDir(), nil)
		if err != nil || seam == nil {
			t.Fatalf("example %d: %v", i, err)
		}
		if cfg.Trust != nil {
			ctx, cancel := context.WithCancel(t.Context())
			seam.Run(ctx, follows, time.Now, func(policy.TrustReport, error) { cancel() })
		}
		got := seam.Ask(t.Context(), []*policy.Request{{Event: cases[i].pass, Source: policy.FromMesh}, {Event: cases[i].stop, Source: policy.FromMesh}})
		if got[0] != nil || got[1] == nil {
			t.Errorf("example %d: %v and %v for what should pass and what should not", i, got[0], got[1])
		}
		if err := seam.Close(); err != nil {
			t.Error(err)
		}
	}
}

// exampleConfig puts an example into a node.yaml, and holds it against the schema.
func exampleConfig(t *testing.T, block string) *Config {
	t.Helper()
	indented := "  " + strings.ReplaceAll(strings.TrimRight(block, "\n"), "\n", "\n  ")
	text := strings.Replace(string(DefaultConfig("127.0.0.1:7777").YAML()), "spec:\n", "spec:\n"+indented+"\n", 1)
	c, err := ParseConfig([]byte(text))
	if err != nil {
		t.Fatalf("%s\n%v", block, err)
	}
	var plain any
	if err := yaml.Unmarshal([]byte(text), &plain); err != nil {
		t.Fatal(err)
	}
	raw, err := json.Marshal(plain)
	if err != nil {
		t.Fatal(err)
	}
	if err := spec.ValidateManifest(raw); err != nil {
		t.Errorf("the schema refuses\n%s\n%v", block, err)
	}
	return c
}

// TestTrustKeepsWhatShrinks: a follow graph that could not be fetched does not lock out those who are in it.
func TestTrustKeepsWhatShrinks(t *testing.T) {
	root := nostr.PubKey{1}
	follow := func(at int64, n int) *nostr.Event {
		e := &nostr.Event{Kind: 3, PubKey: root, CreatedAt: at}
		for i := range n {
			e.Tags = append(e.Tags, nostr.Tag{"p", nostr.PubKey{2, byte(i), byte(i >> 8)}.String()})
		}
		e.ID = e.ComputeID()
		return e
	}
	path := filepath.Join(t.TempDir(), "trust")
	cfg := policy.TrustConfig{Roots: []nostr.PubKey{root}, Depth: 2, Keep: 0.8, Path: path, Knob: "x"}
	db := store.NewMemory()
	look := func(tr *policy.Trust) policy.TrustReport {
		r, err := tr.Refresh(t.Context(), db, 1000)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	put := func(e *nostr.Event) {
		if _, err := db.Insert(t.Context(), []*nostr.Event{e}, 1000); err != nil {
			t.Fatal(err)
		}
	}
	tr, err := policy.NewTrust(cfg)
	if err != nil {
		t.Fatal(err)
	}
	put(follow(1, 450))
	if r := look(tr); r.Shrunk || r.Found != 451 {
		t.Errorf("%+v", r)
	}
	put(follow(2, 130)) // 45,000 keys to 13,000
	if r := look(tr); !r.Shrunk || tr.Len() != 451 || !tr.Last().Shrunk {
		t.Errorf("%+v, %d keys", r, tr.Len())
	}
	if tr, err = policy.NewTrust(cfg); err != nil || tr.Len() != 451 {
		t.Fatalf("after a restart %d keys: %v", tr.Len(), err)
	}
	put(follow(3, 400))
	if r := look(tr); r.Shrunk || tr.Len() != 401 {
		t.Errorf("%+v, %d keys", r, tr.Len())
	}
	cfg.Path = filepath.Join(t.TempDir(), "missing", "trust")
	if tr, err = policy.NewTrust(cfg); err != nil {
		t.Fatal(err)
	}
	if _, err := tr.Refresh(t.Context(), db, 1000); err == nil || tr.Len() != 401 {
		t.Errorf("a list that cannot be kept is in force all the same, and said: %d, %v", tr.Len(), err)
	}
}

// TestGatewayFile holds the example of docs/gateway.md and the schema against what is read.
func TestGatewayFile(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", "gateway.md"))
	if err != nil {
		t.Fatal(err)
	}
	block := regexp.MustCompile("(?s)```yaml\n(.*?)```").FindStringSubmatch(string(text))[1]
	write := func(text string) string {
		path := filepath.Join(t.TempDir(), "gateway.yaml")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	c, err := LoadGateway(write(block))
	if err != nil {
		t.Fatal(err)
	}
	if c.Estate.Relays[0] != "wss://relay.estate.example/" || !c.Estate.Auth || c.Ingress.QuarantineSeconds != 3600 || c.Ingress.PluginIn == nil {
		t.Errorf("%+v", c)
	}
	for change, want := range map[[2]string]string{
		{"quarantineSeconds", "quarantine"}:                                "unknown field \"quarantine\"",
		{"release: auto", "release: never"}:                                "ingress.release",
		{"dir: /var/lib/meshnode-gateway", "dir: \"\""}:                    "dir is missing",
		{"wss://node.example.org", "wss://relay.estate.example"}:           "both sides",
		{"maxBytes: 1073741824", "maxBytes: 5"}:                            "or more",
		{"[{kinds: [0, 1, 3, 7, 10002]}]", "[{kinds: [0], search: dogs}]"}: "search",
	} {
		if !strings.Contains(block, change[0]) {
			t.Fatalf("no %q in the example", change[0])
		}
		if _, err := LoadGateway(write(strings.Replace(block, change[0], change[1], 1))); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v, want %q", change, err, want)
		}
	}
	raw, err := os.ReadFile(filepath.Join("..", "..", "docs", "gateway.schema.json"))
	if err != nil {
		t.Fatal(err)
	}
	var schema map[string]any
	if err := json.Unmarshal(raw, &schema); err != nil {
		t.Fatal(err)
	}
	sameKeys(t, "", schema, schema, reflect.TypeFor[border.Config]())
}

// sameKeys wants a schema and a type to have the same keys.
func sameKeys(t *testing.T, path string, root, schema map[string]any, typ reflect.Type) {
	if ref, ok := schema["$ref"].(string); ok {
		schema = root["$defs"].(map[string]any)[strings.TrimPrefix(ref, "#/$defs/")].(map[string]any)
	}
	if typ.Kind() == reflect.Pointer {
		typ = typ.Elem()
	}
	if typ.Kind() != reflect.Struct {
		return
	}
	props, _ := schema["properties"].(map[string]any)
	var want, got []string
	for key := range props {
		want = append(want, key)
	}
	for i := range typ.NumField() {
		key, _, _ := strings.Cut(typ.Field(i).Tag.Get("yaml"), ",")
		got = append(got, key)
		if sub, ok := props[key].(map[string]any); ok {
			sameKeys(t, path+"."+key, root, sub, typ.Field(i).Type)
		}
	}
	sort.Strings(want)
	sort.Strings(got)
	if !reflect.DeepEqual(want, got) {
		t.Errorf("keys of %q: the schema has %v, the program %v", path, want, got)
	}
}
