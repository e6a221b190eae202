// Package export writes a manifest set out for the systems that start nodes: Kubernetes, rootless Podman (Quadlet), systemd,
// Docker Compose, and a Raspberry Pi's first boot (cloud-init). What it writes depends on its arguments alone, byte for byte.
package export

import (
	"bytes"
	"embed"
	"errors"
	"fmt"
	"net"
	"path"
	"slices"
	"strconv"
	"strings"
	"text/template"

	"fleetmesh.org/fleetmesh/internal/manifest"
	"fleetmesh.org/fleetmesh/spec"
)

//go:embed templates
var templates embed.FS

// Options are what a manifest does not say: how the target finds the program.
type Options struct {
	Image string // of the container; it holds meshnode and meshctl. DefaultImage if empty
	Bin   string // folder of the binaries on a host; /usr/bin if empty
}

// DefaultImage is the container image that the targets name unless told otherwise.
const DefaultImage = "localhost/meshnode:latest"

// File is one file of an export. Name is relative, with slashes.
type File struct {
	Name string
	Text []byte
}

// Targets lists the systems to write for.
func Targets() []string { return []string{"cloud-init", "compose", "kubernetes", "quadlet", "systemd"} }

// Export writes a set that manifest.Check found right for a target. The files come sorted by name.
func Export(target string, s manifest.Set, opt Options) ([]File, error) {
	if !slices.Contains(Targets(), target) {
		return nil, fmt.Errorf("there is no export for %q; there is %s", target, strings.Join(Targets(), ", "))
	}
	d, err := newData(s, opt)
	if err != nil {
		return nil, err
	}
	files, err := render(target, d)
	if err != nil {
		return nil, err
	}
	switch target {
	case "kubernetes":
		crds, err := definitions()
		if err != nil {
			return nil, err
		}
		files = append(files, File{"crds.yaml", crds})
	case "cloud-init": // the manifests stand inside user-data
	default:
		files = append(files, File{"manifests.yaml", d.manifests})
	}
	slices.SortFunc(files, func(a, b File) int { return strings.Compare(a.Name, b.Name) })
	return files, nil
}

// data is what the templates see.
type data struct {
	Name     string
	Image    string
	Bin      string
	Port     int  // of the relay face
	Peerings bool // the set declares some: they are applied once the node runs
	Storage  string
	Protocol string
	Scraped  bool // anybody may read the counters, so a cluster's Prometheus finds them by annotations

	manifests []byte
}

func newData(s manifest.Set, opt Options) (*data, error) {
	node := s.Node()
	if node == nil {
		return nil, errors.New("an export starts a node, and no manifest is a MeshNode")
	}
	config, refused := manifest.NodeConfig(s)
	if len(refused) > 0 {
		c := refused[0]
		return nil, fmt.Errorf("%s: %s: no node of this build would start with it: %s", c.Object, c.Key, c.Why)
	}
	d := &data{Name: node.Name, Image: opt.Image, Bin: opt.Bin, Protocol: spec.C().Protocol.Name, manifests: s.YAML()}
	if d.Image == "" {
		d.Image = DefaultImage
	}
	if d.Bin == "" {
		d.Bin = "/usr/bin"
	}
	if strings.ContainsAny(d.Image+d.Bin, " \t\r\n\"'%$\\") {
		return nil, errors.New("an image or a folder of binaries has no spaces, quotes, % or $ in its name")
	}
	sp, _ := config["spec"].(map[string]any)
	relay, _ := sp["relay"].(map[string]any)
	listen, _ := relay["listen"].(string)
	_, port, err := net.SplitHostPort(listen)
	if err != nil {
		return nil, fmt.Errorf("spec.relay.listen: %w", err)
	}
	if d.Port, err = strconv.Atoi(port); err != nil || d.Port < 1 || d.Port > 65535 {
		return nil, fmt.Errorf("spec.relay.listen is %q: an export needs a port of 1 to 65535", listen)
	}
	metrics, _ := sp["metrics"].(map[string]any)
	d.Scraped = metrics["access"] == "public"
	storage, _ := sp["storage"].(map[string]any)
	d.Storage = "10Gi"
	if quota, ok := storage["maxBytes"].(int64); ok && quota > 0 {
		// A quarter more than the quota: room for a segment that is being rewritten.
		d.Storage = fmt.Sprintf("%dGi", max(1, (quota+quota/4+1<<30-1)>>30))
	}
	if p, _ := storage["path"].(string); strings.HasPrefix(p, "/") && !strings.HasPrefix(p, "/var/lib/meshnode/") {
		return nil, fmt.Errorf("spec.storage.path is %s: an exported node keeps everything under /var/lib/meshnode; leave the key out or name a folder below it", p)
	}
	for _, o := range s {
		d.Peerings = d.Peerings || o.Kind == "Peering"
	}
	return d, nil
}

// Manifests is the set as YAML, each line after the first indented by n spaces, to stand in a block of another YAML file.
func (d *data) Manifests(n int) string {
	return indent(d.manifests, n)
}

func indent(text []byte, n int) string {
	lines := strings.Split(strings.TrimSuffix(string(text), "\n"), "\n")
	for i := range lines {
		if i > 0 && lines[i] != "" {
			lines[i] = strings.Repeat(" ", n) + lines[i]
		}
	}
	return strings.Join(lines, "\n")
}

// Unit is the hardened systemd unit, for a target that brings it along.
func (d *data) Unit(n int) (string, error) {
	files, err := render("systemd", d)
	if err != nil {
		return "", err
	}
	for _, f := range files {
		if f.Name == "meshnode.service" {
			return indent(f.Text, n), nil
		}
	}
	return "", errors.New("no unit among the templates")
}

// render fills the templates of a target. A file's name may be a template too.
func render(target string, d *data) ([]File, error) {
	dir := "templates/" + target
	entries, err := templates.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("read the templates of %s: %w", target, err)
	}
	var out []File
	for _, e := range entries {
		text, err := templates.ReadFile(path.Join(dir, e.Name()))
		if err != nil {
			return nil, fmt.Errorf("read a template of %s: %w", target, err)
		}
		t, err := template.New(e.Name()).Option("missingkey=error").Parse(string(text))
		if err != nil {
			return nil, fmt.Errorf("parse a template of %s: %w", target, err)
		}
		var b bytes.Buffer
		if err := t.Execute(&b, d); err != nil {
			return nil, fmt.Errorf("write %s: %w", e.Name(), err)
		}
		out = append(out, File{strings.ReplaceAll(strings.TrimSuffix(e.Name(), ".tmpl"), "NAME", d.Name), b.Bytes()})
	}
	return out, nil
}
