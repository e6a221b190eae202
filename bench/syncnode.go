package main

import (
	"context"
	"crypto/ecdh"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"fleetmesh.org/fleetmesh/internal/host"
	"fleetmesh.org/fleetmesh/internal/identity"
	"fleetmesh.org/fleetmesh/internal/mesh"
	"fleetmesh.org/fleetmesh/internal/policy"
	"fleetmesh.org/fleetmesh/internal/relay"
	"fleetmesh.org/fleetmesh/internal/store"
	"fleetmesh.org/fleetmesh/internal/store/eventlog"
	"fleetmesh.org/fleetmesh/internal/transport"
	"fleetmesh.org/fleetmesh/nostr"
	"fleetmesh.org/fleetmesh/spec"
)

// syncNode is a node with everything that a sync passes: store, relay face, federation, and a real socket whose octets are counted.
type syncNode struct {
	url   string
	pub   nostr.PubKey
	store store.Store
	view  store.View
	relay *relay.Relay
	host  *host.Host
	wire  atomic.Int64 // octets that went over the face's connections, both ways

	taken  chan struct{} // something was delivered; of a star's node
	server *http.Server
	feed   *relay.Feed
	stop   context.CancelFunc
	work   sync.WaitGroup

	mu    sync.Mutex
	known map[nostr.PubKey]*nostr.Event
	desc  *nostr.Event
}

func newSyncNode(dir string, secret byte) (*syncNode, error) {
	n := &syncNode{known: map[nostr.PubKey]*nostr.Event{}, view: policy.NewGate(policy.PrivateKinds, true).View(nil)}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("listen: %w", err)
	}
	n.url = "ws://" + ln.Addr().String()
	if n.store, err = eventlog.Open(filepath.Join(dir, "store"), eventlog.Options{}); err != nil {
		return nil, fmt.Errorf("open a store: %w", err)
	}
	network, err := transport.NewNetwork("", nil)
	if err != nil {
		return nil, err
	}
	wss := transport.NewWSS(network)
	n.relay, err = relay.New(relay.Config{Store: n.store, Limits: relay.Limits{EventsPerSecond: -1, RequestsPerSecond: -1, BytesPerSecond: -1, ConnectionsPerIP: -1},
		Subprotocols: map[string]func(context.Context, relay.Conn){transport.Subprotocol: func(ctx context.Context, c relay.Conn) { _ = wss.Serve(ctx, c) }}})
	if err != nil {
		return nil, err
	}
	n.server = &http.Server{Handler: n.relay, ReadHeaderTimeout: 10 * time.Second}
	n.work.Go(func() { _ = n.server.Serve(countingListener{ln, &n.wire}) })
	ctx, stop := context.WithCancel(context.Background())
	n.stop = stop
	door, err := wss.Listen(ctx, transport.Endpoint{Scheme: "wss", Address: n.url})
	if err != nil {
		return nil, err
	}
	sink := n.relay.Sink(policy.FromMesh)
	if err := n.federate(dir, int(secret), wss, n.url, sink.Offer); err != nil {
		return nil, err
	}
	n.host.Start(door)
	n.feed = n.relay.Follow([]nostr.Filter{{}}, 1)
	n.work.Go(func() {
		for {
			select {
			case <-n.feed.Events():
				n.host.Arrived()
			case <-ctx.Done():
				return
			}
		}
	})
	return n, nil
}

// federate makes the node's keys, its descriptor and its host.
func (n *syncNode) federate(dir string, secret int, way transport.Transport, address string, take func(context.Context, []*nostr.Event) ([]store.Outcome, error)) error {
	agent, err := identity.NewKeyAgent(nostr.SecretKey{30: byte(secret >> 8), 31: byte(secret)})
	if err != nil {
		return err
	}
	n.pub = agent.PubKey()
	agreement, err := ecdh.X25519().GenerateKey(rand.Reader)
	if err != nil {
		return fmt.Errorf("draw a key: %w", err)
	}
	now := time.Now().Unix()
	class := spec.ClassAnchor
	if way.Scheme() != "wss" {
		class = spec.ClassEdge
	}
	d := identity.Descriptor{Subject: n.pub, CreatedAt: now, Class: class, Protocol: spec.C().Protocol.Name, Digest: spec.DigestHex(),
		Agreement: []identity.BoundKey{{Key: identity.AgreementKey(agreement.PublicKey().Bytes())}}, Transport: []identity.TransportKey{identity.TransportSecret{byte(secret >> 8), byte(secret), 1}.Public()},
		Endpoints: []identity.Endpoint{{Scheme: way.Scheme(), Address: address, Preference: 10}},
		Protocols: []string{spec.PIURIPeering, spec.PIURIBudget, spec.PIURISync}, Expiration: now + 86400}
	n.desc = d.Event()
	if err := identity.SignEvent(agent, n.desc); err != nil {
		return err
	}
	n.host, err = host.New(host.Config{
		Agent: agent, Agreement: agreement, Dir: dir, Store: n.store, View: n.view, Take: take,
		Publish: func(ctx context.Context, e *nostr.Event) error {
			_, err := take(ctx, []*nostr.Event{e})
			return err
		},
		Find: func(_ context.Context, k nostr.PubKey, _ []string) (*nostr.Event, error) {
			n.mu.Lock()
			defer n.mu.Unlock()
			if e := n.known[k]; e != nil {
				return e, nil
			}
			return nil, errors.New("nobody of that key")
		},
		Descriptor: func() *nostr.Event { return n.desc },
		Transports: []transport.Transport{way}, Ours: []transport.Endpoint{{Scheme: way.Scheme()}},
		Mesh: mesh.Config{Self: n.pub, Class: d.Class, Digest: spec.DigestHex(), Protocols: d.Protocols, Descriptor: n.desc.ID, Enrolment: mesh.EnrolClosed, Window: 3600,
			Serve: []json.RawMessage{json.RawMessage(`{}`)}},
	})
	return err
}

// know takes up another node's descriptor.
func (n *syncNode) know(other *syncNode) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.known[other.pub] = other.desc
}

// fill stores the corpus.
func (n *syncNode) fill(ctx context.Context, items []item) error {
	for len(items) > 0 {
		batch := items[:min(len(items), 2000)]
		items = items[len(batch):]
		var events []*nostr.Event
		for i := range batch {
			e, err := nostr.ParseEvent(batch[i].raw)
			if err != nil {
				return fmt.Errorf("the corpus: %w", err)
			}
			events = append(events, e)
		}
		if _, err := n.store.Insert(ctx, events, time.Now().Unix()); err != nil {
			return fmt.Errorf("store the corpus: %w", err)
		}
	}
	return nil
}

func (n *syncNode) close() {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	n.stop()
	_ = n.host.Stop(ctx)
	n.feed.Close()
	_ = n.relay.Shutdown(ctx)
	n.server.Close()
	n.work.Wait()
	n.store.Close()
}

// countingListener counts the octets of all its connections.
type countingListener struct {
	net.Listener
	octets *atomic.Int64
}

func (l countingListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return countingConn{c, l.octets}, nil
}

type countingConn struct {
	net.Conn
	octets *atomic.Int64
}

func (c countingConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.octets.Add(int64(n))
	return n, err
}

func (c countingConn) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	c.octets.Add(int64(n))
	return n, err
}
