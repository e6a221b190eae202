package main

import (
	"fmt"
	"io"
	"net"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"fleetmesh.org/fleetmesh/internal/daemon"
	"fleetmesh.org/fleetmesh/internal/identity"
	"fleetmesh.org/fleetmesh/nostr"
)

type initCmd struct {
	Into     string   `arg:"" optional:"" name:"node-dir" help:"The node directory, instead of --dir." type:"path"`
	Operator string   `help:"Public key of who answers for the node: hex or npub." placeholder:"HEX"`
	Class    string   `help:"anchor: reachable from outside; edge: not promised; leaf: reached through mediators." enum:"anchor,edge,leaf" default:"edge"`
	Relay    []string `help:"Nostr relay where the node publishes itself and looks for others; may be repeated." placeholder:"URL"`
	Endpoint []string `help:"A door that the descriptor advertises; may be repeated, the best liked first." placeholder:"SCHEME=ADDRESS"`
	FacePort int      `help:"Port of the relay face on 127.0.0.1." placeholder:"PORT"`
	Listen   string   `help:"Where the relay face listens, in full." placeholder:"HOST:PORT"`
	Name     string   `help:"Name of the node."`
	Mediator []string `help:"An anchor through which a leaf is reached; twice, of distinct operators. None: the leaf finds two through its relays." placeholder:"DID"`

	Enrolment      string `help:"Which strangers are let in." enum:"closed,invitation,pow,open" default:"closed"`
	Derive         bool   `help:"Derive the agreement and transport keys from the node key: one secret to back up."`
	ImportKey      string `help:"Take the node key from the first line of a file (nsec or hex; - for stdin)." placeholder:"FILE"`
	PassphraseFile string `help:"Encrypt the node key with the first line of this file (NIP-49)." placeholder:"FILE"`

	Manifest []string `help:"Take the configuration from manifests instead of the flags above: a file, a folder, - for stdin; may be repeated. Their Peerings are applied with meshctl once the node runs." placeholder:"FILE"`
	Keep     bool     `help:"Leave a node that is there already as it is, and succeed."`
}

func (c *initCmd) Help() string {
	return `Examples:
  meshnode init mynode --operator HEX --class edge --relay wss://relay.example.org --endpoint wss=wss://mesh.example.org:443 --face-port 7777
  meshnode init --dir /var/lib/meshnode --derive --passphrase-file /etc/meshnode/passphrase
  meshnode init --dir /var/lib/meshnode --manifest meshnode.yaml`
}

func (c *initCmd) Run(a *app) error {
	if c.Into != "" {
		a.dir = daemon.Dir(c.Into)
	}
	if c.Keep && a.dir.Exists() {
		return a.print(map[string]string{"dir": string(a.dir), "kept": "true"}, func(w io.Writer) {
			fmt.Fprintf(w, "There is a node in %s already; it stays as it is.\n", a.dir)
		})
	}
	cfg, err := c.wanted(a)
	if err != nil {
		return err
	}
	p, err := c.provisioning(a)
	if err != nil {
		return err
	}
	if err := a.dir.Provision(cfg, p); err != nil {
		return err
	}
	key, err := a.dir.PublicKey()
	if err != nil {
		return err
	}
	backend, err := a.dir.Backend()
	if err != nil {
		return err
	}
	made := map[string]string{
		"dir": string(a.dir), "config": a.dir.Config(), "did": identity.FormatDID(key), "npub": nostr.EncodeNpub(key), "key_backend": backend,
	}
	return a.print(made, func(w io.Writer) {
		fmt.Fprintf(w, "Made %s in %s.\nIts keys are in %s (%s).\nEdit %s, then: meshnode up --dir %s\n", made["did"], a.dir, a.dir.Keys(), backend, a.dir.Config(), a.dir)
	})
}

// config turns the flags into a configuration; Provision checks the whole.
func (c *initCmd) config() (*daemon.Config, error) {
	listen := "127.0.0.1:7777"
	switch {
	case c.Listen != "" && c.FacePort != 0:
		return nil, fmt.Errorf("--listen and --face-port say the same thing: give one")
	case c.Listen != "":
		listen = c.Listen
	case c.FacePort != 0:
		if c.FacePort < 1 || c.FacePort > 65535 {
			return nil, fmt.Errorf("--face-port is %d, want 1 to 65535", c.FacePort)
		}
		listen = net.JoinHostPort("127.0.0.1", strconv.Itoa(c.FacePort))
	}
	cfg := daemon.DefaultConfig(listen)
	s := &cfg.Spec
	if c.Operator != "" {
		k, err := nostr.ParsePubKey(c.Operator)
		if err != nil {
			return nil, fmt.Errorf("--operator: %w", err)
		}
		s.Operator.Pubkey = k.String()
	}
	if c.Name != "" {
		s.Relay.Name = c.Name
		if cfg.Metadata.Name = slug(c.Name); cfg.Metadata.Name == "" {
			cfg.Metadata.Name = "meshnode"
		}
	}
	s.Class, s.Relays, s.Mediators, s.Federation.Enrolment = c.Class, c.Relay, c.Mediator, c.Enrolment
	for i, text := range c.Endpoint {
		scheme, address, ok := strings.Cut(text, "=")
		if !ok || scheme == "" || address == "" {
			return nil, fmt.Errorf("--endpoint is %q, want SCHEME=ADDRESS such as wss=wss://mesh.example.org:443", text)
		}
		s.Endpoints = append(s.Endpoints, daemon.EndpointSpec{Transport: scheme, Address: address, Priority: 10 * (i + 1)})
		if scheme == "wss" && !slices.Contains(s.Relay.PublicURLs, address) {
			s.Relay.PublicURLs = append(s.Relay.PublicURLs, address) // clients authenticate for the URL that they dial
		}
	}
	return cfg, nil
}

func (c *initCmd) provisioning(a *app) (p daemon.Provisioning, err error) {
	p.Derive = c.Derive
	if c.PassphraseFile != "" {
		path, err := filepath.Abs(c.PassphraseFile)
		if err != nil {
			return p, err
		}
		if p.Passphrase, err = daemon.ReadPassphrase(path); err != nil {
			return p, err
		}
	} else if p.Passphrase, err = daemon.Passphrase(); err != nil {
		return p, err
	}
	if c.ImportKey != "" {
		k, err := readSecret(a, c.ImportKey)
		if err != nil {
			return p, err
		}
		p.Node = &k
	}
	return p, nil
}

// slug is the form of a name that a manifest may have: lower-case letters, digits and single dashes, 63 at most. The name
// itself stays what people see.
func slug(name string) string {
	var b strings.Builder
	for _, r := range strings.ToLower(name) {
		switch {
		case r >= 'a' && r <= 'z' || r >= '0' && r <= '9':
			b.WriteRune(r)
		case b.Len() > 0 && !strings.HasSuffix(b.String(), "-"):
			b.WriteByte('-')
		}
	}
	return strings.TrimRight(b.String()[:min(b.Len(), 63)], "-")
}
