package main

import (
	"encoding/json"
	"fmt"

	"fleetmesh.org/fleetmesh/internal/daemon"
)

type didCmd struct {
	Resolve didResolveCmd `cmd:"" help:"The DID document of this node, or of a did:nostr, did:key or did:peer." default:"withargs"`
}

type didResolveCmd struct {
	DID string `arg:"" optional:"" help:"The DID; this node's if absent."`
}

func (c *didResolveCmd) Run(a *app) error {
	doc, err := c.resolve(a)
	if err != nil {
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

// resolve asks the running node, or the store and the keys of a stopped one.
func (c *didResolveCmd) resolve(a *app) (doc json.RawMessage, err error) {
	if a.running() {
		return doc, a.call("did.resolve", daemon.DIDParams{DID: c.DID}, &doc, nil)
	}
	return doc, a.stopped(func(s *daemon.Offline) error {
		d, err := s.Resolve(a.ctx, a.dir, c.DID)
		if err != nil {
			return err
		}
		doc, err = json.Marshal(d)
		return err
	})
}
