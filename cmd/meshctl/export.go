package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"

	"fleetmesh.org/fleetmesh/internal/manifest/export"
)

type exportCmd struct {
	files
	Target string `help:"kubernetes, quadlet (rootless Podman), systemd, compose or cloud-init (a Raspberry Pi)." required:"" enum:"kubernetes,quadlet,systemd,compose,cloud-init"`
	Out    string `help:"Folder to write to; made if there is none." short:"o" required:"" placeholder:"DIR"`
	Image  string `help:"Container image with meshnode and meshctl." placeholder:"IMAGE"`
	Bin    string `help:"Folder of the binaries on the host." default:"/usr/bin" placeholder:"DIR"`
}

func (exportCmd) Help() string {
	return `The same manifests give the same files, byte for byte. Each target makes the node directory from the manifests at the first start and never overwrites it after.

Examples:
  meshctl export --target systemd -f node.yaml -o out
  meshctl export --target kubernetes -f manifests/ --image registry.example.org/meshnode:1 -o k8s && kubectl apply -f k8s
  meshctl export --target quadlet -f manifests/ -o ~/.config/containers/systemd
  meshctl export --target cloud-init -f manifests/ -o /media/bootfs`
}

func (c *exportCmd) Run(a *app) error {
	set, err := c.load(a)
	if err != nil {
		return err
	}
	list, err := export.Export(c.Target, set, export.Options{Image: c.Image, Bin: c.Bin})
	if err != nil {
		return err
	}
	if err := os.MkdirAll(c.Out, 0o755); err != nil {
		return fmt.Errorf("make the folder: %w", err)
	}
	var names []string
	for _, f := range list {
		path := filepath.Join(c.Out, filepath.FromSlash(f.Name))
		if err := os.WriteFile(path, f.Text, 0o644); err != nil {
			return fmt.Errorf("write the export: %w", err)
		}
		names = append(names, path)
	}
	return a.print(map[string]any{"target": c.Target, "files": names}, func(w io.Writer) {
		for _, n := range names {
			fmt.Fprintln(w, n)
		}
	})
}
