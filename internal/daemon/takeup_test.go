package daemon

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"fleetmesh.org/fleetmesh/internal/identity"
	"fleetmesh.org/fleetmesh/internal/manifest"
	"fleetmesh.org/fleetmesh/internal/mesh"
	"fleetmesh.org/fleetmesh/nostr"
	"fleetmesh.org/fleetmesh/spec"
)

// told is the descriptor that the node's face serves.
func (d *declare) told() *identity.Descriptor {
	d.t.Helper()
	var page ExportPage
	filter := fmt.Sprintf(`{"kinds":[%d],"authors":["%s"]}`, spec.KindDescriptor, strings.TrimPrefix(d.get().DID, "did:nostr:"))
	if err := d.ctl.Call(d.t.Context(), "events.export", map[string]any{"filter": json.RawMessage(filter)}, &page, nil); err != nil {
		d.t.Fatal(err)
	}
	if len(page.Lines) != 1 {
		d.t.Fatalf("%d descriptors", len(page.Lines))
	}
	e, err := nostr.ParseEvent([]byte(page.Lines[0]))
	if err != nil {
		d.t.Fatal(err)
	}
	desc, err := identity.CheckDescriptor(e, identity.Rules{Now: time.Now().Unix()})
	if err != nil {
		d.t.Fatal(err)
	}
	return desc
}

// with is the baseline with more lines under spec.
func with(lines string) string {
	return strings.Replace(baseline(""), "  class: edge\n", "  class: edge\n"+lines, 1)
}

