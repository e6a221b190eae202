package main

import (
	"encoding/json"
	"fmt"
	"io"

	"fleetmesh.org/fleetmesh/internal/identity"
	"fleetmesh.org/fleetmesh/nostr"
)

type keyCmd struct {
	Show keyShowCmd `cmd:"" help:"The public keys of the node; secrets are never printed." default:"1"`
}

type keyShowCmd struct{}

func (keyShowCmd) Run(a *app) error {
	k, err := a.dir.LoadKeys()
	if err != nil {
		return err
	}
	node := k.Node.PubKey()
	shown := map[string]string{
		"did": identity.FormatDID(node), "npub": nostr.EncodeNpub(node), "node": identity.NodeMultikey(node),
		"agreement": k.Agreement.Public().Multikey(), "transport": k.Transport.Public().Multikey(), "kept_in": a.dir.Keys(),
	}
	return a.print(shown, func(w io.Writer) {
		for _, name := range []string{"did", "npub", "node", "agreement", "transport", "kept_in"} {
			fmt.Fprintf(w, "%-10s %s\n", name, shown[name])
		}
	})
}

type didCmd struct {
	Resolve didResolveCmd `cmd:"" help:"The DID document of this node, or of a did:nostr, did:key or did:peer." default:"withargs"`
}

type didResolveCmd struct {
	DID string `arg:"" optional:"" help:"The DID; this node's if absent."`
}

func (c *didResolveCmd) Run(a *app) error {
	var doc json.RawMessage
	if err := a.call("did.resolve", map[string]string{"did": c.DID}, &doc, nil); err != nil {
		return err
	}
	if a.json {
		fmt.Fprintf(a.out, "%s\n", doc)
		return nil
	}
	text, err := json.MarshalIndent(doc, "", "  ")
	if err != nil {
		return fmt.Errorf("print the document: %w", err)
	}
	fmt.Fprintf(a.out, "%s\n", text)
	return nil
}
