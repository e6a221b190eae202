package main

import (
	"encoding/json"
	"fmt"
	"io"
	"time"

	"fleetmesh.org/fleetmesh/internal/daemon"
)

type blobsCmd struct {
	Status   blobsStatusCmd   `cmd:"" default:"1" help:"How many blobs are held, and how many octets each key moved."`
	Trace    blobsTraceCmd    `cmd:"" help:"Follow an event to the blobs that it names, and these to the places that hold them."`
	Fetch    blobsFetchCmd    `cmd:"" help:"Copy a blob from a peer, on the budget of its grant, verified by its hash."`
	Erase    blobsEraseCmd    `cmd:"" help:"Erase a blob, whoever owns it, and show this place's signed answer."`
	Erasures blobsErasuresCmd `cmd:"" help:"The signed answers about erasures at this place."`
}

type blobsStatusCmd struct{}

func (blobsStatusCmd) Run(a *app) error {
	var s daemon.BlobStatus
	if err := a.call("blobs.status", nil, &s, nil); err != nil {
		return err
	}
	return a.print(s, func(w io.Writer) {
		fmt.Fprintf(w, "%d blobs, %d octets; %d verified since the start, %d damaged, %d names blocked\n", s.Blobs, s.Bytes, s.Verified, s.Corrupt, s.Blocked)
		for _, f := range s.Flows {
			who := f.PubKey
			if who == "" {
				who = "without a token"
			}
			fmt.Fprintf(w, "  %-64s  in %d  out %d\n", who, f.In, f.Out)
		}
	})
}

type blobsTraceCmd struct {
	Event string `arg:"" help:"Event id, 64 hex digits. It must be held here, so trace before you purge."`
}

func (c *blobsTraceCmd) Help() string {
	return `Asks this node and each server of the author's list (kind 10063, BUD-03) whether they hold each blob that the event names.

Example:
  meshnode blobs trace 5c83da77af1dec6d7289834998ad7aafbd9e2191396d75ec3cc27f5a77226f36`
}

func (c *blobsTraceCmd) Run(a *app) error {
	var places []daemon.BlobPlace
	if err := a.call("blobs.trace", daemon.TraceParams{Event: c.Event}, &places, nil); err != nil {
		return err
	}
	return a.print(places, func(w io.Writer) {
		if len(places) == 0 {
			fmt.Fprintln(w, "the event names no blob")
		}
		for _, p := range places {
			fmt.Fprintf(w, "%s  %s: %s %s\n", p.SHA256, p.Place, p.Holds, p.Cause)
		}
	})
}

type blobsFetchCmd struct {
	Peer string `arg:"" help:"DID of the peer."`
	Blob string `arg:"" help:"SHA-256 in hex, or CID."`
}

func (c *blobsFetchCmd) Help() string {
	return `Both ends count one req and the blob's octets in blob_bytes. A grant opens with a blob_bytes of zero: the peer's operator raises it, with
meshnode peer amend.

Example:
  meshnode blobs fetch did:nostr:… b1674191a88ec5cdd733e4240a81803105dc412d6c6708d53ab94fc248f4f553`
}

func (c *blobsFetchCmd) Run(a *app) error {
	var f daemon.FetchedBlob
	if err := a.call("blobs.fetch", daemon.FetchBlobParams{Peer: c.Peer, Blob: c.Blob}, &f, nil); err != nil {
		return err
	}
	return a.print(f, func(w io.Writer) {
		if f.Held {
			fmt.Fprintf(w, "%s was here already, %d octets\n", f.SHA256, f.Size)
			return
		}
		fmt.Fprintf(w, "%s, %d octets (%s), from %s\n", f.SHA256, f.Size, f.Type, f.From)
	})
}

type blobsEraseCmd struct {
	Blob   string `arg:"" help:"SHA-256 in hex, or CID."`
	Event  string `help:"Id of the event that led to it."`
	Reason string `help:"One short word." default:"operator"`
	Block  bool   `help:"The blob may not come back."`
}

func (c *blobsEraseCmd) Help() string {
	return `The answer is signed by the node key, so that whoever asked for the erasure can show it: erased, not-held or failed.

Example:
  meshnode blobs erase --block --reason takedown b1674191a88ec5cdd733e4240a81803105dc412d6c6708d53ab94fc248f4f553`
}

func (c *blobsEraseCmd) Run(a *app) error {
	var answer json.RawMessage
	if err := a.call("blobs.erase", daemon.EraseParams{Blob: c.Blob, Event: c.Event, Reason: c.Reason, Block: c.Block}, &answer, nil); err != nil {
		return err
	}
	return a.print(answer, func(w io.Writer) { fmt.Fprintf(w, "%s\n", answer) })
}

type blobsErasuresCmd struct {
	Blob  string `help:"Only about this blob: SHA-256 in hex, or CID."`
	Event string `help:"Only those that this event led to."`
}

func (c *blobsErasuresCmd) Help() string {
	return `Blobs go when the operator erases them, when their author deletes the events that named them (NIP-09), and when it vanishes (NIP-62).

Example:
  meshnode blobs erasures --json`
}

func (c *blobsErasuresCmd) Run(a *app) error {
	var list []struct {
		SHA256  string `json:"sha256"`
		Reason  string `json:"reason"`
		Outcome string `json:"outcome"`
		Event   string `json:"event"`
		At      int64  `json:"at"`
	}
	var raw json.RawMessage
	if err := a.call("blobs.erasures", daemon.ErasuresParams{Blob: c.Blob, Event: c.Event}, &raw, nil); err != nil {
		return err
	}
	if err := json.Unmarshal(raw, &list); err != nil {
		return fmt.Errorf("read the answer: %w", err)
	}
	return a.print(raw, func(w io.Writer) {
		for _, e := range list {
			fmt.Fprintf(w, "%s  %s  %s (%s) %s\n", time.Unix(e.At, 0).Format(time.DateTime), e.SHA256, e.Outcome, e.Reason, e.Event)
		}
		if len(list) == 0 {
			fmt.Fprintln(w, "nothing was erased here")
		}
	})
}
