package daemon

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"fleetmesh.org/fleetmesh/internal/identity"
	"fleetmesh.org/fleetmesh/nostr"
)

// Where the passphrase of an encrypted node key is looked for: the text itself, or a file that holds it.
const (
	PassphraseEnv     = "MESHNODE_PASSPHRASE"
	PassphraseFileEnv = "MESHNODE_PASSPHRASE_FILE"
)

// scryptCost is that of the node key at rest: 64 MiB, about a tenth of a second.
const scryptCost = 16

// Provisioning says how the keys of a new node come to be. The zero value draws three independent ones.
type Provisioning struct {
	Node       *nostr.SecretKey // an existing node key, nil for a fresh one
	Derive     bool             // agreement and transport keys by HKDF from the node key: one secret to back up
	Passphrase string           // encrypts the node key at rest; "" for none
}

// Provision makes a node directory. What exists is never overwritten: a directory that has keys but no node.yaml keeps its keys.
func (d Dir) Provision(c *Config, p Provisioning) error {
	if d.Exists() {
		return fmt.Errorf("make a node in %s: there is one already", d)
	}
	if err := c.check(); err != nil {
		return fmt.Errorf("make a node in %s: %w", d, err)
	}
	for _, dir := range []string{string(d), d.Keys(), filepath.Dir(d.Journal())} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return fmt.Errorf("make the node directory: %w", err)
		}
	}
	_, err := os.Stat(d.keyFile("node"))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if err := d.makeKeys(p); err != nil {
			return err
		}
	case err != nil:
		return fmt.Errorf("make the node's keys: %w", err)
	case p.Node != nil || p.Derive:
		return fmt.Errorf("make the node's keys: %s holds keys already, and they are not replaced", d.Keys())
	}
	if _, err := os.Stat(d.Bootstrap()); errors.Is(err, fs.ErrNotExist) {
		if err := writeFile(d.Bootstrap(), []byte(emptyBootstrap), 0o644); err != nil {
			return fmt.Errorf("write bootstrap.toml: %w", err)
		}
	}
	if err := d.writeFormat(DirFormat); err != nil {
		return err
	}
	if err := writeFile(d.Config(), c.YAML(), 0o644); err != nil {
		return fmt.Errorf("write node.yaml: %w", err)
	}
	return nil
}

func (d Dir) makeKeys(p Provisioning) error {
	k, err := identity.NewKeys(rand.Reader)
	if err != nil {
		return fmt.Errorf("make the node's keys: %w", err)
	}
	if p.Node != nil {
		k.Node = *p.Node
	}
	if p.Derive {
		if k, err = identity.DeriveKeys(k.Node, 0, 0); err != nil {
			return fmt.Errorf("derive the node's keys: %w", err)
		}
	}
	// The node key is written last: where it stands, the other two stand.
	if err := d.writeKey("agreement", k.Agreement); err != nil {
		return err
	}
	if err := d.writeKey("transport", k.Transport); err != nil {
		return err
	}
	return d.writeNodeKey(k.Node, p.Passphrase)
}

func (d Dir) keyFile(role string) string { return filepath.Join(d.Keys(), role+".key") }

// publicFile holds the public half of an encrypted node key, so that who the node is can be told without the passphrase.
func (d Dir) publicFile() string { return filepath.Join(d.Keys(), "node.pub") }

func (d Dir) formerFile(role string) string { return filepath.Join(d.Keys(), role+".former") }

func (d Dir) writeKey(role string, secret [32]byte) error {
	if err := writeFile(d.keyFile(role), []byte(hex.EncodeToString(secret[:])+"\n"), 0o600); err != nil {
		return fmt.Errorf("write the %s key: %w", role, err)
	}
	return nil
}

