package export

import (
	"bytes"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"fleetmesh.org/fleetmesh/internal/manifest"
)

var update = flag.Bool("update", false, "write the golden files anew")

func load(t *testing.T) manifest.Set {
	t.Helper()
	s, err := manifest.Load([]string{"testdata/harbour.yaml"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// write exports to a folder, as meshctl does.
func write(t *testing.T, target string, opt Options) string {
	t.Helper()
	files, err := Export(target, load(t), opt)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for _, f := range files {
		if err := os.WriteFile(filepath.Join(dir, f.Name), f.Text, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestGolden(t *testing.T) {
	for _, target := range Targets() {
		files, err := Export(target, load(t), Options{})
		if err != nil {
			t.Fatalf("%s: %v", target, err)
		}
		dir := filepath.Join("testdata", "golden", target)
		if *update {
			if err := errJoin(os.RemoveAll(dir), os.MkdirAll(dir, 0o755)); err != nil {
				t.Fatal(err)
			}
		}
		seen := map[string]bool{}
		for _, f := range files {
			seen[f.Name] = true
			path := filepath.Join(dir, f.Name)
			if *update {
				if err := os.WriteFile(path, f.Text, 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(path)
			if err != nil || !bytes.Equal(want, f.Text) {
				t.Errorf("%s differs from its golden file (%v); look at it, then run the test with -update", path, err)
			}
		}
		entries, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			if !seen[e.Name()] {
				t.Errorf("%s/%s is exported no longer", dir, e.Name())
			}
		}
	}
}

func errJoin(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// What is exported holds the very manifests it was made of.
func TestManifestsComeAlong(t *testing.T) {
	want := load(t).Hash()
	for target, name := range map[string]string{"systemd": "manifests.yaml", "quadlet": "manifests.yaml", "compose": "manifests.yaml"} {
		s, err := manifest.Load([]string{filepath.Join(write(t, target, Options{}), name)}, nil)
		if err != nil || s.Hash() != want {
			t.Errorf("%s: %v", target, err)
		}
	}
}

func TestRefuses(t *testing.T) {
	node := func(more string) manifest.Set {
		docs, err := manifest.Parse("m.yaml", []byte("apiVersion: fleetmesh.org/v1alpha1\nkind: MeshNode\nmetadata: {name: n}\nspec:\n  class: edge\n"+more))
		if err != nil {
			t.Fatal(err)
		}
		return docs
	}
	for access, want := range map[string]bool{"": false, "  metrics: {access: public}\n": true, "  metrics: {access: token, tokenFile: t}\n": false} {
		files, err := Export("kubernetes", node(access), Options{})
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range files {
			if f.Name == "statefulset.yaml" && strings.Contains(string(f.Text), "prometheus.io/scrape") != want {
				t.Errorf("%q: annotations for Prometheus: %v", access, !want)
			}
		}
	}
	for _, c := range []struct {
		target string
		set    manifest.Set
		opt    Options
		want   string
	}{
		{"nomad", node(""), Options{}, `no export for "nomad"`},
		{"systemd", nil, Options{}, "no manifest is a MeshNode"},
		{"systemd", node("  storage: {engine: memory}\n"), Options{}, "spec.storage.engine"},
		{"systemd", node("  storage: {engine: eventlog, path: /srv/x}\n"), Options{}, "/var/lib/meshnode"},
		{"systemd", node("  relay: {listen: '127.0.0.1:0'}\n"), Options{}, "port of 1 to 65535"},
		{"systemd", node(""), Options{Bin: "/usr/bin\nExecStart=/bin/sh"}, "no spaces"},
		{"compose", node(""), Options{Image: "x: y"}, "no spaces"},
	} {
		if _, err := Export(c.target, c.set, c.opt); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %s", c.target, err, c.want)
		}
	}
}

// tool finds a program that checks an export. Where it is absent the test is skipped, but not where everything is to be there.
func tool(t *testing.T, name string, elsewhere ...string) string {
	t.Helper()
	for _, n := range append([]string{name}, elsewhere...) {
		if path, err := exec.LookPath(n); err == nil {
			return path
		}
	}
	if os.Getenv("CI") == "true" {
		t.Fatalf("%s is not installed", name)
	}
	t.Skipf("%s is not installed: the export is held to its golden files only", name)
	return ""
}

func check(t *testing.T, name string, args ...string) string {
	t.Helper()
	out, err := exec.Command(name, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
	return string(out)
}

func TestSystemd(t *testing.T) {
	analyze := tool(t, "systemd-analyze")
	// The unit is verified with programs that are there.
	bin := t.TempDir()
	for _, name := range []string{"meshnode", "meshctl"} {
		if err := os.WriteFile(filepath.Join(bin, name), []byte("#!/bin/sh\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	unit := filepath.Join(write(t, "systemd", Options{Bin: bin}), "meshnode.service")
	if out := check(t, analyze, "verify", "--man=no", unit); strings.Contains(out, "meshnode.service") {
		t.Errorf("systemd-analyze verify:\n%s", out)
	}
	// Exposure goes from 0 to 100; 20 is what systemd calls fine.
	check(t, analyze, "security", "--offline=yes", "--threshold=20", unit)
}

func TestQuadlet(t *testing.T) {
	generator := ""
	for _, path := range []string{"/usr/libexec/podman/quadlet", "/usr/lib/podman/quadlet", "/usr/lib/systemd/user-generators/podman-user-generator"} {
		if _, err := os.Stat(path); err == nil {
			generator = path
		}
	}
	if generator == "" {
		t.Skip("Podman 4.4 or later is not installed: its generator cannot read the units, which are held to their golden files and the keys below only")
	}
	cmd := exec.Command(generator, "-dryrun", "-user")
	cmd.Env = append(os.Environ(), "QUADLET_UNIT_DIRS="+write(t, "quadlet", Options{}))
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "harbour-init.service") {
		t.Fatalf("%v\n%s", err, out)
	}
}

// quadletKeys are the keys of podman-systemd.unit(5) that the units may use.
var quadletKeys = map[string]string{
	"Container": "Image ContainerName Exec Volume PublishPort User Group UserNS ReadOnly NoNewPrivileges DropCapability HealthCmd HealthInterval",
	"Volume":    "VolumeName", "Unit": "Description Requires After", "Service": "Type RemainAfterExit Restart RestartSec TimeoutStopSec ExecStartPost", "Install": "WantedBy",
}

func TestQuadletKeys(t *testing.T) {
	files, err := Export("quadlet", load(t), Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if strings.HasSuffix(f.Name, ".yaml") {
			continue
		}
		section := ""
		for line := range strings.SplitSeq(string(f.Text), "\n") {
			key, _, isKey := strings.Cut(line, "=")
			switch {
			case line == "" || strings.HasPrefix(line, "#"):
			case strings.HasPrefix(line, "["):
				section = strings.Trim(line, "[]")
			case !isKey || !strings.Contains(" "+quadletKeys[section]+" ", " "+key+" "):
				t.Errorf("%s: [%s] has no key %q", f.Name, section, line)
			}
		}
	}
}

func TestCompose(t *testing.T) {
	file := filepath.Join(write(t, "compose", Options{}), "compose.yaml")
	if exec.Command("docker", "compose", "version").Run() == nil {
		check(t, "docker", "compose", "-f", file, "config", "--quiet")
		return
	}
	check(t, tool(t, "docker-compose"), "-f", file, "config", "--quiet")
}

func TestCloudInit(t *testing.T) {
	ci := tool(t, "cloud-init")
	dir := write(t, "cloud-init", Options{})
	if out := check(t, ci, "schema", "--config-file", filepath.Join(dir, "user-data")); !strings.Contains(out, "Valid") {
		t.Error(out)
	}
}

// The Kubernetes API's own types and validation stand in a module of their own, so that no one else carries them.
func TestKubernetes(t *testing.T) {
	if testing.Short() {
		t.Skip("the check takes minutes to build on a small machine")
	}
	dir := write(t, "kubernetes", Options{})
	cmd := exec.Command("go", "build", "-o", filepath.Join(dir, "check"), ".")
	cmd.Dir = filepath.Join("testdata", "kubernetes")
	cmd.Env = append(os.Environ(), "GOFLAGS=-mod=readonly", "GOWORK=off", "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatalf("build the check: %v\n%s", err, out)
		}
		t.Skipf("the modules of the Kubernetes API cannot be had here: the export is held to its golden files only\n%s", out)
	}
	out := check(t, filepath.Join(dir, "check"), dir)
	for _, want := range []string{"StatefulSet", "Service", "PersistentVolumeClaim", "NetworkPolicy", "ConfigMap", "CustomResourceDefinition", "manifest MeshNode", "manifest Peering"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %s among\n%s", want, out)
		}
	}
}
