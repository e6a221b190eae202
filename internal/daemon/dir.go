package daemon

import (
	"errors"
	"os"
	"path/filepath"
)

// Dir is a node directory: everything that one node keeps.
//
//	format          the version of the directory
//	node.yaml       what the operator wants
//	bootstrap.toml  where to look for other nodes first
//	keys/           node.key, agreement.key, transport.key, mode 0600; and *.former, the keys that were rotated out
//	store/          the event log
//	mesh/           the journal of peerings and accounting, the nodes that are known, the invitations
//	control.sock    the control socket while the node runs
type Dir string

// Paths inside a node directory.
func (d Dir) Config() string  { return filepath.Join(string(d), "node.yaml") }
func (d Dir) Keys() string    { return filepath.Join(string(d), "keys") }
func (d Dir) Journal() string { return filepath.Join(string(d), "mesh", "journal") }
func (d Dir) Control() string { return filepath.Join(string(d), "control.sock") }
func (d Dir) Peers() string   { return filepath.Join(string(d), "sync-peers") }

// Bootstrap is the file that names where to look for other nodes first.
func (d Dir) Bootstrap() string   { return filepath.Join(string(d), "bootstrap.toml") }
func (d Dir) known() string       { return d.mesh("known.json") }
func (d Dir) invitations() string { return d.mesh("invitations.json") }

func (d Dir) mesh(name string) string { return filepath.Join(string(d), "mesh", name) }

// Store returns the store's directory: the configured path, taken relative to the node directory.
func (d Dir) Store(c *Config) string {
	if filepath.IsAbs(c.Spec.Storage.Path) {
		return c.Spec.Storage.Path
	}
	return filepath.Join(string(d), c.Spec.Storage.Path)
}

// Exists says whether the directory already holds a node.
func (d Dir) Exists() bool {
	_, err := os.Stat(d.Config())
	return err == nil
}

// Init makes a node directory with fresh keys and the given configuration. What exists is never overwritten: a
// directory that has keys but no node.yaml keeps its keys.
func (d Dir) Init(c *Config) error { return d.Provision(c, Provisioning{}) }

// writeFile writes a new file whole and durably, or not at all.
func writeFile(path string, text []byte, mode os.FileMode) error {
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".new*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	_, err = f.Write(text)
	err = errors.Join(err, f.Chmod(mode), f.Sync(), f.Close())
	if err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}
