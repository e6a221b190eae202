package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/alecthomas/kong"

	"fleetmesh.org/fleetmesh/internal/command"
	"fleetmesh.org/fleetmesh/internal/control"
	"fleetmesh.org/fleetmesh/internal/manifest"
	"fleetmesh.org/fleetmesh/spec"
)

const (
	head = "apiVersion: fleetmesh.org/v1alpha1\n"
	self = "did:nostr:7bc08f8863ac795e3fdfcc26a47f6775a844366e0638a1fc30a6de4e7ac466c2"
	peer = "did:nostr:a401be193db781510201501edfb1e2b2b3f5d5e79f74aa2af3b54db98fe938dd"
)

const node = head + "kind: MeshNode\nmetadata: {name: here}\nspec:\n  class: edge\n"

// meshctl runs the command and returns its status and output.
func meshctl(t *testing.T, in string, args ...string) (int, string, string) {
	t.Helper()
	var out, errOut bytes.Buffer
	code := run(t.Context(), args, strings.NewReader(in), &out, &errOut)
	return code, out.String(), errOut.String()
}

func file(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "m.yaml")
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

// fakeNode serves manifest methods as a node does, and keeps what was applied.
func fakeNode(t *testing.T) string {
	t.Helper()
	config, err := manifest.Normal([]byte(node))
	if err != nil {
		t.Fatal(err)
	}
	now := &manifest.Running{DID: self, Config: config, InForce: config, Applied: []manifest.Recorded{}, Schemes: []string{"wss"}}
	plan := func(raw json.RawMessage) (*manifest.Plan, error) {
		var p manifest.Params
		if err := control.Params(raw, &p); err != nil {
			return nil, err
		}
		set, opt, err := p.Serve()
		if err != nil {
			return nil, err
		}
		return manifest.Make(set, now, opt), nil
	}
	return serve(t, map[string]control.Handler{
		manifest.MethodGet:  func(context.Context, json.RawMessage, func(any)) (any, error) { return now, nil },
		manifest.MethodPlan: func(_ context.Context, raw json.RawMessage, _ func(any)) (any, error) { return plan(raw) },
		manifest.MethodApply: func(_ context.Context, raw json.RawMessage, _ func(any)) (any, error) {
			p, err := plan(raw)
			if err != nil {
				return nil, err
			}
			if p.Refused {
				return nil, p.RefusedError()
			}
			for _, s := range p.Steps {
				switch s.Do.Verb {
				case manifest.WriteConfig:
					now.Config = s.Do.Config
				case manifest.TakeUp:
					now.InForce = manifest.TakeLive(now.InForce, s.Do.Config)
				case manifest.AddPeer:
					now.Peers = append(now.Peers, manifest.RunningPeer{DID: s.Do.Peer.DID, Wants: s.Do.Peer.Wants})
				case manifest.Record:
					if err := json.Unmarshal(s.Do.Applied, &now.Applied); err != nil {
						return nil, err
					}
					now.Hash = manifest.HashOf(now.Applied)
				}
			}
			return manifest.Applied{Plan: *p, Done: len(p.Steps)}, nil
		},
	})
}

func serve(t *testing.T, methods map[string]control.Handler) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "ctl") // t.TempDir may exceed a Unix socket's length
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	path := filepath.Join(dir, "s")
	s, err := control.Listen(path, methods)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return path
}

func TestValidate(t *testing.T) {
	good := file(t, node+"  tests: [{name: notes, event: {kind: 1}, expect: allow}]\n")
	if code, out, _ := meshctl(t, "", "validate", good); code != spec.ExitOK || !strings.Contains(out, "ok  MeshNode/here\n1 tests passed") {
		t.Errorf("good: %d %s", code, out)
	}
	if code, _, errOut := meshctl(t, node+"  clas: x\n", "validate", "-"); code != spec.ExitInvalid || !strings.HasPrefix(errOut, "stdin:6:3: spec.clas: unknown key; did you mean class?") {
		t.Errorf("unknown key: %d %s", code, errOut)
	}
	if code, out, _ := meshctl(t, node+"  clas: x\n", "validate", "--json", "-"); code != spec.ExitInvalid || !strings.Contains(out, `"line":6,"column":3`) {
		t.Errorf("as JSON: %d %s", code, out)
	}
	if code, _, errOut := meshctl(t, node+"  tests: [{name: notes, event: {kind: 1}, expect: deny}]\n", "validate", "-"); code != spec.ExitInvalid || !strings.Contains(errOut, `test "notes" wants deny`) {
		t.Errorf("failing test: %d %s", code, errOut)
	}
	if code, _, errOut := meshctl(t, "", "validate", "/nowhere.yaml"); code != spec.ExitFailure || !strings.Contains(errOut, "/nowhere.yaml") {
		t.Errorf("no file: %d %s", code, errOut)
	}
}

