package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"fleetmesh.org/fleetmesh/internal/control"
	"fleetmesh.org/fleetmesh/internal/manifest"
	"fleetmesh.org/fleetmesh/nostr"
)

// declare is a node in this process, to which manifests are applied over its control socket.
type declare struct {
	t     *testing.T
	dir   Dir
	relay string
	ctl   *control.Client
}

func startDeclared(t *testing.T, change ...func(*Config)) *declare {
	t.Helper()
	top, err := os.MkdirTemp("", "mf") // t.TempDir may exceed a Unix socket's length
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(top) })
	dir := Dir(filepath.Join(top, "n"))
	c := DefaultConfig("127.0.0.1:0")
	c.Spec.Federation.DescriptorPoW = 1
	c.Spec.Relay.Limits = Limits{MaxConnections: 400, ConnectionsPerIP: 400, EventsPerSecond: -1}
	for _, f := range change {
		f(c)
	}
	if err := dir.Init(c); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ready, done := make(chan Ready, 1), make(chan error, 1)
	go func() {
		done <- Run(ctx, Options{Dir: dir, Log: quiet(), Bootstrap: []Seed{}, Ready: func(r Ready) { ready <- r }})
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("the node ended with %v", err)
		}
	})
	select {
	case r := <-ready:
		ctl, err := control.Dial(t.Context(), r.Control)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { ctl.Close() })
		return &declare{t, dir, r.Relay, ctl}
	case err := <-done:
		done <- err
		t.Fatal(err)
	}
	return nil
}

// baseline is the node.yaml of startDeclared, with more lines under spec.relay.
func baseline(rules string) string {
	return `apiVersion: fleetmesh.org/v1alpha1
kind: MeshNode
metadata: {name: meshnode}
spec:
  class: edge
  relay:
    listen: 127.0.0.1:0
    name: meshnode
    description: A fleetmesh node.
    limits: {maxConnections: 400, connectionsPerIp: 400, eventsPerSecond: -1}
` + rules + `  storage: {engine: eventlog, path: store}
  federation: {enrolment: closed, descriptorPow: 1}
`
}

// peeringOf declares a peering with another node of this process.
func peeringOf(other *declare, filter string) string {
	return "---\napiVersion: fleetmesh.org/v1alpha1\nkind: Peering\nmetadata: {name: p}\nspec: {peer: '" + other.get().DID + "', relays: ['" + other.relay + "'], ingress: {filter: " + filter + "}}\n"
}

func (d *declare) params(text string) manifest.Params {
	d.t.Helper()
	set, err := manifest.Parse("m.yaml", []byte(text))
	if err == nil {
		err = manifest.Check(set)
	}
	if err != nil {
		d.t.Fatal(err)
	}
	return manifest.Params{Documents: manifest.Set(set).Documents()}
}

func (d *declare) apply(text string) *manifest.Applied {
	d.t.Helper()
	var done manifest.Applied
	if err := d.ctl.Call(d.t.Context(), manifest.MethodApply, d.params(text), &done, nil); err != nil {
		d.t.Fatal(err)
	}
	return &done
}

func (d *declare) get() *manifest.Running {
	d.t.Helper()
	var run manifest.Running
	if err := d.ctl.Call(d.t.Context(), manifest.MethodGet, nil, &run, nil); err != nil {
		d.t.Fatal(err)
	}
	return &run
}

// minPoW is what the information document tells.
func (d *declare) minPoW() int {
	d.t.Helper()
	req, err := http.NewRequestWithContext(d.t.Context(), http.MethodGet, strings.Replace(d.relay, "ws", "http", 1), nil)
	if err != nil {
		d.t.Fatal(err)
	}
	req.Header.Set("Accept", "application/nostr+json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		d.t.Fatal(err)
	}
	defer resp.Body.Close()
	var doc struct {
		Limitation struct {
			MinPoW int `json:"min_pow_difficulty"`
		} `json:"limitation"`
	}
	text, err := io.ReadAll(resp.Body)
	if err == nil {
		err = json.Unmarshal(text, &doc)
	}
	if err != nil {
		d.t.Fatal(err)
	}
	return doc.Limitation.MinPoW
}