// Doors, the operator and shards are in force when apply returns: announced in one descriptor, open, and the old door shut but for who came by it.
func TestDoorsOperatorAndShardsAreLive(t *testing.T) {
	d := startDeclared(t)
	top := filepath.Dir(string(d.dir))
	door := func(name string) string { return filepath.Join(top, name) }
	key, err := nostr.GenerateKey()
	if err != nil {
		t.Fatal(err)
	}
	done := d.apply(with(fmt.Sprintf("  operator: {pubkey: %s}\n  endpoints:\n    - {transport: unix, address: %q, priority: 10}\n    - {transport: https, address: %q, priority: 20}\n  shards: [{name: notes, filter: {kinds: [1]}}]\n",
		key.PubKey(), door("a"), strings.Replace(d.relay, "ws", "http", 1)+"/didcomm")))
	if done.Restart {
		t.Errorf("%+v", done.Changes)
	}
	if got := d.told(); len(got.Endpoints) != 2 || got.Operator != key.PubKey() {
		t.Errorf("announced: %+v, operator %s", got.Endpoints, got.Operator)
	}
	there, err := net.Dial("unix", door("a"))
	if err != nil {
		t.Fatal(err)
	}
	defer there.Close()
	if resp, err := http.Post(strings.Replace(d.relay, "ws", "http", 1)+"/didcomm", "application/didcomm-encrypted+json", strings.NewReader("{}")); err != nil || resp.StatusCode == http.StatusNotFound || resp.StatusCode == http.StatusMethodNotAllowed {
		t.Errorf("the path that is announced: %v, %v", resp, err)
	} else {
		resp.Body.Close()
	}
	var claims []Claim
	if err := d.ctl.Call(t.Context(), "coverage.take", nil, &claims, nil); err != nil || len(claims) != 1 || claims[0].Shard != "notes" {
		t.Errorf("claims %+v, %v", claims, err)
	}

	d.apply(with(fmt.Sprintf("  endpoints:\n    - {transport: unix, address: %q, priority: 10}\n", door("b"))))
	if got := d.told(); len(got.Endpoints) != 1 || got.Endpoints[0].Address != door("b") || got.Operator != (nostr.PubKey{}) {
		t.Errorf("announced: %+v, operator %s", got.Endpoints, got.Operator)
	}
	if _, err := net.Dial("unix", door("a")); err == nil {
		t.Error("the door that went takes new streams")
	}
	if err := there.SetReadDeadline(time.Now().Add(100 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	var late net.Error
	if _, err := there.Read(make([]byte, 1)); !errors.As(err, &late) || !late.Timeout() {
		t.Errorf("who came by it was dropped: %v", err)
	}
	if c, err := net.Dial("unix", door("b")); err != nil {
		t.Error(err)
	} else {
		c.Close()
	}
	if err := d.ctl.Call(t.Context(), "coverage.take", nil, &claims, nil); err != nil || len(claims) != 0 {
		t.Errorf("claims %+v, %v", claims, err)
	}
}

// A door that cannot be opened, or a policy file that is not there, undoes the whole apply: the node is what it was, and says so.
func TestWhatCannotBeAnnouncedIsUndone(t *testing.T) {
	d := startDeclared(t)
	top := filepath.Dir(string(d.dir))
	first := fmt.Sprintf("  endpoints:\n    - {transport: unix, address: %q, priority: 10}\n", filepath.Join(top, "a"))
	d.apply(with(first))
	before, err := os.ReadFile(d.dir.Config())
	if err != nil {
		t.Fatal(err)
	}
	was := d.told()
	for name, c := range map[string]struct{ lines, want string }{
		"a door in no directory":      {first + fmt.Sprintf("    - {transport: unix, address: %q, priority: 11}\n", filepath.Join(top, "no", "where")), filepath.Join(top, "no", "where")},
		"a policy that is not there":  {first + "  operator: {pubkey: " + strings.Repeat("ab", 32) + ", policyFile: rules.txt}\n", "spec.operator.policyFile"},
		"a path that is the node's":   {first + "    - {transport: https, address: 'http://127.0.0.1/metrics', priority: 11}\n", "the node's own"},
		"a path that is no plain one": {first + "    - {transport: https, address: 'http://127.0.0.1/{x}', priority: 11}\n", "want a plain path"},
	} {
		text := strings.Replace(with(c.lines), "    limits: {", "    minPow: 9\n    limits: {", 1)
		err := d.ctl.Call(t.Context(), manifest.MethodApply, d.params(text), nil, nil)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", name, err)
		}
		after, err := os.ReadFile(d.dir.Config())
		if err != nil || string(after) != string(before) || d.minPoW() != 0 {
			t.Errorf("%s: node.yaml changed: %v, minPow %d", name, err, d.minPoW())
		}
		if run := d.get(); len(run.Pending)+len(run.Drift) > 0 {
			t.Errorf("%s: pending %+v, drift %+v", name, run.Pending, run.Drift)
		}
		if got := d.told(); !slices.Equal(got.Endpoints, was.Endpoints) || got.Operator != was.Operator {
			t.Errorf("%s: announced %+v", name, got.Endpoints)
		}
		if c, err := net.Dial("unix", filepath.Join(top, "a")); err != nil {
			t.Errorf("%s: the door that was: %v", name, err)
		} else {
			c.Close()
		}
		if _, err := os.Stat(d.dir.intention()); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: an intention is left: %v", name, err)
		}
	}
}