func TestPlanApplyGet(t *testing.T) {
	socket := fakeNode(t)
	path := file(t, node+"  relay: {name: harbour, denyKinds: [4]}\n---\n"+head+"kind: Peering\nmetadata: {name: p}\nspec: {peer: '"+peer+"', ingress: {}}\n")
	code, out, errOut := meshctl(t, "", "plan", "-f", path, "--socket", socket)
	for _, want := range []string{"restart      change  MeshNode/here spec.relay.name", "live         create  MeshNode/here spec.relay.denyKinds: [4]", "live         create  Peering/p"} {
		if code != spec.ExitOK || !strings.Contains(out, want) {
			t.Errorf("plan: %d, no %q in\n%s%s", code, want, out, errOut)
		}
	}
	if code, _, _ := meshctl(t, "", "diff", "-f", path, "--socket", socket, "--exit-code"); code != spec.ExitFailure {
		t.Errorf("diff before: %d", code)
	}
	code, out, _ = meshctl(t, "", "apply", "-f", path, "--socket", socket)
	if code != spec.ExitOK || !strings.Contains(out, "needs restart  change  MeshNode/here spec.relay.name") || !strings.Contains(out, "applied        create  Peering/p") {
		t.Errorf("apply: %d\n%s", code, out)
	}
	if code, out, _ := meshctl(t, "", "apply", "-f", path, "--socket", socket); code != spec.ExitOK || !strings.Contains(out, "Nothing to do") {
		t.Errorf("apply again: %d\n%s", code, out)
	}
	if code, out, _ := meshctl(t, "", "diff", "-f", path, "--socket", socket, "--exit-code"); code != spec.ExitOK || out != "" {
		t.Errorf("diff after: %d %s", code, out)
	}
	// What get prints can be applied again.
	code, out, _ = meshctl(t, "", "get", "--socket", socket)
	if code != spec.ExitOK || !strings.Contains(out, "# owner meshctl") {
		t.Errorf("get: %d\n%s", code, out)
	}
	if code, again, _ := meshctl(t, out, "diff", "-f", "-", "--socket", socket, "--exit-code"); code != spec.ExitOK {
		t.Errorf("what get printed differs: %d\n%s", code, again)
	}
	var p manifest.Plan
	code, out, _ = meshctl(t, "", "plan", "--json", "-f", path, "--socket", socket)
	if err := json.Unmarshal([]byte(out), &p); code != spec.ExitOK || err != nil || p.Hash == "" || p.Hash != p.Running {
		t.Errorf("plan as JSON: %d %v %s", code, err, out)
	}
}

func TestExitCodes(t *testing.T) {
	socket := fakeNode(t)
	elsewhere := file(t, node+"  storage: {engine: memory}\n")
	if code, out, _ := meshctl(t, "", "plan", "-f", elsewhere, "--socket", socket); code != spec.ExitRefused || !strings.Contains(out, "this node has the engines") {
		t.Errorf("plan refused: %d %s", code, out)
	}
	if code, _, errOut := meshctl(t, "", "apply", "-f", elsewhere, "--socket", socket); code != spec.ExitRefused || !strings.Contains(errOut, "nothing was applied: MeshNode/here spec.storage.engine") {
		t.Errorf("apply refused: %d %s", code, errOut)
	}
	if code, _, errOut := meshctl(t, "", "get", "--socket", filepath.Join(t.TempDir(), "none")); code != spec.ExitUnreachable || !strings.Contains(errOut, "--socket") {
		t.Errorf("no node: %d %s", code, errOut)
	}
	if code, _, errOut := meshctl(t, "", "get", "--socket", serve(t, nil)); code != spec.ExitUnsupported {
		t.Errorf("a node without manifests: %d %s", code, errOut)
	}
	for _, args := range [][]string{{"plan"}, {"nonsense"}, {"export", "--target", "nomad", "-f", elsewhere, "-o", "x"}} {
		if code, _, errOut := meshctl(t, "", args...); code != spec.ExitUsage || errOut == "" {
			t.Errorf("%v: %d %s", args, code, errOut)
		}
	}
	for _, verb := range []string{"validate", "plan", "diff", "apply", "get", "export", "keys", "schema"} {
		if code, out, _ := meshctl(t, "", verb, "--help"); code != spec.ExitOK || !strings.Contains(out, "Usage: meshctl "+verb) {
			t.Errorf("%s --help: %d %s", verb, code, out)
		}
	}
}

