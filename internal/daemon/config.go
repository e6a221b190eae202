package daemon

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml"

	"fleetmesh.org/fleetmesh/internal/identity"
	"fleetmesh.org/fleetmesh/internal/manifest"
	"fleetmesh.org/fleetmesh/internal/policy"
	"fleetmesh.org/fleetmesh/internal/transport"
	"fleetmesh.org/fleetmesh/nostr"
	"fleetmesh.org/fleetmesh/spec"
)

// Config is the MeshNode manifest that a node directory holds as node.yaml (§ Operator surface). Unknown keys are
// refused with their line.
type Config struct {
	APIVersion string   `yaml:"apiVersion"`
	Kind       string   `yaml:"kind"`
	Metadata   Metadata `yaml:"metadata"`
	Spec       Spec     `yaml:"spec"`
}

// Metadata names a node for its operator.
type Metadata struct {
	Name   string            `yaml:"name"`
	Labels map[string]string `yaml:"labels,omitempty"`
}

// Spec is what the operator wants of a node.
type Spec struct {
	Class        string         `yaml:"class"` // anchor, edge or leaf
	Operator     Operator       `yaml:"operator,omitempty"`
	Endpoints    []EndpointSpec `yaml:"endpoints,omitempty"`
	Relays       []string       `yaml:"relays,omitempty"`    // where the node publishes itself and looks for others: its kind 10002
	Mediators    []string       `yaml:"mediators,omitempty"` // DIDs of the anchors through which a leaf is reached; none: it finds two
	Shards       []ShardSpec    `yaml:"shards,omitempty"`    // what the node claims to hold
	Proxy        string         `yaml:"proxy,omitempty"`     // socks5://address:port through which every outgoing connection goes
	Relay        RelaySpec      `yaml:"relay"`
	Storage      StorageSpec    `yaml:"storage"`
	Attach       AttachSpec     `yaml:"attach,omitempty"`
	Blobs        BlobsSpec      `yaml:"blobs,omitempty"`
	Page         PageSpec       `yaml:"page,omitempty"`
	Metrics      MetricsSpec    `yaml:"metrics,omitempty"` // who reads the counters
	Tracing      TracingSpec    `yaml:"tracing,omitempty"` // where traces of syncs go
	Federation   Federation     `yaml:"federation"`
	Capabilities []string       `yaml:"capabilities,omitempty"`

	PluginIn  *policy.SeamConfig `yaml:"pluginIn,omitempty"`  // asked about what comes in, by whatever door
	PluginOut *policy.SeamConfig `yaml:"pluginOut,omitempty"` // asked about what leaves to peers and other relays
}

// Operator says who answers for a node.
type Operator struct {
	Pubkey     string `yaml:"pubkey,omitempty"`
	PolicyURL  string `yaml:"policyUrl,omitempty"`
	PolicyFile string `yaml:"policyFile,omitempty"` // the rules in words, in the node directory; the descriptor pins its digest
}

// ShardSpec is a claim to hold a shard: the events of a filter and a time range.
type ShardSpec struct {
	Name         string         `yaml:"name"`
	Filter       map[string]any `yaml:"filter"` // NIP-01
	Since        int64          `yaml:"since,omitempty"`
	Until        int64          `yaml:"until,omitempty"`
	Completeness string         `yaml:"completeness,omitempty"` // asserted or best-effort, which is the default
}

// filter is the shard's filter as NIP-01 writes it.
func (s *ShardSpec) filter() (nostr.Filter, error) {
	if s.Filter == nil {
		return nostr.Filter{}, errors.New("the filter is missing; {} takes everything")
	}
	text, err := json.Marshal(s.Filter)
	if err != nil {
		return nostr.Filter{}, err
	}
	return nostr.ParseFilter(text)
}

// EndpointSpec is one door that the descriptor advertises.
type EndpointSpec struct {
	Transport string `yaml:"transport"`
	Address   string `yaml:"address"`
	Priority  int    `yaml:"priority"`
}

