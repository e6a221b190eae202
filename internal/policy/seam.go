package policy

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"time"

	"fleetmesh.org/fleetmesh/internal/store"
	"fleetmesh.org/fleetmesh/nostr"
)

// SeamConfig says what is asked at one seam (§ Symmetrical Ingress & Egress Policy Seams): in front of what comes in, or of
// what leaves. The rules are asked in the order of the fields, the command last. Its keys are the same wherever a seam is configured.
type SeamConfig struct {
	AllowKinds   []int            `yaml:"allowKinds,omitempty"`   // when not empty, only these
	DenyKinds    []int            `yaml:"denyKinds,omitempty"`    //
	AllowPubkeys []string         `yaml:"allowPubkeys,omitempty"` // when not empty, only these authors: hex or npub
	DenyPubkeys  []string         `yaml:"denyPubkeys,omitempty"`  //
	MinPoW       int              `yaml:"minPow,omitempty"`       // NIP-13 bits
	Accept       []map[string]any `yaml:"accept,omitempty"`       // NIP-01 filters: when not empty, one must match
	Refuse       []map[string]any `yaml:"refuse,omitempty"`       // NIP-01 filters: none may match
	Trust        *TrustSpec       `yaml:"trust,omitempty"`

	// Command is a strfry plugin: a path, or, if it holds a space, a command for the shell.
	Command        string  `yaml:"command,omitempty"`
	TimeoutSeconds float64 `yaml:"timeoutSeconds,omitempty"` // for one answer; 0: 5
	OnFailure      string  `yaml:"onFailure,omitempty"`      // closed (the default): what cannot be asked about stays out; open: it passes
	Batch          int     `yaml:"batch,omitempty"`          // questions that may wait for their answers; 0: 1, as strfry does it
}

// TrustSpec configures a web of trust.
type TrustSpec struct {
	Roots          []string `yaml:"roots"`                    // hex or npub
	Depth          *int     `yaml:"depth,omitempty"`          // steps of following from a root; absent: 2
	Keep           *float64 `yaml:"keep,omitempty"`           // a new list with less than this share of the old is not taken up; absent: 0.8
	RefreshSeconds int64    `yaml:"refreshSeconds,omitempty"` // 0: 3600
}

// Seam is a built SeamConfig. A nil Seam lets everything pass.
type Seam struct {
	chain   Chain
	plugin  *Plugin
	trust   *Trust
	refresh time.Duration
}

