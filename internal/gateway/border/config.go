package border

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"fleetmesh.org/fleetmesh/internal/policy"
	"fleetmesh.org/fleetmesh/nostr"
)

// Config is a gateway's configuration file. docs/gateway.schema.json is its schema.
type Config struct {
	Dir     string  `yaml:"dir"`     // the gateway's own directory: its key, its stores, its control socket
	Estate  Side    `yaml:"estate"`  // the operator's own relays
	Mesh    Side    `yaml:"mesh"`    // nodes of the mesh
	Ingress Ingress `yaml:"ingress"` // mesh to estate
	Egress  Egress  `yaml:"egress"`  // estate to mesh
	Storage Storage `yaml:"storage"`
	Proxy   string  `yaml:"proxy"` // socks5://address:port through which every connection goes
	// ResyncSeconds is how often gaps are looked for on standing connections; 0: an hour.
	ResyncSeconds int64 `yaml:"resyncSeconds"`
}

// Side is one side of the boundary: ordinary relays, reached as any client reaches them.
type Side struct {
	Relays          []string `yaml:"relays"`
	EventsPerSecond float64  `yaml:"eventsPerSecond"` // sent to each at most; 0: as many as it takes
	Auth            bool     `yaml:"auth"`            // answer challenges (NIP-42) with the gateway's own key
}

// Ingress says what may come in from the mesh. Without a filter nothing may.
type Ingress struct {
	Filters           []map[string]any   `yaml:"filters"`           // NIP-01: one must match
	QuarantineSeconds int64              `yaml:"quarantineSeconds"` // how long an event waits before it is let in
	Release           string             `yaml:"release"`           // auto (the default): after that time; manual: when the operator says so
	PluginIn          *policy.SeamConfig `yaml:"pluginIn"`          // asked at the end of the quarantine
}

// Egress says what may go out to the mesh. Without a filter nothing may.
type Egress struct {
	Filters   []map[string]any   `yaml:"filters"`   // NIP-01: one must match
	PluginOut *policy.SeamConfig `yaml:"pluginOut"` // asked before an event leaves
}

// Storage bounds what the gateway keeps.
type Storage struct {
	MaxBytes int64 `yaml:"maxBytes"` // octets on disk of all its stores; 0: 1 GiB
}

const defaultBytes = 1 << 30

// Check says what is wrong with a configuration, and fills in what it leaves out.
func (c *Config) Check() error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if c.Dir == "" {
		bad("dir is missing: where the gateway keeps its own key and stores")
	}
	for name, side := range map[string]*Side{"estate": &c.Estate, "mesh": &c.Mesh} {
		if len(side.Relays) == 0 {
			bad("%s.relays is empty", name)
		}
		for i, u := range side.Relays {
			norm, err := nostr.NormalizeRelayURL(u)
			if err != nil {
				bad("%s.relays has %q: %v", name, u, err)
			}
			side.Relays[i] = norm
		}
		if side.EventsPerSecond < 0 {
			bad("%s.eventsPerSecond is %v, want 0 or more", name, side.EventsPerSecond)
		}
	}
	for _, u := range c.Estate.Relays {
		if slices.Contains(c.Mesh.Relays, u) {
			bad("%s stands on both sides", u)
		}
	}
	for name, list := range map[string][]map[string]any{"ingress": c.Ingress.Filters, "egress": c.Egress.Filters} {
		if _, err := parseFilters(list); err != nil {
			bad("%s.filters: %v", name, err)
		}
	}
	if c.Ingress.QuarantineSeconds < 0 {
		bad("ingress.quarantineSeconds is %d, want 0 or more", c.Ingress.QuarantineSeconds)
	}
	if !slices.Contains([]string{"", "auto", "manual"}, c.Ingress.Release) {
		bad("ingress.release is %q, want auto or manual", c.Ingress.Release)
	}
	if c.Storage.MaxBytes < 0 || c.ResyncSeconds < 0 {
		bad("storage.maxBytes and resyncSeconds are not negative")
	}
	if c.Storage.MaxBytes == 0 {
		c.Storage.MaxBytes = defaultBytes
	}
	if least := int64(64 << 20); c.Storage.MaxBytes < least {
		bad("storage.maxBytes is %d, want %d or more: three stores share it", c.Storage.MaxBytes, least)
	}
	if c.Proxy != "" && !strings.HasPrefix(c.Proxy, "socks5://") {
		bad("proxy is %q, want socks5://address:port", c.Proxy)
	}
	return errors.Join(errs...)
}

func parseFilters(list []map[string]any) (out []nostr.Filter, err error) {
	for _, m := range list {
		text, err := json.Marshal(m)
		if err != nil {
			return nil, err
		}
		f, err := nostr.ParseFilter(text)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", text, err)
		}
		if f.Search != "" {
			return nil, fmt.Errorf("%s: a search cannot be reconciled", text)
		}
		f.Limit = nil
		out = append(out, f)
	}
	return out, nil
}