func (d Dir) writeNodeKey(k nostr.SecretKey, passphrase string) error {
	if passphrase == "" {
		if err := os.Remove(d.publicFile()); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("write the node key: %w", err)
		}
		return d.writeKey("node", k)
	}
	text, err := nostr.EncryptSecretKey(k, passphrase, scryptCost, nostr.KeySecurityUnknown)
	if err == nil {
		err = writeFile(d.publicFile(), []byte(k.PubKey().String()+"\n"), 0o600)
	}
	if err == nil {
		err = writeFile(d.keyFile("node"), []byte(text+"\n"), 0o600)
	}
	if err != nil {
		return fmt.Errorf("write the node key: %w", err)
	}
	return nil
}

// LoadKeys reads the three keys. A key file that others may read is refused; an encrypted node key is opened with the passphrase that
// the environment names.
func (d Dir) LoadKeys() (*identity.Keys, error) {
	node, err := d.readNodeKey()
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
	return &identity.Keys{Node: node, Agreement: identity.AgreementSecret(agreement), Transport: identity.TransportSecret(transport)}, nil
}

// secretText reads a file of keys/, which only its owner may read.
func (d Dir) secretText(path, what string) (string, error) {
	fi, err := os.Stat(path)
	if err != nil {
		return "", fmt.Errorf("read the %s: %w", what, err)
	}
	if fi.Mode().Perm()&0o077 != 0 {
		return "", fmt.Errorf("read the %s: %s has mode %04o, so others may read it: run chmod 600 %s", what, path, fi.Mode().Perm(), path)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return "", fmt.Errorf("read the %s: %w", what, err)
	}
	return strings.TrimSpace(string(text)), nil
}

func (d Dir) readKey(role string) (key [32]byte, err error) {
	text, err := d.secretText(d.keyFile(role), role+" key")
	if err != nil {
		return key, err
	}
	if key, err = parseHexKey(text); err != nil {
		return key, fmt.Errorf("read the %s key: %s: %w", role, d.keyFile(role), err)
	}
	return key, nil
}

func parseHexKey(text string) (key [32]byte, err error) {
	raw, err := hex.DecodeString(text)
	if err != nil || len(raw) != len(key) {
		return key, errors.New("does not hold 64 hex digits")
	}
	return [32]byte(raw), nil
}

const encryptedPrefix = "ncryptsec1"

func (d Dir) readNodeKey() (nostr.SecretKey, error) {
	if socket, err := d.agentSocket(); err != nil || socket != "" {
		if err == nil {
			err = fmt.Errorf("read the node key: the agent at %s keeps it", socket)
		}
		return nostr.SecretKey{}, err
	}
	text, err := d.secretText(d.keyFile("node"), "node key")
	if err != nil {
		return nostr.SecretKey{}, err
	}
	if !strings.HasPrefix(text, encryptedPrefix) {
		k, err := parseHexKey(text)
		if err != nil {
			return k, fmt.Errorf("read the node key: %s: %w", d.keyFile("node"), err)
		}
		return k, nil
	}
	passphrase, err := Passphrase()
	if err != nil {
		return nostr.SecretKey{}, err
	}
	if passphrase == "" {
		return nostr.SecretKey{}, fmt.Errorf("read the node key: %s is encrypted: set %s or %s", d.keyFile("node"), PassphraseEnv, PassphraseFileEnv)
	}
	k, _, err := nostr.DecryptSecretKey(text, passphrase)
	if err != nil {
		return k, fmt.Errorf("read the node key: %s: %w", d.keyFile("node"), err)
	}
	return k, nil
}

// Passphrase is what the environment says, "" if it says nothing.
func Passphrase() (string, error) {
	path, ok := os.LookupEnv(PassphraseFileEnv)
	if !ok {
		return os.Getenv(PassphraseEnv), nil
	}
	return ReadPassphrase(path)
}

// ReadPassphrase reads a passphrase from the first line of a file.
func ReadPassphrase(path string) (string, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return "", fmt.Errorf("read the passphrase: %w", err)
	}
	line, _, _ := strings.Cut(string(text), "\n")
	if line = strings.TrimSuffix(line, "\r"); line == "" {
		return "", fmt.Errorf("read the passphrase: the first line of %s is empty", path)
	}
	return line, nil
}