// publish sends an event of a kind and says whether it was taken.
func publish(t *testing.T, c *websocket.Conn, key nostr.SecretKey, kind nostr.Kind, text string) (bool, string) {
	t.Helper()
	e := &nostr.Event{CreatedAt: time.Now().Unix(), Kind: kind, Tags: []nostr.Tag{}, Content: text}
	if err := e.Sign(key); err != nil {
		t.Fatal(err)
	}
	if err := c.Write(t.Context(), websocket.MessageText, nostr.AppendPublish(nil, e)); err != nil {
		t.Fatal(err)
	}
	for {
		_, raw, err := c.Read(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		msg, err := nostr.ParseServerMessage(raw)
		if err != nil {
			t.Fatal(err)
		}
		if ok, is := msg.(*nostr.ServerOK); is && ok.ID == e.ID.String() {
			return ok.OK, ok.Reason
		}
	}
}

// Two hundred clients stay connected, and are each held to what is in force, while rules and peerings change ten times.
func TestApplyDropsNobody(t *testing.T) {
	d, other := startDeclared(t), startDeclared(t)
	key, err := nostr.GenerateKey()
	if err != nil {
		t.Fatal(err)
	}
	clients := make([]*websocket.Conn, 200)
	for i := range clients {
		c, _, err := websocket.Dial(t.Context(), d.relay, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer c.CloseNow()
		clients[i] = c
	}
	for round := range 10 {
		denied := 1000 + round
		filter := fmt.Sprintf("{kinds: [1], since: %d}", round+1)
		done := d.apply(baseline(fmt.Sprintf("    denyKinds: [%d]\n    minPow: %d\n", denied, round%2)) + peeringOf(other, filter))
		if done.Restart || done.Done == 0 {
			t.Fatalf("round %d: %+v", round, done)
		}
		if pow := d.minPoW(); pow != round%2 {
			t.Errorf("round %d: the information document says min_pow_difficulty %d", round, pow)
		}
		run := d.get()
		if run.Hash != done.Hash || len(run.Pending)+len(run.Drift) > 0 || len(run.Peers) != 1 || !strings.Contains(string(run.Peers[0].Wants[0].Filter), fmt.Sprint(`"since":`, round+1)) {
			t.Errorf("round %d: %+v", round, run)
		}
		for _, c := range clients[round*20 : round*20+20] {
			if ok, why := publish(t, c, key, nostr.Kind(denied), "x"); ok || !strings.Contains(why, fmt.Sprint(denied)) && !strings.HasPrefix(why, "blocked") && !strings.HasPrefix(why, "pow") {
				t.Errorf("round %d: kind %d was taken, or refused with %q", round, denied, why)
			}
		}
	}
	d.apply(baseline(""))
	for i, c := range clients {
		if ok, why := publish(t, c, key, 1, fmt.Sprint("note ", i)); !ok {
			t.Errorf("client %d: %s", i, why)
		}
	}
	if run := d.get(); len(run.Peers) != 0 {
		t.Errorf("the peering is declared no longer, and is there: %+v", run.Peers)
	}
}

func TestApplyWritesWhatNeedsARestart(t *testing.T) {
	d := startDeclared(t)
	before, err := os.ReadFile(d.dir.Config())
	if err != nil {
		t.Fatal(err)
	}
	done := d.apply(strings.Replace(baseline("    denyKinds: [4]\n"), "name: meshnode\n    desc", "name: harbour\n    desc", 1))
	if !done.Restart {
		t.Errorf("%+v", done.Changes)
	}
	c, err := LoadConfig(d.dir.Config())
	if err != nil || c.Spec.Relay.Name != "harbour" || len(c.Spec.Relay.DenyKinds) != 1 || c.Spec.Relay.Limits.MaxConnections != 400 {
		t.Errorf("node.yaml: %+v, %v", c, err)
	}
	kept, err := os.ReadFile(d.dir.Config() + ".previous")
	if err != nil || string(kept) != string(before) {
		t.Errorf("the node.yaml that was is not kept: %v", err)
	}
	run := d.get()
	if len(run.Pending) != 1 || run.Pending[0].Key != "spec.relay.name" {
		t.Errorf("pending %+v", run.Pending)
	}
	// An edit by hand is drift.
	if err := os.WriteFile(d.dir.Config(), before, 0o644); err != nil {
		t.Fatal(err)
	}
	if run := d.get(); len(run.Drift) != 2 {
		t.Errorf("drift %+v", run.Drift)
	}
}

func TestApplyIsAllOrNothing(t *testing.T) {
	d, peer := startDeclared(t), startDeclared(t)
	var refused *control.Error
	other := strings.Replace(baseline("    denyKinds: [4]\n"), "  storage: {engine: eventlog, path: store}", "  storage: {engine: eventlog, path: elsewhere}", 1)
	if err := d.ctl.Call(t.Context(), manifest.MethodApply, d.params(other), nil, nil); !errors.As(err, &refused) || !strings.Contains(err.Error(), "spec.storage.path") {
		t.Errorf("a refused key: %v", err)
	}
	before, err := os.ReadFile(d.dir.Config())
	if err != nil {
		t.Fatal(err)
	}
	// The record cannot be written: everything done before is undone.
	if err := os.Mkdir(d.dir.manifestRecord(), 0o700); err != nil {
		t.Fatal(err)
	}
	ours := baseline("    denyKinds: [4]\n") + peeringOf(peer, "{kinds: [1]}")
	err = d.ctl.Call(t.Context(), manifest.MethodApply, d.params(ours), nil, nil)
	if err == nil {
		t.Error("applied, though it could not be recorded")
	}
	if err := os.Remove(d.dir.manifestRecord()); err != nil {
		t.Fatal(err)
	}
	after, err := os.ReadFile(d.dir.Config())
	if err != nil || string(after) != string(before) {
		t.Errorf("node.yaml is another: %v", err)
	}
	run := d.get()
	if run.Hash != "" || len(run.Peers) != 0 || len(run.Pending) != 0 {
		t.Errorf("afterwards: %+v", run)
	}
	p := d.params(ours)
	p.Hash = "another"
	if err := d.ctl.Call(t.Context(), manifest.MethodApply, p, nil, nil); !errors.As(err, &refused) || !strings.Contains(err.Error(), "plan again") {
		t.Errorf("a stale plan: %v", err)
	}
}

func TestConfigOf(t *testing.T) {
	set, err := manifest.Parse("m.yaml", []byte(baseline("")))
	if err != nil {
		t.Fatal(err)
	}
	if c, err := ConfigOf(set); err != nil || c.Spec.Federation.DescriptorPoW != 1 {
		t.Errorf("%+v, %v", c, err)
	}
	if _, err := ConfigOf(nil); err == nil {
		t.Error("a configuration of nothing")
	}
	// What this program writes is in the normal form already, so that a first plan of it finds no difference.
	def, err := manifest.Normal(DefaultConfig("127.0.0.1:7777").YAML())
	if err != nil {
		t.Fatal(err)
	}
	back, err := ParseConfig(manifest.ConfigYAML(def))
	if err != nil || string(back.YAML()) != string(DefaultConfig("127.0.0.1:7777").YAML()) {
		t.Errorf("%v\n%s", err, manifest.ConfigYAML(def))
	}
}

// Each key that node.yaml may have stands in the published schema and in the table of what a change of it takes.
func TestEveryKeyCanBeDeclared(t *testing.T) {
	schema, err := manifest.Schema("MeshNode")
	if err != nil {
		t.Fatal(err)
	}
	var walk func(of reflect.Type, in map[string]any, at string)
	walk = func(of reflect.Type, in map[string]any, at string) {
		properties, _ := in["properties"].(map[string]any)
		for i := range of.NumField() {
			name, _, _ := strings.Cut(of.Field(i).Tag.Get("yaml"), ",")
			key := at + name
			below, ok := properties[name].(map[string]any)
			if !ok {
				t.Errorf("%s is not in the schema of MeshNode", key)
				continue
			}
			if r := manifest.RuleFor("MeshNode", key); strings.HasPrefix(key, "spec.") && r.Why == manifest.RuleFor("MeshNode", "spec.nothing").Why {
				t.Errorf("%s has no rule", key)
			}
			switch f := of.Field(i).Type; {
			case f.Kind() == reflect.Struct:
				walk(f, below, key+".")
			case f.Kind() == reflect.Slice && f.Elem().Kind() == reflect.Struct:
				items, _ := below["items"].(map[string]any)
				walk(f.Elem(), items, key+".")
			}
		}
	}
	// spec itself has no rule: each key below it has.
	var c Config
	walk(reflect.TypeOf(c), schema, "")
}
