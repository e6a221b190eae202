package identity

import (
	"slices"
	"strconv"

	"fleetmesh.org/fleetmesh/nostr"
	"fleetmesh.org/fleetmesh/spec"
)

// Face is what a public endpoint really serves, as its NIP-11 document and its policy say.
type Face struct {
	Endpoint string   // the address in canonical form
	Network  string   // "clearnet", "tor", "i2p", "loki" (NIP-66)
	NIPs     []int    // supported
	Auth     bool     // required, as are the three below
	Payment  bool     // to be let in
	Writes   bool     // writing is restricted
	PoW      bool     // on events
	Shards   []string // topics that the node claims
	Info     string   // the NIP-11 document, as served
}

// FaceStatus makes the unsigned kind 30166 (NIP-66) that a node publishes about one of its own endpoints, so that ordinary clients find it. It
// lives as long as the descriptor does.
func FaceStatus(d *Descriptor, f Face, at int64) *nostr.Event {
	e := &nostr.Event{PubKey: d.Subject, CreatedAt: at, Kind: spec.KindRelayStatus, Content: f.Info}
	add := func(name, value string) { e.Tags = append(e.Tags, nostr.Tag{name, value}) }
	add("d", f.Endpoint)
	if f.Network != "" {
		add("n", f.Network)
	}
	nips := slices.Clone(f.NIPs)
	slices.Sort(nips)
	for _, n := range slices.Compact(nips) {
		add("N", strconv.Itoa(n))
	}
	for _, r := range []struct {
		name     string
		required bool
	}{{"auth", f.Auth}, {"payment", f.Payment}, {"writes", f.Writes}, {"pow", f.PoW}} {
		if r.required {
			add("R", r.name)
		} else {
			add("R", "!"+r.name)
		}
	}
	for _, t := range f.Shards {
		add("t", t)
	}
	add("expiration", strconv.FormatInt(d.Expiration, 10))
	return e
}