// RelaySpec configures the relay face.
type RelaySpec struct {
	Listen         string   `yaml:"listen"`
	PublicURLs     []string `yaml:"publicUrls,omitempty"`     // under which clients reach the face; the AUTH check compares with them
	TrustedProxies []string `yaml:"trustedProxies,omitempty"` // CIDRs whose X-Forwarded-For is believed
	Name           string   `yaml:"name,omitempty"`
	Description    string   `yaml:"description,omitempty"`
	Contact        string   `yaml:"contact,omitempty"`
	Icon           string   `yaml:"icon,omitempty"`
	Off            []string `yaml:"off,omitempty"` // features switched off: auth, count, search, negentropy
	ReadOnly       bool     `yaml:"readOnly,omitempty"`
	MinPoW         int      `yaml:"minPow,omitempty"`
	AllowKinds     []int    `yaml:"allowKinds,omitempty"`
	DenyKinds      []int    `yaml:"denyKinds,omitempty"`
	AllowPubkeys   []string `yaml:"allowPubkeys,omitempty"`
	DenyPubkeys    []string `yaml:"denyPubkeys,omitempty"`
	Limits         Limits   `yaml:"limits,omitempty"`
}

// Limits are the knobs of the relay face; zero means the default.
type Limits struct {
	MaxMessageBytes   int     `yaml:"maxMessageBytes,omitempty"`
	MaxConnections    int     `yaml:"maxConnections,omitempty"`
	ConnectionsPerIP  int     `yaml:"connectionsPerIp,omitempty"`
	MaxSubscriptions  int     `yaml:"maxSubscriptions,omitempty"`
	MaxFilters        int     `yaml:"maxFilters,omitempty"`
	MaxLimit          int     `yaml:"maxLimit,omitempty"`
	EventsPerSecond   float64 `yaml:"eventsPerSecond,omitempty"`
	RequestsPerSecond float64 `yaml:"requestsPerSecond,omitempty"`
	BytesPerSecond    float64 `yaml:"bytesPerSecond,omitempty"`
}

// StorageSpec says where events are kept and how much of them.
type StorageSpec struct {
	Engine   string `yaml:"engine"`             // eventlog, lmdb, sqlite or postgres
	Path     string `yaml:"path"`               // eventlog, lmdb: a directory; sqlite: a file; in the node directory unless absolute
	DSN      string `yaml:"dsn,omitempty"`      // postgres: where the database is, as libpq writes it; the password may stand in PGPASSWORD or ~/.pgpass
	MaxBytes int64  `yaml:"maxBytes,omitempty"` // 0: no quota
}

// AttachSpec makes an existing relay the place where the node's events are.
type AttachSpec struct {
	Relay string `yaml:"relay,omitempty"` // ws:// or wss://; empty: events are kept in spec.storage
}

// Federation says how a node meets strangers. It is off until an operator turns it on or adds a peer.
type Federation struct {
	Enrolment     string `yaml:"enrolment"`               // closed (only peers that the operator adds), invitation, pow, open
	WindowSeconds int64  `yaml:"windowSeconds,omitempty"` // of the grants that this node issues; 0: the default
	DescriptorPoW int    `yaml:"descriptorPow,omitempty"` // bits mined into the descriptor, and asked of strangers; 0: the default
	// SeekPeers is with how many of the nodes it finds a node peers by itself; 0: with none.
	SeekPeers   int      `yaml:"seekPeers,omitempty"`
	DNSSeeds    []string `yaml:"dnsSeeds,omitempty"`    // names whose TXT records name nodes; none: no look-up
	Diagnostics bool     `yaml:"diagnostics,omitempty"` // publish coarse counters once a day (kind 21802)
	Reports     string   `yaml:"reports,omitempty"`     // whose reports are fetched and read: none, self, peers (the default) or archive
	Standing    string   `yaml:"standing,omitempty"`    // what peers are told of others: none, threshold (the default) or own
	// Capacity is what all peers together may use in a window, by counter; none: nothing is shed.
	Capacity map[spec.Counter]int64 `yaml:"capacity,omitempty"`
	Shadow   bool                   `yaml:"shadow,omitempty"` // judge peers, and let no verdict cost anything
	Grants   GrantTerms             `yaml:"grants,omitempty"` // what new grants say
}

const (
	apiVersion = "fleetmesh.org/v1alpha1"
	kindNode   = "MeshNode"
)

// DefaultConfig is what `meshnode up` writes where there is no node yet.
func DefaultConfig(listen string) *Config {
	return &Config{
		APIVersion: apiVersion, Kind: kindNode,
		Metadata: Metadata{Name: "meshnode"},
		Spec: Spec{
			Class:      "edge",
			Relay:      RelaySpec{Listen: listen, Name: "meshnode", Description: "A fleetmesh node."},
			Storage:    StorageSpec{Engine: "eventlog", Path: "store"},
			Federation: Federation{Enrolment: "closed"},
		},
	}
}

