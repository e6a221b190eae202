package transport_test

import (
	"context"
	"errors"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"fleetmesh.org/fleetmesh/internal/gateway"
	"fleetmesh.org/fleetmesh/internal/relay"
	"fleetmesh.org/fleetmesh/internal/store"
	"fleetmesh.org/fleetmesh/internal/transport"
	"fleetmesh.org/fleetmesh/internal/transport/transporttest"
	"fleetmesh.org/fleetmesh/nostr"
)

// newFace starts a relay with the given subprotocols and returns its URL.
func newFace(t *testing.T, sub map[string]func(context.Context, relay.Conn)) string {
	t.Helper()
	r, err := relay.New(relay.Config{Store: store.NewMemory(), Subprotocols: sub})
	if err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewServer(r)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		r.Shutdown(ctx)
		srv.Close()
	})
	return "ws" + strings.TrimPrefix(srv.URL, "http")
}

// TestRelayFace runs the suite over a relay's own URL.
func TestRelayFace(t *testing.T) {
	transporttest.Run(t, func(t *testing.T) transporttest.Pair {
		a, b := transport.NewWSS(direct(t)), transport.NewWSS(direct(t))
		url := newFace(t, map[string]func(context.Context, relay.Conn){
			transport.Subprotocol: func(ctx context.Context, c relay.Conn) { b.Serve(ctx, c) },
		})
		at := func(url string) transport.Endpoint { return transport.Endpoint{Scheme: "wss", Address: url} }
		return transporttest.Pair{A: a, B: b, AtB: at(url), Nowhere: at("ws://127.0.0.1:1/")}
	})
}

// TestRelayWithoutFleet: a relay that knows nothing of the subprotocol.
func TestRelayWithoutFleet(t *testing.T) {
	ep := transport.Endpoint{Scheme: "wss", Address: newFace(t, nil)}
	if _, err := transport.NewWSS(direct(t)).Dial(t.Context(), ep, nostr.PubKey{}); !errors.Is(err, transport.ErrOrdinaryRelay) {
		t.Fatalf("dial: %v, wanted ErrOrdinaryRelay", err)
	}
}

// relayNode is a gift-wrap carrier over real connections, with a fresh key.
func relayNode(t *testing.T) (*transport.GiftWrap, nostr.PubKey) {
	t.Helper()
	key, err := nostr.GenerateKey()
	if err != nil {
		t.Fatal(err)
	}
	client := direct(t).HTTPClient()
	g, err := transport.NewGiftWrap(transport.GiftWrapConfig{Key: key, MaxFrame: 40000,
		Connect: func(ctx context.Context, url string) (transport.Relay, error) {
			return gateway.OpenMailbox(ctx, url, gateway.Options{Key: &key, Client: client})
		}})
	if err != nil {
		t.Fatal(err)
	}
	return g, key.PubKey()
}

// TestGiftWrapOverRelay runs the suite through a relay that is nobody's in
// particular: real sockets, authentication for reading, ephemeral events.
func TestGiftWrapOverRelay(t *testing.T) {
	transporttest.Run(t, func(t *testing.T) transporttest.Pair {
		url := newFace(t, nil)
		a, ka := relayNode(t)
		b, kb := relayNode(t)
		at := func(url string) transport.Endpoint { return transport.Endpoint{Scheme: "giftwrap", Address: url} }
		return transporttest.Pair{A: a, B: b, AtA: at(url), AtB: at(url), KeyA: ka, KeyB: kb,
			Connectless: true, MaxFrame: 40000, Nowhere: at("ws://127.0.0.1:1/")}
	})
}