// Backend says where the node key is kept and how.
func (d Dir) Backend() (string, error) {
	if socket, err := d.agentSocket(); err != nil || socket != "" {
		return "agent at " + socket, err
	}
	text, err := d.secretText(d.keyFile("node"), "node key")
	if err != nil {
		return "", err
	}
	if strings.HasPrefix(text, encryptedPrefix) {
		return "file, encrypted with a passphrase (NIP-49)", nil
	}
	return "file, plain, mode 0600", nil
}

// Protect encrypts the node key at rest with a passphrase; "" stores it plain again.
func (d Dir) Protect(passphrase string) error {
	k, err := d.readNodeKey()
	if err != nil {
		return err
	}
	return d.writeNodeKey(k, passphrase)
}

// ImportNodeKey puts another node key in the place of the present one, which is kept beside it. The node must be stopped: it becomes
// another node, and no peer knows it.
func (d Dir) ImportNodeKey(k nostr.SecretKey, passphrase string, now int64) (kept string, err error) {
	old := d.keyFile("node")
	if _, err := os.Stat(old); err == nil {
		kept = old + ".replaced-" + strconv.FormatInt(now, 10)
		if err := os.Link(old, kept); err != nil {
			return "", fmt.Errorf("keep the present node key: %w", err)
		}
	}
	return kept, d.writeNodeKey(k, passphrase)
}

// Former is a key that was rotated out. It is honoured until the unix second Until.
type Former struct {
	Key   [32]byte
	Until int64
}

// FormerKeys returns the keys of a role (agreement or transport) that are honoured still at now, the newest first.
func (d Dir) FormerKeys(role string, now int64) (out []Former, err error) {
	if _, err := os.Stat(d.formerFile(role)); errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	text, err := d.secretText(d.formerFile(role), "former "+role+" keys")
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(text) {
		digits, until, _ := strings.Cut(strings.TrimSpace(line), " ")
		f := Former{}
		f.Key, err = parseHexKey(digits)
		if err == nil {
			f.Until, err = strconv.ParseInt(until, 10, 64)
		}
		if err != nil {
			return nil, fmt.Errorf("read the former %s keys: %s: a line is not 64 hex digits and a unix second", role, d.formerFile(role))
		}
		if f.Until > now {
			out = append(out, f)
		}
	}
	return out, nil
}

// Rotate draws a new agreement or transport key. The present one is honoured for the overlap, seconds, so that what is sealed to it still opens.
func (d Dir) Rotate(role string, overlap, now int64) error {
	if role != string(identity.RoleAgreement) && role != string(identity.RoleTransport) {
		return fmt.Errorf("rotate a key: %q is neither agreement nor transport; a node key is who the node is: see meshnode revoke", role)
	}
	if overlap < 0 || overlap > 30*86400 {
		return errors.New("rotate a key: the overlap is at most 30 days")
	}
	old, err := d.readKey(role)
	if err != nil {
		return err
	}
	former, err := d.FormerKeys(role, now)
	if err != nil {
		return err
	}
	var text strings.Builder
	for _, f := range append([]Former{{old, now + overlap}}, former...) {
		if f.Until > now {
			fmt.Fprintf(&text, "%x %d\n", f.Key, f.Until)
		}
	}
	fresh, err := identity.NewKeys(rand.Reader)
	if err != nil {
		return fmt.Errorf("rotate the %s key: %w", role, err)
	}
	// The old key is safe among the former ones before the new one takes its place.
	if err := writeFile(d.formerFile(role), []byte(text.String()), 0o600); err != nil {
		return fmt.Errorf("keep the former %s key: %w", role, err)
	}
	if role == string(identity.RoleAgreement) {
		return d.writeKey(role, fresh.Agreement)
	}
	return d.writeKey(role, fresh.Transport)
}
