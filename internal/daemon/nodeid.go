package daemon

import (
	"context"
	"time"

	"fleetmesh.org/fleetmesh/internal/identity"
	"fleetmesh.org/fleetmesh/internal/store"
	"fleetmesh.org/fleetmesh/nostr"
	"fleetmesh.org/fleetmesh/spec"
)

// ID is who a node is: what `meshnode id` tells.
type ID struct {
	DID        string              `json:"did"`
	Npub       string              `json:"npub"`
	PubKey     string              `json:"pubkey"`
	Node       string              `json:"node_key"`       // multikeys
	Agreement  []BoundKey          `json:"agreement_keys"` // the present one first, then those that were rotated out
	Transport  []string            `json:"transport_keys"`
	Class      string              `json:"class"`
	Operator   string              `json:"operator,omitempty"`
	Protocol   string              `json:"protocol"`
	Digest     string              `json:"digest"`
	Relays     []string            `json:"relays"`
	Endpoints  []identity.Endpoint `json:"endpoints"`
	Backend    string              `json:"key_backend"`
	Dir        string              `json:"dir"`
	Descriptor *DescriptorID       `json:"descriptor"` // null: none is published yet; meshnode up mines and publishes it
	Revoked    bool                `json:"revoked"`
}

// BoundKey is an agreement key and the unix second until which it is honoured, 0 for as long as the descriptor.
type BoundKey struct {
	Key   string `json:"key"`
	Until int64  `json:"until,omitempty"`
}

// DescriptorID is the descriptor that stands.
type DescriptorID struct {
	ID      string `json:"id"`
	Created int64  `json:"created_at"`
	Expires int64  `json:"expires_at"`
	Work    int    `json:"pow_bits"`
}

// PublicKey is the node's key. It needs no passphrase where the key was encrypted by this program.
func (d Dir) PublicKey() (nostr.PubKey, error) {
	if text, err := d.secretText(d.publicFile(), "public key"); err == nil {
		return nostr.ParsePubKey(text)
	}
	k, err := d.readNodeKey()
	if err != nil {
		return nostr.PubKey{}, err
	}
	return k.PubKey(), nil
}

// identify says who a node is, from its directory and its store. face is the address that it listens on, "" where it is stopped.
func identify(ctx context.Context, dir Dir, c *Config, s store.Store, face string, now int64) (id ID, err error) {
	key, err := dir.PublicKey()
	if err != nil {
		return id, err
	}
	keys, err := dir.boundKeys(now)
	if err != nil {
		return id, err
	}
	id = ID{
		DID: identity.FormatDID(key), Npub: nostr.EncodeNpub(key), PubKey: key.String(), Node: identity.NodeMultikey(key),
		Class: c.Spec.Class, Operator: c.Spec.Operator.Pubkey, Protocol: spec.C().Protocol.Name, Digest: spec.DigestHex(),
		Relays: append([]string{}, c.Spec.Relays...), Endpoints: append([]identity.Endpoint{}, doors(&c.Spec, face)...), Dir: string(dir),
	}
	for _, k := range keys.agreement {
		id.Agreement = append(id.Agreement, BoundKey{k.Key.Multikey(), k.Expires})
	}
	for _, k := range keys.transport {
		id.Transport = append(id.Transport, k.Multikey())
	}
	if id.Backend, err = dir.Backend(); err != nil {
		return id, err
	}
	r, err := newest(ctx, s, spec.KindRevocation, key, now)
	if err != nil {
		return id, err
	}
	id.Revoked = r != nil
	e, err := newest(ctx, s, spec.KindDescriptor, key, now)
	if err != nil || e == nil {
		return id, err
	}
	if d, err := identity.CheckDescriptor(e, identity.Rules{Subject: &key, Now: now, Held: true}); err == nil {
		id.Descriptor = &DescriptorID{e.ID.String(), d.CreatedAt, d.Expiration, min(d.Work, d.Committed)}
	}
	return id, nil
}

func (n *node) identify(ctx context.Context, _ none) (ID, error) {
	return identify(ctx, n.opt.Dir, n.cfg(), n.store, n.url, time.Now().Unix())
}

// Identify says who a stopped node is.
func (o *Offline) Identify(ctx context.Context, dir Dir) (ID, error) {
	c, err := LoadConfig(dir.Config())
	if err != nil {
		return ID{}, err
	}
	return identify(ctx, dir, c, o.store, "", time.Now().Unix())
}

// PublicKeys are the multikeys of the agreement and transport keys, the present one first, then those that are honoured still.
func (d Dir) PublicKeys(now int64) (agreement, transport []string, err error) {
	keys, err := d.boundKeys(now)
	if err != nil {
		return nil, nil, err
	}
	for _, k := range keys.agreement {
		agreement = append(agreement, k.Key.Multikey())
	}
	for _, k := range keys.transport {
		transport = append(transport, k.Multikey())
	}
	return agreement, transport, nil
}
