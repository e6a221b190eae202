package daemon

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"fleetmesh.org/fleetmesh/internal/host"
	"fleetmesh.org/fleetmesh/internal/identity"
	"fleetmesh.org/fleetmesh/internal/store"
	"fleetmesh.org/fleetmesh/nostr"
	"fleetmesh.org/fleetmesh/spec"
)

// boundKeys are the public keys that the descriptor binds to the node key: the present ones, then those that were rotated out.
type boundKeys struct {
	agreement []identity.BoundKey
	transport []identity.TransportKey
}

// boundKeys reads them from the directory. None of them needs the node key.
func (d Dir) boundKeys(now int64) (b boundKeys, err error) {
	agreement, err := d.readKey(string(identity.RoleAgreement))
	if err != nil {
		return b, err
	}
	wire, err := d.readKey(string(identity.RoleTransport))
	if err != nil {
		return b, err
	}
	b.agreement = []identity.BoundKey{{Key: identity.AgreementSecret(agreement).Public()}}
	b.transport = []identity.TransportKey{identity.TransportSecret(wire).Public()}
	former, err := d.FormerKeys(string(identity.RoleAgreement), now)
	if err != nil {
		return b, err
	}
	for _, f := range former {
		b.agreement = append(b.agreement, identity.BoundKey{Key: identity.AgreementSecret(f.Key).Public(), Expires: f.Until})
	}
	if former, err = d.FormerKeys(string(identity.RoleTransport), now); err != nil {
		return b, err
	}
	for _, f := range former {
		b.transport = append(b.transport, identity.TransportSecret(f.Key).Public())
	}
	return b, nil
}

// facts are what a descriptor says beside the configuration and the keys.
type facts struct {
	self     nostr.PubKey
	nips     []int  // that the face serves
	face     string // URL of the face on this machine, where no other door is declared; "" for none
	coverage string // digest of the claims in force
	build    string
}

// describe says who a node is, as its directory has it.
func describe(dir Dir, c *Config, f facts, now int64) (*identity.Descriptor, error) {
	s := &c.Spec
	rules, ok := spec.C().Class(spec.Class(s.Class))
	if !ok {
		return nil, fmt.Errorf("class %q is none of this protocol's", s.Class)
	}
	keys, err := dir.boundKeys(now)
	if err != nil {
		return nil, err
	}
	d := &identity.Descriptor{
		Subject: f.self, CreatedAt: now, About: s.Relay.Description, Class: spec.Class(s.Class), Protocol: spec.C().Protocol.Name, Digest: spec.DigestHex(),
		Software: "https://fleetmesh.org", SoftwareVersion: f.build, Agreement: keys.agreement, Transport: keys.transport, Protocols: protocols(),
		Capabilities: append([]string{"relay", "negentropy"}, s.Capabilities...), Coverage: f.coverage,
		Expiration: now + min(spec.C().Lifetimes.DescriptorSeconds, rules.DescriptorMaxSeconds),
	}
	for _, nip := range f.nips {
		d.NIPs = append(d.NIPs, strconv.Itoa(nip))
	}
	d.Endpoints = doors(s, f.face)
	if d.Mediators, err = dir.mediators(s); err != nil {
		return nil, err
	}
	if s.Operator.Pubkey != "" {
		if d.Operator, err = nostr.ParsePubKey(s.Operator.Pubkey); err != nil {
			return nil, fmt.Errorf("spec.operator.pubkey: %w", err)
		}
	}
	if s.Operator.PolicyFile != "" {
		path := s.Operator.PolicyFile
		if !filepath.IsAbs(path) {
			path = filepath.Join(string(dir), path)
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, fmt.Errorf("spec.operator.policyFile: %w", err)
		}
		sum := sha256.Sum256(text)
		d.PolicyDigest, d.PolicyURL = hex.EncodeToString(sum[:]), s.Operator.PolicyURL
	}
	return d, nil
}

// doors are the endpoints that a node advertises: those that are configured, else the public URLs of the face, else the address that it
// listens on, which is good for this machine alone.
func doors(s *Spec, face string) (out []identity.Endpoint) {
	if s.Class == string(spec.ClassLeaf) {
		return nil
	}
	for _, e := range s.Endpoints {
		out = append(out, identity.Endpoint{Scheme: e.Transport, Address: e.Address, Preference: e.Priority})
	}
	if len(out) > 0 {
		return out
	}
	urls := s.Relay.PublicURLs
	if len(urls) == 0 && face != "" {
		urls = []string{face}
	}
	for i, u := range urls {
		out = append(out, identity.Endpoint{Scheme: "wss", Address: u, Preference: 40 + 10*i})
	}
	return out
}

