package daemon

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"time"

	"fleetmesh.org/fleetmesh/internal/blossom"
	"fleetmesh.org/fleetmesh/internal/control"
	"fleetmesh.org/fleetmesh/internal/host"
	"fleetmesh.org/fleetmesh/internal/identity"
	"fleetmesh.org/fleetmesh/nostr"
	"fleetmesh.org/fleetmesh/spec"
)

// chargeBlob charges what a peer reads here, with a token of its node key, to the grant that it holds (RULINGS § 4). Other readers are nobody's
// account.
func (n *node) chargeBlob(r *blossom.Request) *blossom.Refusal {
	if r.Verb != blossom.VerbGet || r.Moves == 0 || r.PubKey == (nostr.PubKey{}) {
		return nil
	}
	h := n.fed.running()
	if h == nil || !h.Knows(r.PubKey) {
		return nil
	}
	err := h.BlobAsked(r.PubKey, r.Created, r.Moves)
	var no *host.Withheld
	switch {
	case errors.As(err, &no):
		return &blossom.Refusal{Code: no.Code, Reason: no.Error()}
	case err != nil:
		return &blossom.Refusal{Code: spec.CodeError, Reason: "the node cannot account for it now"}
	}
	return nil
}

// FetchBlobParams name a peer and a blob of its.
type FetchBlobParams struct {
	Peer string `json:"peer"` // DID
	Blob string `json:"blob"` // SHA-256 in hex, or CID
}

// FetchedBlob is a blob that was copied from a peer, verified by its hash.
type FetchedBlob struct {
	SHA256 string `json:"sha256"`
	CID    string `json:"cid"`
	Size   int64  `json:"size"`
	Type   string `json:"type"`
	From   string `json:"from"`           // DID
	Held   bool   `json:"held,omitempty"` // it was here already, and nothing was fetched
}

// tokenSeconds is how long the token of one request is good.
const tokenSeconds = 60

// fetchBlob copies a blob from a peer, on the budget of the grant that we hold from it, and keeps it if it hashes to its name.
func (n *node) fetchBlob(ctx context.Context, p FetchBlobParams) (FetchedBlob, error) {
	if n.blobs.server == nil {
		return FetchedBlob{}, errNoBlobs
	}
	peer, err := identity.ParseDID(p.Peer)
	if err != nil {
		return FetchedBlob{}, control.BadParams("peer: %v", err)
	}
	hash, err := parseBlob(p.Blob)
	if err != nil {
		return FetchedBlob{}, control.BadParams("%v", err)
	}
	out := FetchedBlob{SHA256: hash.String(), CID: hash.CID(), From: identity.FormatDID(peer)}
	if m, err := n.blobs.store.Stat(ctx, hash); err == nil {
		out.Size, out.Type, out.Held = m.Size, m.Type, true
		return out, nil
	}
	h, err := n.fed.get(ctx)
	if err != nil {
		return out, err
	}
	desc, err := h.Descriptor(ctx, peer)
	if err != nil {
		return out, fmt.Errorf("look up where the peer keeps its blobs: %w", err)
	}
	server, err := blobServer(desc)
	if err != nil {
		return out, err
	}
	size, holds, err := n.blobs.fetch.Size(ctx, server, hash)
	switch {
	case err != nil:
		return out, fmt.Errorf("ask %s for the blob: %w", out.From, err)
	case !holds:
		return out, control.Refuse(string(spec.CodeNotFound), "%s does not hold the blob", out.From)
	case size < 0:
		return out, fmt.Errorf("%s does not say how long the blob is, so no budget can be taken for it", out.From)
	}
	m, err := n.buyBlob(ctx, h, peer, server, hash, size)
	out.Size, out.Type = m.Size, m.Type
	return out, err
}

// buyBlob takes the budget, asks, and notes the outcome.
func (n *node) buyBlob(ctx context.Context, h *host.Host, peer nostr.PubKey, server string, hash blossom.Hash, size int64) (blossom.Meta, error) {
	now := time.Now().Unix()
	u, err := url.Parse(server)
	if err != nil {
		return blossom.Meta{}, fmt.Errorf("the peer's blob server: %w", err)
	}
	token := &nostr.Event{Kind: blossom.KindToken, CreatedAt: now, Content: "mirror for a peer", Tags: []nostr.Tag{
		{"t", string(blossom.VerbGet)}, {"x", hash.String()}, {"server", u.Hostname()}, {"expiration", strconv.FormatInt(now+tokenSeconds, 10)},
	}}
	if err := identity.SignEvent(n.agent, token); err != nil {
		return blossom.Meta{}, fmt.Errorf("sign the request: %w", err)
	}
	ended, err := h.BlobFetching(peer, now, size)
	var no *host.Withheld
	if errors.As(err, &no) {
		return blossom.Meta{}, control.Refuse(string(no.Code), "%v", no)
	}
	if err != nil {
		return blossom.Meta{}, err
	}
	m, err := n.blobs.server.FetchFrom(ctx, server, hash, token, ended)
	if err != nil {
		return m, fmt.Errorf("fetch the blob: %w", err)
	}
	return m, nil
}

// blobServer is where a node serves blobs: the endpoint that it declares for them, else its relay's own address.
func blobServer(d *identity.Descriptor) (string, error) {
	var face string
	for _, e := range d.Endpoints {
		switch e.Scheme {
		case "blossom":
			return e.Address, nil
		case "wss":
			face = cmp.Or(face, e.Address)
		}
	}
	u, err := url.Parse(face)
	if err != nil || face == "" {
		return "", errors.New("the peer's descriptor names no address at which it could serve blobs")
	}
	scheme := map[string]string{"ws": "http", "wss": "https"}[u.Scheme]
	return scheme + "://" + u.Host, nil
}

// parseBlob reads a blob's name: its hash, or its CID.
func parseBlob(s string) (blossom.Hash, error) {
	h, err := blossom.ParseHash(s)
	if err == nil {
		return h, nil
	}
	if h, err = blossom.ParseCID(s); err != nil {
		return h, fmt.Errorf("%q is neither a hash nor a CID: %w", s, err)
	}
	return h, nil
}
