package daemon

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"fleetmesh.org/fleetmesh/internal/host"
	"fleetmesh.org/fleetmesh/internal/transport"
)

// lingering is how long what came in by a door that was taken away may go on, and how long a path that was taken away still answers: peers learn of the
// new doors at once, but one may be away just then.
const lingering = 2 * time.Minute

// gate is a way in for peers beside the WebSocket of the relay face, while it is open.
type gate struct {
	drain func() // takes nothing new from now on, and returns at once
}

// gateKey is what two endpoints have in common that are one gate, "" for those that need none: an address under which the relay face is reached,
// a relay that is somebody else's.
func gateKey(e *EndpointSpec) string {
	switch e.Transport {
	case "unix":
		return e.Transport + " " + e.Address
	case "https":
		if u, err := url.Parse(e.Address); err == nil {
			return e.Transport + " " + u.Path
		}
	}
	return ""
}

// checkGate says what is wrong with an endpoint that needs a gate.
func checkGate(e *EndpointSpec) error {
	switch e.Transport {
	case "unix":
		if !filepath.IsAbs(e.Address) {
			return fmt.Errorf("spec.endpoints has the unix address %q, want an absolute path", e.Address)
		}
	case "https":
		u, err := url.Parse(e.Address)
		if err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http" || u.Path == "" || u.Path == "/" {
			return fmt.Errorf("spec.endpoints has the https address %q, want one with a path, such as https://relay.example.org/didcomm", e.Address)
		}
		if path.Clean(u.Path) != u.Path || strings.ContainsAny(u.Path, "{} ") {
			return fmt.Errorf("spec.endpoints has the https address %q, want a plain path without a slash at its end, such as /didcomm", e.Address)
		}
		for _, taken := range []string{"/ui", "/metrics", "/ready", "/health", "/.well-known"} {
			if u.Path == taken || strings.HasPrefix(u.Path, taken+"/") {
				return fmt.Errorf("spec.endpoints has the https address %q, and %s is the node's own: choose another path, such as /didcomm", e.Address, taken)
			}
		}
	}
	return nil
}

// openGates opens those of the endpoints that are not open. The others are opened even if one cannot be.
func (f *federation) openGates(h *host.Host, endpoints []EndpointSpec) error {
	f.gating.Lock()
	defer f.gating.Unlock()
	var errs []error
	for i := range endpoints {
		key := gateKey(&endpoints[i])
		if key == "" || f.gates[key] != nil {
			continue
		}
		g, err := f.openGate(h, &endpoints[i], key)
		if err != nil {
			errs = append(errs, fmt.Errorf("open the endpoint %s: %w", endpoints[i].Address, err))
			continue
		}
		f.gates[key] = g
	}
	return errors.Join(errs...)
}

// drainGates lets go those that are open and not among the endpoints.
func (f *federation) drainGates(endpoints []EndpointSpec) {
	f.gating.Lock()
	defer f.gating.Unlock()
	for key, g := range f.gates {
		if !slices.ContainsFunc(endpoints, func(e EndpointSpec) bool { return gateKey(&e) == key }) {
			delete(f.gates, key)
			g.drain()
			f.n.log.Info("a door for peers is closed; what came in by it may go on for a while", "endpoint", key, "at_most", lingering)
		}
	}
}

func (f *federation) openGate(h *host.Host, e *EndpointSpec, key string) (*gate, error) {
	if e.Transport == f.https.Scheme() {
		return f.openPosts(h, e, key)
	}
	l, err := transport.Unix{}.Listen(f.life, transport.Endpoint{Scheme: e.Transport, Address: e.Address})
	if err != nil {
		return nil, err
	}
	f.work.Go(func() {
		h.ServeDraining(l, lingering)
		l.Close()
	})
	return &gate{func() { l.Close() }}, nil
}

// openPosts opens a path of the relay face's server. Whatever the path, the frames come in by one listener, which stays.
func (f *federation) openPosts(h *host.Host, e *EndpointSpec, key string) (*gate, error) {
	if f.posts == nil {
		l, err := f.https.Listen(f.life, transport.Endpoint{Scheme: e.Transport, Address: e.Address})
		if err != nil {
			return nil, err
		}
		f.posts = l
		f.work.Go(func() {
			h.Serve(l)
			l.Close()
		})
	}
	_, path, _ := strings.Cut(key, " ")
	f.n.relay.Handle(path, f.https)
	return &gate{func() {
		time.AfterFunc(lingering, func() {
			f.gating.Lock()
			defer f.gating.Unlock()
			if f.gates[key] == nil { // else it was opened again
				f.n.relay.Unhandle(path)
			}
		})
	}}, nil
}

// takeUp makes known what changed of what the node says of itself: a new descriptor goes to peers and relays, then what is no longer in it drains;
// coverage follows.
func (f *federation) takeUp(ctx context.Context, h *host.Host) error {
	h.SetOurs(f.ladderSide())
	if err := f.renewNow(ctx); err != nil {
		return err
	}
	f.collectWraps(f.life, h)
	f.drainGates(f.n.cfg().Spec.Endpoints)
	f.work.Go(func() {
		if _, err := f.coverNow(f.life); err != nil && f.life.Err() == nil {
			f.n.log.Warn("claim coverage", "err", err)
		}
	})
	return nil
}