// LoadConfig reads and checks node.yaml.
func LoadConfig(path string) (*Config, error) {
	text, err := readConfig(path)
	if err != nil {
		return nil, fmt.Errorf("read the configuration: %w", err)
	}
	c, err := ParseConfig(text)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	return c, nil
}

// readConfig reads a file of configuration, of which no honest one is larger than manifests may be.
func readConfig(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, manifest.MaxSize+1))
	if err == nil && len(text) > manifest.MaxSize {
		err = fmt.Errorf("%s has more than the %d octets that a configuration may have: is it the right file?", path, manifest.MaxSize)
	}
	return text, err
}

// ParseConfig decodes a MeshNode manifest strictly and checks its values.
func ParseConfig(text []byte) (*Config, error) {
	c := new(Config)
	d := yaml.NewDecoder(bytes.NewReader(text), yaml.Strict())
	switch err := d.Decode(c); {
	case errors.Is(err, io.EOF):
		return nil, fmt.Errorf("it is empty, want a manifest that begins with apiVersion: %s and kind: %s; move it away, and meshnode init writes one with defaults", apiVersion, kindNode)
	case err != nil:
		return nil, errors.New(yaml.FormatError(err, false, true))
	}
	var more any
	if err := d.Decode(&more); !errors.Is(err, io.EOF) {
		return nil, errors.New("it holds more than one document, and a node has one: give the others to meshctl apply, and remove them here with their ---")
	}
	return c, c.check()
}

// YAML renders the configuration.
func (c *Config) YAML() []byte {
	text, err := yaml.Marshal(c)
	if err != nil {
		panic("daemon: a configuration always renders: " + err.Error())
	}
	return append([]byte("# A fleetmesh node. Every key is explained in docs/configuration.md.\n"), text...)
}

var features = []string{"auth", "count", "search", "negentropy"}

func (c *Config) check() error {
	s := &c.Spec
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if c.APIVersion != apiVersion || c.Kind != kindNode {
		bad("apiVersion and kind are %q and %q, want %q and %q", c.APIVersion, c.Kind, apiVersion, kindNode)
	}
	if !slices.Contains([]string{"anchor", "edge", "leaf"}, s.Class) {
		bad("spec.class is %q, want anchor, edge or leaf", s.Class)
	}
	errs = append(errs, s.Storage.check()...)
	if s.Attach.Relay != "" {
		if _, err := nostr.NormalizeRelayURL(s.Attach.Relay); err != nil {
			bad("spec.attach.relay is %q: %v", s.Attach.Relay, err)
		}
	}
	if !slices.Contains([]string{"closed", "invitation", "pow", "open"}, s.Federation.Enrolment) {
		bad("spec.federation.enrolment is %q, want closed, invitation, pow or open", s.Federation.Enrolment)
	}
	if n := s.Federation.SeekPeers; n < 0 || n > 64 {
		bad("spec.federation.seekPeers is %d, want 0 to 64", n)
	}
	errs = append(errs, s.Federation.checkConduct()...)
	errs = append(errs, s.checkIdentity()...)
	if w := s.Federation.WindowSeconds; w != 0 && (w < 60 || w > 86400) {
		bad("spec.federation.windowSeconds is %d, want 60 to 86400", w)
	}
	if _, err := transport.NewNetwork(s.Proxy, nil); err != nil {
		bad("spec.proxy: %v", err)
	}
	errs = append(errs, s.Relay.check()...)
	errs = append(errs, s.Blobs.check()...)
	errs = append(errs, s.Page.check()...)
	errs = append(errs, s.Metrics.check()...)
	errs = append(errs, s.Tracing.check()...)
	return errors.Join(errs...)
}

