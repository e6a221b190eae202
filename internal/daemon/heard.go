package daemon

import (
	"context"
	"errors"
	"time"

	"fleetmesh.org/fleetmesh/internal/identity"
	"fleetmesh.org/fleetmesh/nostr"
)

// staleSeek is how long after a search for a newer descriptor of a node the next heartbeat may cause one.
const staleSeek = 5 * time.Minute

// heard takes note of another node's heartbeat and holds it against the descriptor that is known: where its doors have changed a newer
// descriptor is looked for, and a class that contradicts it is a misreport of the node about itself.
func (f *federation) heard(ctx context.Context, e *nostr.Event, held bool, now int64) error {
	h, err := identity.ParseHeartbeat(e)
	if err != nil {
		return err
	}
	if age := now - h.At; age > int64(stalePulse/time.Second) || age < -int64(stalePulse/time.Second) {
		return errors.New("a heartbeat that is not of now")
	}
	if !held && !identity.Verify(e.PubKey, e.ID, e.Sig) {
		return errors.New("the heartbeat's signature does not hold")
	}
	known, seek := f.known.heard(h, now)
	if known == nil {
		return nil // of nobody known
	}
	d, err := identity.CheckDescriptor(known, identity.Rules{Now: now, Held: true})
	if err != nil {
		return err
	}
	switch err := h.Against(d); {
	case err == nil:
		return nil
	case identity.CodeOf(err) != identity.StaleEndpoints:
		f.n.log.Warn("a node's heartbeat contradicts its descriptor", "node", e.PubKey.String()[:12], "err", err)
		f.misreported(known, e)
		return nil
	case !seek:
		return nil
	}
	f.work.Go(func() {
		newer, err := f.find(ctx, e.PubKey, nil)
		if err == nil {
			err = f.notice(ctx, newer, "its own heartbeat", false)
		}
		if err != nil && ctx.Err() == nil {
			f.n.log.Info("a node's doors have changed, and its newer descriptor is not found", "node", e.PubKey.String()[:12], "err", err)
		}
	})
	return nil
}

// heard takes note of a heartbeat. It returns the descriptor that is known of its node, nil if there is none, and whether a newer one may be
// looked for now.
func (k *knownNodes) heard(h *identity.Heartbeat, now int64) (descriptor *nostr.Event, seek bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	n := k.nodes[h.Subject]
	if n == nil || n.event == nil || n.Revoked != 0 {
		return nil, false
	}
	n.Heard = now
	if seek = now-n.sought >= int64(staleSeek/time.Second) && h.Endpoints != "" && h.Endpoints != identity.EndpointsDigest(n.Endpoints); seek {
		n.sought = now
	}
	return n.event, seek
}
