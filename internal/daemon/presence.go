package daemon

import (
	"context"
	"fmt"
	"net/url"
	"strings"
	"time"

	"fleetmesh.org/fleetmesh/internal/host"
	"fleetmesh.org/fleetmesh/internal/identity"
	"fleetmesh.org/fleetmesh/internal/ledger"
	"fleetmesh.org/fleetmesh/nostr"
	"fleetmesh.org/fleetmesh/spec"
)

// project puts what others find this node by into the outbox: its descriptor, its relay list (kind 10002), and a kind 30166 for each public
// endpoint, so that ordinary clients find its face.
func (f *federation) project(ctx context.Context) error {
	own := f.own()
	if own == nil {
		return nil
	}
	f.outbox.put(own)
	now := host.Now().Unix()
	d, err := identity.CheckDescriptor(own, identity.Rules{Now: now, Held: true})
	if err != nil {
		return fmt.Errorf("our own descriptor: %w", err)
	}
	list := &nostr.Event{CreatedAt: now, Kind: nostr.KindRelayList}
	for _, u := range f.relayList() {
		list.Tags = append(list.Tags, nostr.Tag{"r", u})
	}
	if len(list.Tags) > 0 {
		if err := f.putOwn(ctx, list); err != nil {
			return fmt.Errorf("publish the relay list: %w", err)
		}
	}
	for _, u := range f.publicDoors() {
		if err := f.putOwn(ctx, identity.FaceStatus(d, f.faceOf(u), now)); err != nil {
			return fmt.Errorf("publish the status of %s: %w", u, err)
		}
	}
	return nil
}

// publicDoors are the WebSocket addresses that the operator declared, in canonical form.
func (f *federation) publicDoors() (urls []string) {
	for _, e := range doors(&f.n.cfg().Spec, "") {
		if e.Scheme != "wss" {
			continue
		}
		if u, err := nostr.NormalizeRelayURL(e.Address); err == nil {
			urls = append(urls, u)
		}
	}
	return urls
}

// relayList is the node's kind 10002: where it publishes, and its own doors.
func (f *federation) relayList() (urls []string) {
	seen := map[string]bool{}
	for _, u := range append(append([]string(nil), f.n.cfg().Spec.Relays...), f.publicDoors()...) {
		if u, err := nostr.NormalizeRelayURL(u); err == nil && !seen[u] {
			seen[u] = true
			urls = append(urls, u)
		}
	}
	return urls
}

// faceOf says what a door really serves.
func (f *federation) faceOf(u string) identity.Face {
	c := &f.n.cfg().Spec.Relay
	face := identity.Face{
		Endpoint: u, Network: networkOf(u), NIPs: f.n.relay.SupportedNIPs(), Info: string(f.n.relay.InfoDocument()),
		Writes: c.ReadOnly || len(c.AllowPubkeys) > 0 || len(c.AllowKinds) > 0, PoW: c.MinPoW > 0,
	}
	for _, s := range f.n.cfg().Spec.Shards {
		face.Shards = append(face.Shards, s.Name)
	}
	return face
}

// networkOf names the network of an address as NIP-66 does.
func networkOf(address string) string {
	u, err := url.Parse(address)
	if err != nil {
		return ""
	}
	for suffix, network := range map[string]string{".onion": "tor", ".i2p": "i2p", ".loki": "loki"} {
		if strings.HasSuffix(u.Hostname(), suffix) {
			return network
		}
	}
	return "clearnet"
}

// beat publishes a heartbeat on schedule. A leaf has none: it must not tell its waking hours.
func (f *federation) beat(ctx context.Context) {
	if f.n.cfg().Spec.Class == string(spec.ClassLeaf) {
		return
	}
	every := time.Duration(identity.HeartbeatEvery(f.n.cfg().Spec.Federation.WindowSeconds)) * time.Second
	tick := time.NewTicker(every * 9 / 10) // "at least once": not late by a busy moment
	defer tick.Stop()
	for {
		if err := f.beatOnce(ctx); err != nil && ctx.Err() == nil {
			f.n.log.Warn("publish a heartbeat", "err", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

func (f *federation) beatOnce(ctx context.Context) error {
	if f.retired() {
		return nil
	}
	h := identity.Heartbeat{
		At: host.Now().Unix(), Class: spec.Class(f.n.cfg().Spec.Class), Endpoints: identity.EndpointsDigest(doors(&f.n.cfg().Spec, f.n.url)),
	}
	return f.pulse(ctx, h.Event())
}

// pulse signs and publishes an ephemeral event, here and at our relays.
func (f *federation) pulse(ctx context.Context, e *nostr.Event) error {
	if err := identity.SignEvent(f.n.agent, e); err != nil {
		return err
	}
	if err := f.publish(ctx, e); err != nil {
		return err
	}
	f.outbox.put(e)
	return nil
}

// diagnose publishes coarse counters once a day, where the operator switched that on.
func (f *federation) diagnose(ctx context.Context) {
	if !f.n.cfg().Spec.Federation.Diagnostics {
		return
	}
	tick := time.NewTicker(time.Duration(spec.C().Lifetimes.DiagnosticsWindowSeconds) * time.Second)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-tick.C:
			if err := f.pulse(ctx, f.diagnostics(now.Unix())); err != nil && ctx.Err() == nil {
				f.n.log.Warn("publish diagnostics", "err", err)
			}
		}
	}
}

// diagnostics sums up the windows that closed within a day, over all peers and naming none.
func (f *federation) diagnostics(now int64) *nostr.Event {
	day := spec.C().Lifetimes.DiagnosticsWindowSeconds
	d := ledger.Diagnostics{Binding: map[spec.Limit]int64{}}
	if h := f.running(); h != nil {
		for _, p := range h.Peers() {
			for _, w := range p.Windows {
				if w.At <= now-day {
					continue
				}
				for s := range d.Severities {
					if spec.Severity(s).String() == w.Severity {
						d.Severities[s]++
					}
				}
				if w.Limit != "" {
					d.Binding[w.Limit]++
				}
			}
		}
	}
	return d.Event(f.n.agent.PubKey(), now)
}