// checkIdentity checks what the descriptor will be made of.
func (s *Spec) checkIdentity() (errs []error) {
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if s.Operator.Pubkey != "" {
		if _, err := nostr.ParsePubKey(s.Operator.Pubkey); err != nil {
			bad("spec.operator.pubkey: %v", err)
		}
	}
	for _, u := range s.Relays {
		if _, err := nostr.NormalizeRelayURL(u); err != nil {
			bad("spec.relays has %q: %v", u, err)
		}
	}
	for _, m := range s.Mediators {
		if _, err := identity.ParseDID(m); err != nil {
			bad("spec.mediators has %q: %v", m, err)
		}
	}
	hasWSS := false
	for _, e := range s.Endpoints {
		if e.Transport == "" || e.Address == "" || e.Priority < 0 || e.Priority > 1_000_000 {
			bad("spec.endpoints has %+v, want a transport, an address and a priority of 0 to 1000000", e)
		}
		if err := checkGate(&e); err != nil {
			errs = append(errs, err)
		}
		if e.Transport == "wss" {
			hasWSS = true
			if _, err := nostr.NormalizeRelayURL(e.Address); err != nil {
				bad("spec.endpoints has %q: %v", e.Address, err)
			}
		}
	}
	switch s.Class {
	case "anchor":
		if !hasWSS && len(s.Relay.PublicURLs) == 0 {
			bad("spec.class is anchor, so a public wss endpoint must stand in spec.endpoints or spec.relay.publicUrls")
		}
	case "leaf":
		if len(s.Endpoints) > 0 || len(s.Shards) > 0 {
			bad("spec.class is leaf: it has neither spec.endpoints nor spec.shards")
		}
	}
	return append(errs, s.checkShards()...)
}

// The storage engines.
const (
	EventLog = "eventlog"
	LMDB     = "lmdb" // in a build with the tag lmdb
	SQLite   = "sqlite"
	Postgres = "postgres"
)

func (s *StorageSpec) check() (errs []error) {
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	switch s.Engine {
	case EventLog, LMDB, SQLite:
		if s.Path == "" {
			bad("spec.storage.path is empty")
		}
		if s.DSN != "" {
			bad("spec.storage.dsn is for the engine postgres; %s has spec.storage.path", s.Engine)
		}
	case Postgres:
		if s.DSN == "" {
			bad("spec.storage.dsn is empty; the engine postgres needs one such as postgres://fleet@127.0.0.1/fleet")
		}
	default:
		bad("spec.storage.engine is %q, want %s, %s, %s or %s", s.Engine, EventLog, LMDB, SQLite, Postgres)
	}
	if s.MaxBytes < 0 {
		bad("spec.storage.maxBytes is negative")
	}
	return errs
}

func (s *Spec) checkShards() (errs []error) {
	seen := map[string]bool{}
	for i := range s.Shards {
		h := &s.Shards[i]
		_, err := h.filter()
		switch {
		case h.Name == "" || seen[h.Name]:
			err = errors.New("each needs a name of its own")
		case err != nil:
		case h.Since < 0 || h.Until < 0 || (h.Until > 0 && h.Since > h.Until):
			err = errors.New("since and until make no range")
		case h.Completeness != "" && h.Completeness != identity.Asserted && h.Completeness != identity.BestEffort:
			err = fmt.Errorf("completeness is %q, want %s or %s", h.Completeness, identity.Asserted, identity.BestEffort)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("spec.shards has %q: %w", h.Name, err))
		}
		seen[h.Name] = true
	}
	return errs
}

func (r *RelaySpec) check() (errs []error) {
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if _, port, err := net.SplitHostPort(r.Listen); err != nil {
		bad("spec.relay.listen is %q, want host:port such as 127.0.0.1:7777", r.Listen)
	} else if _, err := strconv.ParseUint(port, 10, 16); err != nil {
		bad("spec.relay.listen is %q, want a port from 0, which is any that is free, to 65535", r.Listen)
	}
	for _, u := range r.PublicURLs {
		p, err := url.Parse(u)
		if err != nil || (p.Scheme != "ws" && p.Scheme != "wss") || p.Host == "" {
			bad("spec.relay.publicUrls has %q, want a URL such as wss://relay.example.org", u)
		}
	}
	for _, cidr := range r.TrustedProxies {
		if _, err := netip.ParsePrefix(cidr); err != nil {
			bad("spec.relay.trustedProxies has %q, want a prefix such as 10.0.0.0/8", cidr)
		}
	}
	for _, f := range r.Off {
		if !slices.Contains(features, f) {
			bad("spec.relay.off has %q, want some of %s", f, strings.Join(features, ", "))
		}
	}
	for _, k := range slices.Concat(r.AllowKinds, r.DenyKinds) {
		if k < 0 || k > 65535 {
			bad("spec.relay lists kind %d, want 0 to 65535", k)
		}
	}
	return errs
}