// NewSeam builds a seam. knob is its place in the configuration, such as "spec.pluginIn"; dir is where it keeps what must
// outlive a restart; stderr takes what the command complains of. nil without an error means that there is nothing to ask.
func NewSeam(c *SeamConfig, knob, dir string, stderr io.Writer) (*Seam, error) {
	if c == nil {
		return nil, nil
	}
	var errs []error
	bad := func(key string, err error) {
		if err != nil {
			errs = append(errs, fmt.Errorf("%s.%s: %w", knob, key, err))
		}
	}
	s := new(Seam)
	s.addLists(c, knob, bad)
	var f Filters
	var err error
	f.Knob = knob
	f.Accept, err = filters(c.Accept)
	bad("accept", err)
	f.Refuse, err = filters(c.Refuse)
	bad("refuse", err)
	if len(f.Accept)+len(f.Refuse) > 0 {
		s.chain = append(s.chain, &f)
	}
	if c.Trust != nil {
		bad("trust", s.addTrust(c.Trust, knob, dir))
	}
	if c.OnFailure != "" && c.OnFailure != "closed" && c.OnFailure != "open" {
		bad("onFailure", fmt.Errorf("%q, want closed or open", c.OnFailure))
	}
	if c.TimeoutSeconds < 0 || c.TimeoutSeconds > 3600 {
		bad("timeoutSeconds", fmt.Errorf("%v, want 0 to 3600", c.TimeoutSeconds))
	}
	if c.Batch < 0 || c.Batch > 512 {
		bad("batch", fmt.Errorf("%d, want 0 to 512", c.Batch))
	}
	if c.Command != "" {
		p := ShellCommand(c.Command)
		p.Timeout, p.Open, p.Batch, p.Stderr = time.Duration(c.TimeoutSeconds*float64(time.Second)), c.OnFailure == "open", c.Batch, stderr
		s.plugin, err = NewPlugin(p)
		bad("command", err)
		s.chain = append(s.chain, s.plugin)
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	if len(s.chain) == 0 {
		return nil, nil
	}
	return s, nil
}

// addLists adds the rules that look at kind, author and id.
func (s *Seam) addLists(c *SeamConfig, knob string, bad func(string, error)) {
	for _, k := range append(append([]int(nil), c.AllowKinds...), c.DenyKinds...) {
		if k < 0 || k > 65535 {
			bad("allowKinds and denyKinds", fmt.Errorf("kind %d, want 0 to 65535", k))
		}
	}
	if len(c.AllowKinds)+len(c.DenyKinds) > 0 {
		k := NewKinds(toKinds(c.AllowKinds), toKinds(c.DenyKinds))
		k.knob = knob
		s.chain = append(s.chain, k)
	}
	allow, err := keys(c.AllowPubkeys)
	bad("allowPubkeys", err)
	deny, err := keys(c.DenyPubkeys)
	bad("denyPubkeys", err)
	if len(allow)+len(deny) > 0 {
		a := NewAuthors(allow, deny)
		a.knob = knob
		s.chain = append(s.chain, a)
	}
	if c.MinPoW < 0 || c.MinPoW > 256 {
		bad("minPow", fmt.Errorf("%d, want 0 to 256", c.MinPoW))
	}
	if c.MinPoW > 0 {
		s.chain = append(s.chain, MinPoW{Bits: c.MinPoW, All: true, Knob: knob})
	}
}

func (s *Seam) addTrust(c *TrustSpec, knob, dir string) error {
	cfg := TrustConfig{Depth: 2, Keep: 0.8, Knob: knob, Path: filepath.Join(dir, filepath.Base(knob)+".trust")}
	var err error
	if cfg.Roots, err = keys(c.Roots); err != nil {
		return fmt.Errorf("roots: %w", err)
	}
	if len(cfg.Roots) == 0 {
		return errors.New("roots is empty: nobody would be trusted")
	}
	if c.Depth != nil {
		cfg.Depth = *c.Depth
	}
	if c.Keep != nil {
		cfg.Keep = *c.Keep
	}
	if cfg.Depth < 0 || cfg.Depth > 4 {
		return fmt.Errorf("depth is %d, want 0 to 4", cfg.Depth)
	}
	if cfg.Keep < 0 || cfg.Keep > 1 {
		return fmt.Errorf("keep is %v, want 0 to 1", cfg.Keep)
	}
	if c.RefreshSeconds < 0 {
		return fmt.Errorf("refreshSeconds is %d, want 0 or more", c.RefreshSeconds)
	}
	s.refresh = time.Hour
	if c.RefreshSeconds > 0 {
		s.refresh = time.Duration(c.RefreshSeconds) * time.Second
	}
	if s.trust, err = NewTrust(cfg); err != nil {
		return err
	}
	s.chain = append(s.chain, s.trust)
	return nil
}

func toKinds(list []int) (out []nostr.Kind) {
	for _, k := range list {
		out = append(out, nostr.Kind(k))
	}
	return out
}

func keys(list []string) (out []nostr.PubKey, err error) {
	for _, text := range list {
		k, err := nostr.ParsePubKey(text)
		if err != nil {
			return nil, fmt.Errorf("%q: %w", text, err)
		}
		out = append(out, k)
	}
	return out, nil
}

func filters(list []map[string]any) (out []nostr.Filter, err error) {
	for _, m := range list {
		text, err := json.Marshal(m)
		if err != nil {
			return nil, err
		}
		f, err := nostr.ParseFilter(text)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", text, err)
		}
		out = append(out, f)
	}
	return out, nil
}

// Policies are what the seam asks, for a relay's own chain.
func (s *Seam) Policies() Chain {
	if s == nil {
		return nil
	}
	return s.chain
}

// Ask asks about events, in groups where the plugin takes groups, and returns one answer each.
func (s *Seam) Ask(ctx context.Context, list []*Request) []*Rejection {
	out := make([]*Rejection, len(list))
	if s == nil {
		return out
	}
	var rest []*Request
	var at []int
	for i, r := range list {
		if out[i] = s.chain.Precheck(ctx, r); out[i] == nil {
			rest, at = append(rest, r), append(at, i)
		}
	}
	for k, no := range s.chain.AdmitAll(ctx, rest) {
		out[at[k]] = no
	}
	return out
}

// SeamStatus tells how a seam stands.
type SeamStatus struct {
	Plugin  *PluginStats `json:"plugin,omitempty"`
	Trusted int          `json:"trusted,omitempty"` // keys on the web of trust's list
	Trust   *TrustReport `json:"trust,omitempty"`   // the latest look at it
}

// Status may be called at any time; nil for a nil Seam.
func (s *Seam) Status() *SeamStatus {
	if s == nil {
		return nil
	}
	st := new(SeamStatus)
	if s.plugin != nil {
		p := s.plugin.Stats()
		st.Plugin = &p
	}
	if s.trust != nil {
		last := s.trust.Last()
		st.Trusted, st.Trust = s.trust.Len(), &last
	}
	return st
}

// Run keeps the web of trust up to date from a store until ctx ends. told is called after each look.
func (s *Seam) Run(ctx context.Context, from store.Store, now func() time.Time, told func(TrustReport, error)) {
	if s == nil || s.trust == nil {
		return
	}
	t := time.NewTicker(s.refresh)
	defer t.Stop()
	for {
		rep, err := s.trust.Refresh(ctx, from, now().Unix())
		if ctx.Err() != nil {
			return
		}
		told(rep, err)
		select {
		case <-t.C:
		case <-ctx.Done():
			return
		}
	}
}

// Close ends the plugin.
func (s *Seam) Close() error {
	if s == nil || s.plugin == nil {
		return nil
	}
	return s.plugin.Close()
}
