package daemon

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/goccy/go-yaml"

	"fleetmesh.org/fleetmesh/internal/identity"
	"fleetmesh.org/fleetmesh/internal/store"
	"fleetmesh.org/fleetmesh/nostr"
	"fleetmesh.org/fleetmesh/spec"
)

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

// provision makes a node directory with the operator's default configuration, changed by edit.
func provision(t *testing.T, p Provisioning, edit func(*Config)) Dir {
	t.Helper()
	d := Dir(filepath.Join(t.TempDir(), "node"))
	c := DefaultConfig("127.0.0.1:7777")
	if edit != nil {
		edit(c)
	}
	if err := d.Provision(c, p); err != nil {
		t.Fatal(err)
	}
	return d
}

// TestConfigurationFitsTheSchema holds what this program writes and takes against the manifest's schema.
func TestConfigurationFitsTheSchema(t *testing.T) {
	full := DefaultConfig("127.0.0.1:7777")
	s := &full.Spec
	s.Class = "anchor"
	s.Operator = Operator{Pubkey: "79be667ef9dcbbac55a06295ce870b07029bfcdb2dce28d959f2815b16f81798", PolicyURL: "https://relay.example.org/policy.txt", PolicyFile: "policy.txt"}
	s.Endpoints = []EndpointSpec{{"wss", "wss://relay.example.org", 10}}
	s.Relays = []string{"wss://relay.example.org"}
	s.Shards = []ShardSpec{{Name: "notes", Filter: map[string]any{"kinds": []int{1}}, Since: 1, Until: 2, Completeness: "asserted"}}
	s.Federation = Federation{Enrolment: "invitation", WindowSeconds: 60, DescriptorPoW: 8, SeekPeers: 4, DNSSeeds: []string{"seed.example.org"}, Diagnostics: true}
	s.Relay.Limits.EventsPerSecond = -1
	for name, c := range map[string]*Config{"default": DefaultConfig("127.0.0.1:7777"), "full": full} {
		if err := c.check(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		text, err := yaml.YAMLToJSON(c.YAML())
		if err != nil {
			t.Fatal(err)
		}
		if err := spec.ValidateManifest(text); err != nil {
			t.Errorf("%s: %v\n%s", name, err, text)
		}
		if back, err := ParseConfig(c.YAML()); err != nil || !bytes.Equal(back.YAML(), c.YAML()) {
			t.Errorf("%s is not read as it was written: %v", name, err)
		}
	}
}

func TestConfigurationRefusesWhatMakesNoDescriptor(t *testing.T) {
	for what, edit := range map[string]func(*Config){
		"spec.class is anchor": func(c *Config) { c.Spec.Class = "anchor" },
		"spec.class is leaf": func(c *Config) {
			c.Spec.Class, c.Spec.Endpoints = "leaf", []EndpointSpec{{Transport: "unix", Address: "/x"}}
		},
		"spec.operator.pubkey": func(c *Config) { c.Spec.Operator.Pubkey = "zz" },
		"spec.relays":          func(c *Config) { c.Spec.Relays = []string{"relay"} },
		"spec.mediators":       func(c *Config) { c.Spec.Mediators = []string{"did:nostr:1"} },
		"spec.endpoints":       func(c *Config) { c.Spec.Endpoints = []EndpointSpec{{"wss", "mesh.example.org", 1}} },
		"spec.shards":          func(c *Config) { c.Spec.Shards = []ShardSpec{{Name: "x", Filter: map[string]any{"kind": 1}}} },
		"completeness": func(c *Config) {
			c.Spec.Shards = []ShardSpec{{Name: "x", Filter: map[string]any{}, Completeness: "all"}}
		},
		"spec.federation.enrolment":  func(c *Config) { c.Spec.Federation.Enrolment = "all" },
		"spec.federation.seekPeers":  func(c *Config) { c.Spec.Federation.SeekPeers = -1 },
		"spec.shards has \"\": each": func(c *Config) { c.Spec.Shards = []ShardSpec{{}} },
	} {
		c := DefaultConfig("127.0.0.1:7777")
		edit(c)
		if err := c.check(); err == nil || !strings.Contains(err.Error(), what) {
			t.Errorf("%s: %v", what, err)
		}
		d := Dir(filepath.Join(t.TempDir(), "node"))
		if err := d.Provision(c, Provisioning{}); err == nil || d.Exists() {
			t.Errorf("%s: a node was made of it: %v", what, err)
		}
	}
}

func TestProvisioning(t *testing.T) {
	node := nostr.SecretKey{31: 7}
	derived := provision(t, Provisioning{Node: &node, Derive: true}, nil)
	k, err := derived.LoadKeys()
	if err != nil {
		t.Fatal(err)
	}
	want, err := identity.DeriveKeys(node, 0, 0)
	if err != nil || *k != *want {
		t.Errorf("derived %+v, want %+v, %v", k, want, err)
	}
	// Derivation happens once: whoever replaces the node key keeps the other two.
	if _, err := derived.ImportNodeKey(nostr.SecretKey{31: 9}, "", 5); err != nil {
		t.Fatal(err)
	}
	again, err := derived.LoadKeys()
	if err != nil || again.Agreement != want.Agreement || again.Transport != want.Transport || again.Node != (nostr.SecretKey{31: 9}) {
		t.Errorf("after an import: %+v, %v", again, err)
	}
	if text, err := os.ReadFile(derived.keyFile("node") + ".replaced-5"); err != nil || !strings.HasPrefix(string(text), "00000") {
		t.Errorf("the replaced key: %q, %v", text, err)
	}
	if err := derived.Provision(DefaultConfig("127.0.0.1:1"), Provisioning{}); err == nil {
		t.Error("a second node was made in one directory")
	}
	if err := os.Remove(derived.Config()); err != nil {
		t.Fatal(err)
	}
	if err := derived.Provision(DefaultConfig("127.0.0.1:1"), Provisioning{Derive: true}); err == nil {
		t.Error("keys were replaced")
	}
}

func TestKeyFilesOfOthersAreRefused(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("modes are those of Unix")
	}
	for _, name := range []string{"node.key", "agreement.key", "transport.key"} {
		d := provision(t, Provisioning{}, nil)
		path := filepath.Join(d.Keys(), name)
		if err := os.Chmod(path, 0o640); err != nil {
			t.Fatal(err)
		}
		if _, err := d.LoadKeys(); err == nil || !strings.Contains(err.Error(), "chmod 600") {
			t.Errorf("%s of mode 0640: %v", name, err)
		}
	}
}

