package bridge

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"time"

	"fleetmesh.org/fleetmesh/internal/gateway"
	"fleetmesh.org/fleetmesh/nostr"
)

// Config is what a bridge does, as strfry's router is told it.
type Config struct {
	ConnectionTimeout time.Duration // of one attempt to connect; default 20 s
	Verbose           bool          // default true: what is taken and what a plugin stops is logged, by id
	Streams           []Stream      // in the order of the file
}

// Stream is a set of relays, and what goes to and from them.
type Stream struct {
	Name       string
	Dir        gateway.Direction // "down" is Pull, "up" is Push
	URLs       []string          // in normal form, each once
	Filter     nostr.Filter
	PluginDown string // asked before an event is taken
	PluginUp   string // asked before an event is sent

	// What strfry's router does not know; it passes over such keys.
	EventsPerSecond float64 // sent to one relay at most; 0: as many as it takes
	Auth            bool    // answer the relay's challenges (NIP-42) with the node's key
}

// filterText is a canonical form of the filter, to see whether it has changed.
func (s *Stream) filterText() string { return string(s.Filter.AppendJSON(nil)) }

// LoadConfig reads a configuration file.
func LoadConfig(path string) (*Config, error) {
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("read the bridge's configuration: %w: docs/bridge.md shows one", err)
	}
	if err != nil {
		return nil, fmt.Errorf("read the bridge's configuration: %w", err)
	}
	c, err := ParseConfig(string(text))
	if err != nil {
		return nil, fmt.Errorf("read the bridge's configuration: %s: %w", path, err)
	}
	return c, nil
}

// ParseConfig reads strfry's router format. An error names the line.
func ParseConfig(text string) (*Config, error) {
	o, err := parseTao(text)
	if err != nil {
		return nil, err
	}
	c := &Config{ConnectionTimeout: 20 * time.Second, Verbose: true}
	var streams *value
	for _, m := range o.members {
		v := m.value
		switch m.key {
		case "connectionTimeout":
			n, err := number(v, m.key, 1, 3600)
			if err != nil {
				return nil, err
			}
			c.ConnectionTimeout = time.Duration(n * float64(time.Second))
		case "verbose":
			var ok bool
			if c.Verbose, ok = v.data.(bool); !ok {
				return nil, at(v.line, "verbose is %s, want true or false", v.what())
			}
		case "streams":
			streams = v
		default:
			return nil, at(v.line, "unknown key %q, want connectionTimeout, verbose or streams", m.key)
		}
	}
	if streams == nil {
		return nil, at(1, "the section streams is missing")
	}
	list, ok := streams.data.(*object)
	if !ok {
		return nil, at(streams.line, "streams is %s, want a section", streams.what())
	}
	for _, m := range list.members {
		s, err := parseStream(m.key, m.value)
		if err != nil {
			return nil, err
		}
		c.Streams = append(c.Streams, s)
	}
	return c, nil
}

func parseStream(name string, v *value) (s Stream, err error) {
	o, ok := v.data.(*object)
	if !ok {
		return s, at(v.line, "stream %q is %s, want a section", name, v.what())
	}
	s.Name = name
	for _, m := range o.members {
		if err := s.set(m.key, m.value); err != nil {
			return s, err
		}
	}
	if s.Dir == 0 {
		return s, at(v.line, "stream %q has no dir", name)
	}
	if o.get("urls") == nil {
		return s, at(v.line, "stream %q has no urls", name)
	}
	return s, nil
}

func (s *Stream) set(key string, v *value) (err error) {
	switch key {
	case "dir":
		text, _ := v.data.(string)
		if text != "up" && text != "down" && text != "both" {
			return at(v.line, `dir of stream %q is %v, want "up", "down" or "both"`, s.Name, v.plain())
		}
		s.Dir, err = gateway.ParseDirection(text)
	case "urls":
		return s.setURLs(v)
	case "filter":
		return s.setFilter(v)
	case "pluginDown":
		s.PluginDown, err = text(v, key)
	case "pluginUp":
		s.PluginUp, err = text(v, key)
	case "eventsPerSecond":
		s.EventsPerSecond, err = number(v, key, 0, 1e6)
	case "auth":
		var ok bool
		if s.Auth, ok = v.data.(bool); !ok {
			err = at(v.line, "auth is %s, want true or false", v.what())
		}
	case "reconnectDelaySeconds":
		// Stands in files of strfry's users, and strfry passes over it. So do we: waits are ours to choose.
	default:
		err = at(v.line, "unknown key %q in stream %q, which strfry would pass over: want dir, urls, filter, pluginDown, pluginUp, eventsPerSecond or auth", key, s.Name)
	}
	return err
}

func (s *Stream) setURLs(v *value) error {
	list, ok := v.data.([]*value)
	if !ok {
		return at(v.line, "urls of stream %q is %s, want a list", s.Name, v.what())
	}
	seen := map[string]bool{}
	for _, u := range list {
		t, err := text(u, "urls")
		if err != nil {
			return err
		}
		norm, err := nostr.NormalizeRelayURL(t)
		if err != nil {
			return at(u.line, "urls of stream %q has %q: %v", s.Name, t, err)
		}
		if !seen[norm] {
			seen[norm] = true
			s.URLs = append(s.URLs, norm)
		}
	}
	return nil
}

func (s *Stream) setFilter(v *value) error {
	raw, err := json.Marshal(v.plain())
	if err == nil {
		s.Filter, err = nostr.ParseFilter(raw)
	}
	if err != nil {
		return at(v.line, "filter of stream %q: %v", s.Name, err)
	}
	if s.Filter.Search != "" {
		return at(v.line, "filter of stream %q has a search, which cannot be reconciled", s.Name)
	}
	s.Filter.Limit = nil // a stream has none
	return nil
}

func text(v *value, key string) (string, error) {
	s, ok := v.data.(string)
	if !ok {
		return "", at(v.line, "%s is %s, want a string", key, v.what())
	}
	return s, nil
}

func number(v *value, key string, least, most float64) (float64, error) {
	n, ok := v.data.(json.Number)
	if !ok {
		return 0, at(v.line, "%s is %s, want a number", key, v.what())
	}
	f, err := strconv.ParseFloat(n.String(), 64)
	if err != nil || f < least || f > most {
		return 0, at(v.line, "%s is %s, want %v to %v", key, n, least, most)
	}
	return f, nil
}
