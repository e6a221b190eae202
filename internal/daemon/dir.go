package daemon

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"fleetmesh.org/fleetmesh/internal/identity"
	"fleetmesh.org/fleetmesh/nostr"
)

// Dir is a node directory: everything that one node keeps.
//
//	node.yaml       what the operator wants
//	keys/           node.key, agreement.key, transport.key: 64 hex digits each, mode 0600
//	store/          the event log
//	mesh/           the journal of peerings and accounting
//	control.sock    the control socket while the node runs
type Dir string

// Paths inside a node directory.
func (d Dir) Config() string  { return filepath.Join(string(d), "node.yaml") }
func (d Dir) Keys() string    { return filepath.Join(string(d), "keys") }
func (d Dir) Journal() string { return filepath.Join(string(d), "mesh", "journal") }
func (d Dir) Control() string { return filepath.Join(string(d), "control.sock") }
func (d Dir) Peers() string   { return filepath.Join(string(d), "sync-peers") }

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
func (d Dir) Init(c *Config) error {
	if d.Exists() {
		return fmt.Errorf("make a node in %s: there is one already", d)
	}
	for _, dir := range []string{string(d), d.Keys(), filepath.Dir(d.Journal())} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return fmt.Errorf("make the node directory: %w", err)
		}
	}
	if _, err := os.Stat(d.keyFile("node")); errors.Is(err, fs.ErrNotExist) {
		keys, err := identity.NewKeys(rand.Reader)
		if err != nil {
			return fmt.Errorf("make the node's keys: %w", err)
		}
		if err := d.writeKeys(keys); err != nil {
			return err
		}
	}
	if err := writeFile(d.Config(), c.YAML(), 0o644); err != nil {
		return fmt.Errorf("write node.yaml: %w", err)
	}
	return nil
}

func (d Dir) keyFile(role string) string { return filepath.Join(d.Keys(), role+".key") }

func (d Dir) writeKeys(k *identity.Keys) error {
	for role, secret := range map[string][32]byte{"node": k.Node, "agreement": k.Agreement, "transport": k.Transport} {
		if err := writeFile(d.keyFile(role), []byte(hex.EncodeToString(secret[:])+"\n"), 0o600); err != nil {
			return fmt.Errorf("write the %s key: %w", role, err)
		}
	}
	return nil
}

// LoadKeys reads the three keys. A key file that others may read is refused.
func (d Dir) LoadKeys() (*identity.Keys, error) {
	node, err := d.readKey("node")
	if err != nil {
		return nil, err
	}
	agreement, err := d.readKey("agreement")
	if err != nil {
		return nil, err
	}
	transport, err := d.readKey("transport")
	if err != nil {
		return nil, err
	}
	return &identity.Keys{Node: nostr.SecretKey(node), Agreement: identity.AgreementSecret(agreement), Transport: identity.TransportSecret(transport)}, nil
}

func (d Dir) readKey(role string) (key [32]byte, err error) {
	path := d.keyFile(role)
	fi, err := os.Stat(path)
	if err != nil {
		return key, fmt.Errorf("read the %s key: %w", role, err)
	}
	if fi.Mode().Perm()&0o077 != 0 {
		return key, fmt.Errorf("read the %s key: %s has mode %04o, so others may read it: run chmod 600 %s", role, path, fi.Mode().Perm(), path)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return key, fmt.Errorf("read the %s key: %w", role, err)
	}
	raw, err := hex.DecodeString(strings.TrimSpace(string(text)))
	if err != nil || len(raw) != len(key) {
		return key, fmt.Errorf("read the %s key: %s does not hold 64 hex digits", role, path)
	}
	return [32]byte(raw), nil
}

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