// A budget and the terms of a GrantPolicy are what grants say.
func TestBudgetAndTermsReachGrants(t *testing.T) {
	d, other := startDeclared(t), startDeclared(t)
	peering := strings.Replace(peeringOf(other, "{kinds: [1]}"), "ingress:", "tier: member, budget: {events_in: 123}, ingress:", 1)
	policy := "---\napiVersion: fleetmesh.org/v1alpha1\nkind: GrantPolicy\nmetadata: {name: g}\nspec: {tiers: {member: {req: 77}}, scope: {push: {kinds: [1]}, pull: {kinds: [1, 7]}}, receipt: {seconds: 60}}\n"
	d.apply(baseline("") + policy + peering)
	if err := other.ctl.Call(t.Context(), "peer.add", PeerParams{DID: d.get().DID, Relays: []string{d.relay}}, nil, nil); err != nil {
		t.Fatal(err)
	}
	var peers []mesh.Peer
	deadline := time.Now().Add(30 * time.Second)
	for len(peers) != 1 || peers[0].Issued == nil || peers[0].Stage != "active" {
		if err := d.ctl.Call(t.Context(), "peer.list", nil, &peers, nil); err != nil || time.Now().After(deadline) {
			t.Fatalf("%+v, %v", peers, err)
		}
	}
	s := peers[0].Standing
	if s.Limits[spec.LimitEventsIn] != 123 || s.Limits[spec.LimitReq] != 77 || peers[0].Caps[spec.LimitEventsIn] != 123 {
		t.Errorf("it stands at %v, set %v", s.Limits, peers[0].Caps)
	}
	for name, c := range map[string]struct{ doc, want string }{
		"beyond the scope": {strings.Replace(peering, "kinds: [1]", "kinds: [3]", 1), "than spec.scope.push"},
		"above the tier":   {strings.Replace(peering, "events_in: 123", "events_in: 3001", 1), "3000 a window"},
	} {
		docs, err := manifest.Parse("m.yaml", []byte(baseline("")+policy+c.doc))
		if err == nil {
			err = manifest.Check(docs)
		}
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	// By hand the same bounds hold.
	err := d.ctl.Call(t.Context(), "peer.add", PeerParams{DID: other.get().DID, Wants: []Want{{Shard: "x", Filter: []byte(`{"kinds":[3]}`), Mode: "pull"}}}, nil, nil)
	if err == nil || !strings.Contains(err.Error(), "spec.scope.push") {
		t.Errorf("by hand beyond the scope: %v", err)
	}
	// Revoked there, the peering ends, and cannot be begun by hand.
	revoked := strings.Replace(policy, "receipt: {seconds: 60}", "nodes: [{subject: '"+other.get().DID+"', tier: revoked}]", 1)
	d.apply(baseline("") + revoked)
	if run := d.get(); len(run.Peers) != 0 {
		t.Errorf("peers %+v", run.Peers)
	}
	if err := d.ctl.Call(t.Context(), "peer.add", PeerParams{DID: other.get().DID}, nil, nil); err == nil || !strings.Contains(err.Error(), "lists") {
		t.Errorf("begun by hand: %v", err)
	}
}

// An intention is done when the record is what its last step writes, and is undone otherwise; node.yaml goes back unless somebody edited it since.
func TestInterruptedApply(t *testing.T) {
	d := startDeclared(t)
	config, err := manifest.Normal([]byte(baseline("    minPow: 3\n")))
	if err != nil {
		t.Fatal(err)
	}
	dir := Dir(t.TempDir())
	record := manifest.Step{Do: manifest.Op{Verb: manifest.Record, Applied: []byte(`[]`)}}
	i := newIntention([]manifest.Step{{Do: manifest.Op{Verb: manifest.WriteConfig, Config: config}}, record}, []byte("as it was"))
	put := func(name string, text []byte) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(string(dir), name), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for name, c := range map[string]struct {
		config, record string
		left           bool
		want           string
	}{
		"before the first step": {"as it was", "", true, "as it was"},
		"node.yaml written":     {string(manifest.ConfigYAML(config)), "", true, "as it was"},
		"edited since":          {"mine", "", true, "mine"},
		"all done":              {string(manifest.ConfigYAML(config)), "[]", false, string(manifest.ConfigYAML(config))},
	} {
		put("node.yaml", []byte(c.config))
		os.Remove(dir.manifestRecord())
		if c.record != "" {
			put("manifests.json", []byte(c.record))
		}
		if err := dir.intend(i); err != nil {
			t.Fatal(err)
		}
		if err := dir.rollBackConfig(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		left, err := dir.interrupted()
		if err != nil || (left != nil) != c.left {
			t.Errorf("%s: left %+v, %v", name, left, err)
		}
		if text, err := os.ReadFile(dir.Config()); err != nil || string(text) != c.want {
			t.Errorf("%s: node.yaml is %q, %v", name, text, err)
		}
	}
	put("manifests.applying", []byte("{"))
	if err := dir.rollBackConfig(); err == nil || !strings.Contains(err.Error(), "manifests.applying") {
		t.Errorf("a broken intention: %v", err)
	}
	// Where it cannot be written nothing is begun.
	if err := os.Mkdir(d.dir.intention(), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := d.ctl.Call(t.Context(), manifest.MethodApply, d.params(baseline("    minPow: 3\n")), nil, nil); err == nil || d.minPoW() != 0 {
		t.Errorf("applied without an intention: %v", err)
	}
	if err := os.Remove(d.dir.intention()); err != nil {
		t.Fatal(err)
	}
}

// Who may read the counters.
func TestMetricsAreGuarded(t *testing.T) {
	dir := Dir(t.TempDir())
	if err := os.WriteFile(filepath.Join(string(dir), "token"), []byte("0123456789abcdef\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(string(dir), "short"), []byte("short\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	n := &node{opt: Options{Dir: dir}, log: quiet()}
	h := n.guardMetrics(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "counters") }))
	for _, c := range []struct {
		name   string
		spec   MetricsSpec
		from   string
		host   string
		header [2]string
		want   int
	}{
		{"from here", MetricsSpec{}, "127.0.0.1:5", "127.0.0.1:7777", [2]string{}, 200},
		{"from here by name", MetricsSpec{Access: "loopback"}, "[::1]:5", "localhost:7777", [2]string{}, 200},
		{"from here by IPv6", MetricsSpec{}, "[::1]:5", "[::1]:7777", [2]string{}, 200},
		{"from elsewhere", MetricsSpec{}, "192.0.2.7:5", "127.0.0.1:7777", [2]string{}, 403},
		{"through a proxy here", MetricsSpec{}, "127.0.0.1:5", "relay.example.org", [2]string{}, 403},
		{"through a proxy that says so", MetricsSpec{}, "127.0.0.1:5", "127.0.0.1:7777", [2]string{"X-Forwarded-For", "127.0.0.1"}, 403},
		{"a name that leads here", MetricsSpec{}, "127.0.0.1:5", "rebound.example:7777", [2]string{}, 403},
		{"public", MetricsSpec{Access: "public"}, "192.0.2.7:5", "relay.example.org", [2]string{}, 200},
		{"off", MetricsSpec{Access: "off"}, "127.0.0.1:5", "127.0.0.1", [2]string{}, 404},
		{"token", MetricsSpec{Access: "token", TokenFile: "token"}, "192.0.2.7:5", "relay.example.org", [2]string{"Authorization", "Bearer 0123456789abcdef"}, 200},
		{"another token", MetricsSpec{Access: "token", TokenFile: "token"}, "127.0.0.1:5", "127.0.0.1", [2]string{"Authorization", "Bearer 0123456789abcdeg"}, 401},
		{"no token", MetricsSpec{Access: "token", TokenFile: "token"}, "127.0.0.1:5", "127.0.0.1", [2]string{}, 401},
		{"a token file that is none", MetricsSpec{Access: "token", TokenFile: "nothing"}, "127.0.0.1:5", "127.0.0.1", [2]string{"Authorization", "Bearer "}, 503},
		{"a token that is too short", MetricsSpec{Access: "token", TokenFile: "short"}, "127.0.0.1:5", "127.0.0.1", [2]string{"Authorization", "Bearer short"}, 503},
	} {
		cfg := DefaultConfig("127.0.0.1:0")
		cfg.Spec.Metrics = c.spec
		if err := cfg.check(); err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
		n.conf.Store(cfg)
		r := httptest.NewRequest(http.MethodGet, "http://"+c.host+"/metrics", nil)
		r.RemoteAddr = c.from
		if c.header[0] != "" {
			r.Header.Set(c.header[0], c.header[1])
		}
		rec := httptest.NewRecorder()
		h.ServeHTTP(rec, r)
		if rec.Code != c.want || (rec.Body.String() == "counters") != (c.want == 200) {
			t.Errorf("%s: %d %q", c.name, rec.Code, rec.Body)
		}
	}
	for _, bad := range []MetricsSpec{{Access: "everybody"}, {Access: "token"}, {TokenFile: "token"}} {
		if len(bad.check()) == 0 {
			t.Errorf("%+v passes", bad)
		}
	}
	// It is live: the next request is held to it.
	d := startDeclared(t)
	if status, _ := d.page("/metrics"); status != http.StatusOK {
		t.Errorf("from here: %d", status)
	}
	d.apply(with("  metrics: {access: 'off'}\n"))
	if status, _ := d.page("/metrics"); status != http.StatusNotFound {
		t.Errorf("switched off: %d", status)
	}
}