func TestPassphrase(t *testing.T) {
	d := provision(t, Provisioning{Passphrase: "correct horse"}, nil)
	t.Setenv(PassphraseEnv, "")
	if _, err := d.LoadKeys(); err == nil || !strings.Contains(err.Error(), PassphraseEnv) {
		t.Errorf("without a passphrase: %v", err)
	}
	if _, err := d.PublicKey(); err != nil {
		t.Errorf("who the node is needs no passphrase: %v", err)
	}
	t.Setenv(PassphraseEnv, "wrong")
	if _, err := d.LoadKeys(); !errors.Is(err, nostr.ErrPassphrase) {
		t.Errorf("a wrong passphrase: %v", err)
	}
	file := filepath.Join(t.TempDir(), "passphrase")
	if err := os.WriteFile(file, []byte("correct horse\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv(PassphraseFileEnv, file)
	k, err := d.LoadKeys()
	if err != nil {
		t.Fatal(err)
	}
	if b, _ := d.Backend(); !strings.Contains(b, "NIP-49") {
		t.Errorf("the back end is %q", b)
	}
	if err := d.Protect(""); err != nil {
		t.Fatal(err)
	}
	if plain, err := d.LoadKeys(); err != nil || *plain != *k {
		t.Errorf("after Unprotect: %v", err)
	}
}

func TestRotationKeepsTheFormerKeyForAWhile(t *testing.T) {
	d := provision(t, Provisioning{}, nil)
	before, err := d.LoadKeys()
	if err != nil {
		t.Fatal(err)
	}
	const now, overlap = 1_800_000_000, 3600
	if err := d.Rotate("agreement", overlap, now); err != nil {
		t.Fatal(err)
	}
	if err := d.Rotate("transport", 0, now); err != nil {
		t.Fatal(err)
	}
	after, err := d.LoadKeys()
	if err != nil || after.Agreement == before.Agreement || after.Transport == before.Transport || after.Node != before.Node {
		t.Fatalf("after a rotation: %v", err)
	}
	keys, err := d.boundKeys(now + overlap - 1)
	if err != nil || len(keys.agreement) != 2 || len(keys.transport) != 1 ||
		keys.agreement[0] != (identity.BoundKey{Key: after.Agreement.Public()}) || keys.agreement[1] != (identity.BoundKey{Key: before.Agreement.Public(), Expires: now + overlap}) {
		t.Errorf("within the overlap: %+v, %v", keys, err)
	}
	if keys, err = d.boundKeys(now + overlap); err != nil || len(keys.agreement) != 1 {
		t.Errorf("after the overlap: %+v, %v", keys, err)
	}
	for _, role := range []string{"node", "", "../node"} {
		if err := d.Rotate(role, overlap, now); err == nil {
			t.Errorf("the role %q was rotated", role)
		}
	}
}

func TestBackupAndRestore(t *testing.T) {
	d := provision(t, Provisioning{}, func(c *Config) { c.Spec.Relays = []string{"wss://relay.example.org"} })
	if err := d.Rotate("agreement", 3600, time.Now().Unix()); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "backup.tar")
	if _, err := d.Backup(path); err != nil {
		t.Fatal(err)
	}
	if fi, err := os.Stat(path); err != nil || fi.Mode().Perm() != 0o600 {
		t.Errorf("the archive: %v, %v", fi.Mode(), err)
	}
	if _, err := d.Backup(path); err == nil {
		t.Error("an archive was overwritten")
	}
	if err := d.Restore(path); err == nil {
		t.Error("a node was overwritten")
	}
	fresh := Dir(filepath.Join(t.TempDir(), "restored"))
	if err := fresh.Restore(path); err != nil {
		t.Fatal(err)
	}
	want, _ := d.LoadKeys()
	got, err := fresh.LoadKeys()
	if err != nil || *got != *want {
		t.Errorf("restored keys: %v", err)
	}
	if former, err := fresh.FormerKeys("agreement", time.Now().Unix()); err != nil || len(former) != 1 {
		t.Errorf("restored former keys: %v, %v", former, err)
	}
	if c, err := LoadConfig(fresh.Config()); err != nil || len(c.Spec.Relays) != 1 {
		t.Errorf("restored configuration: %v", err)
	}
}

func TestRestoreRefusesWhatIsNoBackup(t *testing.T) {
	whole := map[string]string{"node.yaml": string(DefaultConfig("127.0.0.1:1").YAML()), "keys/node.key": "x", "keys/agreement.key": "x", "keys/transport.key": "x"}
	for what, change := range map[string]func(map[string]string){
		"a path out":    func(m map[string]string) { m["../escaped"] = "x" },
		"a strange key": func(m map[string]string) { m["keys/other.key"] = "x" },
		"no node key":   func(m map[string]string) { delete(m, "keys/node.key") },
		"bad yaml":      func(m map[string]string) { m["node.yaml"] = "kind: [" },
	} {
		files := map[string]string{}
		for k, v := range whole {
			files[k] = v
		}
		change(files)
		var buf bytes.Buffer
		w := tar.NewWriter(&buf)
		for name, text := range files {
			if err := w.WriteHeader(&tar.Header{Name: name, Mode: 0o600, Size: int64(len(text)), Typeflag: tar.TypeReg}); err != nil {
				t.Fatal(err)
			}
			if _, err := w.Write([]byte(text)); err != nil {
				t.Fatal(err)
			}
		}
		w.Close()
		path := filepath.Join(t.TempDir(), "backup.tar")
		if err := os.WriteFile(path, buf.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
		d := Dir(filepath.Join(t.TempDir(), "node"))
		if err := d.Restore(path); err == nil || d.Exists() {
			t.Errorf("%s: %v", what, err)
		}
	}
}

func TestResolverNeverAnswersWithWhatExpired(t *testing.T) {
	r := newResolver()
	d := &identity.Descriptor{Subject: nostr.SecretKey{31: 3}.PubKey(), Expiration: 1000}
	r.put(d, 900)
	if _, ok := r.get(d.Subject, 999); !ok {
		t.Error("what is live was forgotten")
	}
	if _, ok := r.get(d.Subject, 1000); ok {
		t.Error("what expired was answered")
	}
	long := &identity.Descriptor{Subject: d.Subject, Expiration: 1 << 40}
	r.put(long, 900)
	if _, ok := r.get(d.Subject, 900+int64(resolverAge/time.Second)); ok {
		t.Error("an old verdict was answered")
	}
	r.put(long, 900)
	r.forget(d.Subject)
	if _, ok := r.get(d.Subject, 901); ok {
		t.Error("what was revoked was answered")
	}
	for i := range resolverSize + 10 {
		r.put(&identity.Descriptor{Subject: nostr.PubKey{byte(i), byte(i >> 8), 1}, Expiration: 1 << 40}, 900)
	}
	if len(r.held) > resolverSize {
		t.Errorf("%d are remembered", len(r.held))
	}
}

// TestOfflineResolveAndIdentify asks a stopped node who it is, before and after its key is revoked.
func TestOfflineResolveAndIdentify(t *testing.T) {
	d := provision(t, Provisioning{}, func(c *Config) {
		c.Spec.Endpoints = []EndpointSpec{{"wss", "wss://mesh.example.org:443", 10}}
	})
	o, err := OpenOffline(d)
	if err != nil {
		t.Fatal(err)
	}
	defer o.Close()
	ctx := context.Background()
	id, err := o.Identify(ctx, d)
	if err != nil || id.Descriptor != nil || id.Revoked || len(id.Agreement) != 1 {
		t.Fatalf("%+v, %v", id, err)
	}
	doc, err := o.Resolve(ctx, d, id.DID)
	if err != nil || len(doc.KeyAgreement) != 1 || len(doc.Service) != 2 || doc.Service[1].Endpoint != "wss://mesh.example.org:443" {
		t.Errorf("%+v, %v", doc, err)
	}
	if doc, err = o.Resolve(ctx, d, "did:key:z6MkhaXgBZDvotDkL5257faiztiGiC2QtKLGpbnnEGta2doK"); err != nil || len(doc.VerificationMethod) != 1 {
		t.Errorf("did:key: %+v, %v", doc, err)
	}
	if _, err = o.Resolve(ctx, d, "did:web:example.org"); identity.CodeOf(err) != identity.BadDID {
		t.Errorf("did:web: %v", err)
	}
	if r, err := o.Revoke(ctx, d, RevokeParams{Reason: "retired", Print: true}); err != nil || r.Published {
		t.Errorf("a revocation that is only printed: %+v, %v", r, err)
	}
	if _, err := o.Revoke(ctx, d, RevokeParams{Reason: "retired", Successor: id.DID}); err == nil {
		t.Error("a node was made its own successor")
	}
	if r, err := o.Revoke(ctx, d, RevokeParams{Reason: "retired"}); err != nil || !r.Published {
		t.Fatalf("%+v, %v", r, err)
	}
	if id, err = o.Identify(ctx, d); err != nil || !id.Revoked {
		t.Errorf("after its revocation: %+v, %v", id, err)
	}
	if doc, err = o.Resolve(ctx, d, ""); err != nil || len(doc.KeyAgreement) != 0 || len(doc.Service) != 0 {
		t.Errorf("the document of a revoked key: %+v, %v", doc, err)
	}
}

func TestFromStoreTakesNoExpiredDescriptor(t *testing.T) {
	s := store.NewMemory()
	agent, err := identity.NewKeyAgent(nostr.SecretKey{31: 5})
	if err != nil {
		t.Fatal(err)
	}
	d := provision(t, Provisioning{Node: &nostr.SecretKey{31: 5}}, nil)
	c, err := LoadConfig(d.Config())
	if err != nil {
		t.Fatal(err)
	}
	now := int64(1_800_000_000)
	desc, err := describe(d, c, facts{self: agent.PubKey(), face: "ws://127.0.0.1:7777"}, now)
	if err != nil {
		t.Fatal(err)
	}
	e := desc.Event()
	if err := identity.SignEvent(agent, e); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Insert(t.Context(), []*nostr.Event{e}, now); err != nil {
		t.Fatal(err)
	}
	if got, err := fromStore(t.Context(), s, agent.PubKey(), now+1); err != nil || got == nil {
		t.Errorf("a live descriptor: %v, %v", got, err)
	}
	if got, err := fromStore(t.Context(), s, agent.PubKey(), desc.Expiration); err != nil || got != nil {
		t.Errorf("an expired descriptor: %v, %v", got, err)
	}
}

func FuzzBackup(f *testing.F) {
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	for name, text := range map[string]string{"node.yaml": string(DefaultConfig("127.0.0.1:1").YAML()), "keys/node.key": "x", "keys/agreement.key": "x", "keys/transport.key": "x"} {
		if err := w.WriteHeader(&tar.Header{Name: name, Mode: 0o600, Size: int64(len(text)), Typeflag: tar.TypeReg}); err != nil {
			f.Fatal(err)
		}
		if _, err := w.Write([]byte(text)); err != nil {
			f.Fatal(err)
		}
	}
	w.Close()
	f.Add(buf.Bytes())
	f.Add([]byte("no archive"))
	f.Fuzz(func(t *testing.T, archive []byte) {
		files, err := parseBackup(bytes.NewReader(archive))
		for name := range files {
			if err == nil && (strings.Contains(name, "..") || strings.HasPrefix(name, "/")) {
				t.Errorf("a file %q", name)
			}
		}
	})
}

func FuzzConfig(f *testing.F) {
	f.Add(string(DefaultConfig("127.0.0.1:7777").YAML()))
	f.Add("apiVersion: fleetmesh.org/v1alpha1\nkind: MeshNode\nspec: {shards: [{name: x, filter: {kinds: [1]}}]}")
	f.Fuzz(func(t *testing.T, text string) {
		c, err := ParseConfig([]byte(text))
		if err != nil {
			return
		}
		if _, err := ParseConfig(c.YAML()); err != nil {
			t.Errorf("what was taken is not taken again: %v\n%s", err, c.YAML())
		}
	})
}
