package daemon

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"fleetmesh.org/fleetmesh/internal/control"
	"fleetmesh.org/fleetmesh/internal/host"
	"fleetmesh.org/fleetmesh/internal/store"
	"fleetmesh.org/fleetmesh/internal/trail"
	"fleetmesh.org/fleetmesh/nostr"
)

// trail is where what left is written down.
func (d Dir) trail() string { return filepath.Join(string(d), "left") }

// WhyParams name an event.
type WhyParams struct {
	ID string `json:"id"`
}

// Why answers why an event is here, or is not.
type Why struct {
	Held    bool         `json:"held"`
	Refused string       `json:"refused,omitempty"` // the reason under which it stands in the refused index
	At      int64        `json:"refused_at,omitempty"`
	Origin  *host.Origin `json:"origin,omitempty"` // by which path it came through the mesh
	Left    Left         `json:"left"`             // to whom it went
}

// Left answers to whom an event went. Since is the unix second before which nothing is remembered, 0 if nothing ever left.
type Left struct {
	To    []trail.Departure `json:"to"`
	Since int64             `json:"since,omitempty"`
}

func (n *node) why(ctx context.Context, p WhyParams) (w Why, err error) {
	id, err := nostr.ParseID(p.ID)
	if err != nil {
		return w, control.BadParams("%v", err)
	}
	_, err = n.store.Get(ctx, id, time.Now().Unix())
	if w.Held = err == nil; err != nil && !errors.Is(err, store.ErrNotFound) {
		return w, fmt.Errorf("look the event up: %w", err)
	}
	r, refused, err := n.store.Refusal(ctx, id)
	if err != nil {
		return w, fmt.Errorf("look the refusal up: %w", err)
	}
	if refused {
		w.Refused, w.At = r.Reason, r.At
	}
	if w.Left, err = n.left(ctx, p); err != nil {
		return w, err
	}
	h, err := n.fed.get(ctx)
	if err != nil {
		return w, nil // a node without federation still knows what it holds
	}
	o, ok, err := h.Provenance().Get(id)
	if ok {
		w.Origin = &o
	}
	return w, err
}

// left tells to whom an event went.
func (n *node) left(_ context.Context, p WhyParams) (l Left, err error) {
	id, err := nostr.ParseID(p.ID)
	if err != nil {
		return l, control.BadParams("%v", err)
	}
	l.To, l.Since, err = n.trail.Of(id)
	if l.To == nil {
		l.To = []trail.Departure{}
	}
	return l, err
}