// describe says who this running node is.
func (f *federation) describe(ctx context.Context, now int64) (*identity.Descriptor, error) {
	coverage, err := coverageInForce(ctx, f.n.store, f.n.agent.PubKey(), now)
	if err != nil {
		return nil, err
	}
	return describe(f.n.opt.Dir, f.n.cfg(), facts{self: f.n.agent.PubKey(), nips: f.n.relay.SupportedNIPs(), face: f.n.url, coverage: coverage, build: f.n.opt.Build}, now)
}

// ownDescriptor returns the descriptor that is published already, if it still says what the configuration says and is not due for a new one, or
// makes one.
func (f *federation) ownDescriptor(ctx context.Context) (*nostr.Event, error) {
	now := host.Now().Unix()
	want, err := f.describe(ctx, now)
	if err != nil {
		return nil, err
	}
	held, err := newest(ctx, f.n.store, spec.KindDescriptor, want.Subject, now)
	if err != nil {
		return nil, fmt.Errorf("look for our descriptor: %w", err)
	}
	if held != nil {
		has, err := identity.CheckDescriptor(held, identity.Rules{Now: now, PoWBits: f.bits(), Held: true})
		if err == nil && same(has, want) && now < has.RefreshAt() {
			return held, nil
		}
		want.CreatedAt = max(now, held.CreatedAt+1) // else the old one would stand
	}
	e := want.Event()
	if _, err := identity.CheckDescriptor(e, identity.Rules{Now: now, Held: true}); err != nil {
		return nil, fmt.Errorf("the configuration makes a descriptor that no peer would accept: %w", err)
	}
	for next, done := uint64(0), false; !done; {
		if next, done, err = identity.Mine(e, f.bits(), next, 1<<16); err != nil {
			return nil, err
		}
		if f.n.opt.Step != nil {
			f.n.opt.Step("mining the node's descriptor, hashes tried", int64(next), 0)
		}
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
	}
	if err := identity.SignEvent(f.n.agent, e); err != nil {
		return nil, fmt.Errorf("sign our descriptor: %w", err)
	}
	return e, f.publish(ctx, e)
}

// newest returns the newest event of a kind by an author, nil if there is none.
func newest(ctx context.Context, s store.Store, kind nostr.Kind, author nostr.PubKey, now int64) (*nostr.Event, error) {
	filter := nostr.Filter{Kinds: []nostr.Kind{kind}, Authors: []nostr.PubKey{author}}
	for e, err := range s.Query(ctx, []nostr.Filter{filter}, store.View{}, 1, now) {
		return e, err
	}
	return nil, nil
}

// same compares what two descriptors say, apart from their times and work.
func same(a, b *identity.Descriptor) bool {
	x, y := *a, *b
	for _, d := range []*identity.Descriptor{&x, &y} {
		d.CreatedAt, d.Expiration, d.Committed, d.Work = 0, 0, 0, 0
	}
	ex, ey := x.Event(), y.Event()
	return string(ex.AppendCanonical(nil)) == string(ey.AppendCanonical(nil))
}

// refreshEvery is how often a node looks whether its descriptor is due.
const refreshEvery = 10 * time.Minute

// refresh makes the descriptor anew before it expires, and when what it says has changed.
func (f *federation) refresh(ctx context.Context) {
	tick := time.NewTicker(refreshEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		case <-f.renew:
		}
		if err := f.renewNow(ctx); err != nil && ctx.Err() == nil {
			f.n.log.Warn("refresh the node's descriptor", "err", err)
		}
	}
}

// renewNow looks whether the descriptor is to be made anew, and tells peers and relays if it was.
func (f *federation) renewNow(ctx context.Context) error {
	f.renewing.Lock()
	defer f.renewing.Unlock()
	if f.retired() {
		return errRetired
	}
	d, err := f.ownDescriptor(ctx)
	if err != nil {
		return err
	}
	old := f.own()
	f.setDescriptor(d)
	if old == nil || old.ID == d.ID {
		return nil
	}
	if h := f.running(); h != nil {
		h.Govern(f.govern()) // proposals name the descriptor
		h.Announce()
	}
	return f.project(ctx)
}