func TestExportAndSchema(t *testing.T) {
	path := file(t, node)
	for _, target := range []string{"kubernetes", "quadlet", "systemd", "compose", "cloud-init"} {
		dir := filepath.Join(t.TempDir(), "out")
		if code, out, errOut := meshctl(t, "", "export", "--target", target, "-f", path, "-o", dir); code != spec.ExitOK || !strings.Contains(out, dir) {
			t.Errorf("%s: %d %s%s", target, code, out, errOut)
		}
	}
	code, out, _ := meshctl(t, "", "schema", "Peering")
	if code != spec.ExitOK || !json.Valid([]byte(out)) || strings.Contains(out, "$ref") {
		t.Errorf("schema: %d %s", code, out)
	}
	if code, out, _ := meshctl(t, "", "keys", "Peering"); code != spec.ExitOK || !strings.Contains(out, "next-window spec.budget") {
		t.Errorf("keys: %d %s", code, out)
	}
}

// apply --every takes up what changes in the files, survives a wrong one, and ends without complaint.
func TestApplyEvery(t *testing.T) {
	socket := fakeNode(t)
	path := file(t, node+"  clas: wrong\n")
	ctx, cancel := context.WithCancel(t.Context())
	out, in := io.Pipe()
	bad, badIn := io.Pipe()
	code := make(chan int)
	go func() {
		code <- run(ctx, []string{"apply", "--every", "10ms", "-f", path, "--socket", socket}, nil, in, badIn)
	}()
	if line, err := bufio.NewReader(bad).ReadString('\n'); err != nil || !strings.Contains(line, "unknown key") {
		t.Fatalf("a wrong file: %q %v", line, err)
	}
	go func() { _, _ = io.Copy(io.Discard, bad) }()
	if err := os.WriteFile(path, []byte(node+"  relay: {denyKinds: [4]}\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	for lines.Scan() && !strings.HasPrefix(lines.Text(), "running ") {
	}
	cancel()
	if c := <-code; c != spec.ExitOK {
		t.Errorf("status %d", c)
	}
}

// The examples of docs/manifests.md are right, and so are their tests.
func TestDocumentedManifests(t *testing.T) {
	text, err := os.ReadFile("../../docs/manifests.md")
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, block := range strings.Split(string(text), "```yaml\n")[1:] {
		n++
		yaml, _, _ := strings.Cut(block, "```")
		if code, out, errOut := meshctl(t, yaml, "validate", "-"); code != spec.ExitOK || strings.Contains(out, "0 tests") {
			t.Errorf("%d %s%s", code, out, errOut)
		}
	}
	if n == 0 {
		t.Error("there are no examples")
	}
}

// Every verb teaches with an example, and every example is a command line that this build understands.
func TestExamplesAreUnderstood(t *testing.T) {
	var c cli
	model := kong.Must(&c, kong.Name("meshctl")).Model
	if err := command.AddExamples(model, examples); err != nil {
		t.Fatal(err)
	}
	for _, path := range command.Lacking(model) {
		t.Errorf("meshctl %s has no example: write one in its Help, or in examples.go", path)
	}
	for _, line := range command.AllExamples(model) {
		calls, err := command.Calls("meshctl", line)
		if err != nil || len(calls) == 0 {
			t.Errorf("example %q calls nothing: %v", line, err)
		}
		for _, args := range calls {
			var fresh cli
			if _, err := kong.Must(&fresh, kong.Name("meshctl")).Parse(args); err != nil {
				t.Errorf("example %q: %v", line, err)
			}
		}
	}
}
