package daemon

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"time"

	"fleetmesh.org/fleetmesh/internal/gateway"
	"fleetmesh.org/fleetmesh/internal/identity"
	"fleetmesh.org/fleetmesh/internal/policy"
	"fleetmesh.org/fleetmesh/nostr"
)

// seams are what is asked in front of all that comes in, and of all that leaves to peers and other relays.
type seams struct{ in, out *policy.Seam }

// seams is where the webs of trust are kept.
func (d Dir) seams() string { return filepath.Join(string(d), "policy") }

func newSeams(dir Dir, c *Spec) (s seams, err error) {
	if c.PluginIn == nil && c.PluginOut == nil {
		return s, nil
	}
	if err := os.MkdirAll(dir.seams(), 0o700); err != nil {
		return s, err
	}
	var inErr, outErr error
	s.in, inErr = policy.NewSeam(c.PluginIn, "spec.pluginIn", dir.seams(), os.Stderr)
	s.out, outErr = policy.NewSeam(c.PluginOut, "spec.pluginOut", dir.seams(), os.Stderr)
	return s, errors.Join(inErr, outErr)
}

func (s seams) close() error { return errors.Join(s.in.Close(), s.out.Close()) }

// run keeps the webs of trust up to date until ctx ends.
func (s seams) run(ctx context.Context, n *node) {
	var work sync.WaitGroup
	for knob, seam := range map[string]*policy.Seam{"spec.pluginIn": s.in, "spec.pluginOut": s.out} {
		work.Go(func() {
			seam.Run(ctx, n.store, time.Now, func(r policy.TrustReport, err error) {
				switch {
				case err != nil:
					n.log.Error("look at the web of trust", "knob", knob, "err", err)
				case r.Shrunk:
					n.log.Error("the web of trust would shrink too much: the old list stays in force; see trust.keep", "knob", knob, "before", r.Before, "found", r.Found)
				default:
					n.log.Info("the web of trust is up to date", "knob", knob, "before", r.Before, "now", r.Found)
				}
			})
		})
	}
	work.Wait()
}

// boundary is what never crosses; no gift wrap does by these roads. On the road to and from peers, host holds each wrap against its recipients'
// kind 10050 before it asks here.
var (
	boundary     policy.Boundary
	peerBoundary = policy.Boundary{Mailbox: func(context.Context, nostr.PubKey) bool { return true }}
)

// leaving asks about an event that is about to be delivered to a peer: whether it may cross at all, and pluginOut.
func (s seams) leaving(ctx context.Context, peer nostr.PubKey, e *nostr.Event) bool {
	if peerBoundary.Stops(ctx, e, time.Now().Unix()) != "" {
		return false
	}
	return s.out.Ask(ctx, []*policy.Request{{Event: e, Source: policy.FromStore, Info: identity.FormatDID(peer), Now: time.Now().Unix()}})[0] == nil
}

// crossing says for each event why it may not cross between networks, as a sync is told it.
func crossing(ctx context.Context, events []*nostr.Event) []gateway.Stop {
	out := make([]gateway.Stop, len(events))
	for i, e := range events {
		out[i].Word = boundary.Stops(ctx, e, time.Now().Unix())
	}
	return out
}

// SeamsStatus tells how the seams stand.
type SeamsStatus struct {
	In  *policy.SeamStatus `json:"in,omitempty"`
	Out *policy.SeamStatus `json:"out,omitempty"`
}

func (s seams) status() *SeamsStatus {
	if s.in == nil && s.out == nil {
		return nil
	}
	return &SeamsStatus{s.in.Status(), s.out.Status()}
}
