package transport_test

import (
	"context"
	"errors"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"fleetmesh.org/fleetmesh/internal/relay"
	"fleetmesh.org/fleetmesh/internal/store"
	"fleetmesh.org/fleetmesh/internal/transport"
)

// inNamespace runs the calling test again in a network namespace of its own, in
// which there is nothing but what the test brings up. It reports true inside.
// Where the system allows no namespaces the test is skipped.
func inNamespace(t *testing.T) bool {
	t.Helper()
	const mark = "FLEETMESH_TEST_NAMESPACE"
	if os.Getenv(mark) == t.Name() {
		ip(t, "link", "set", "lo", "up")
		return true
	}
	if _, err := exec.LookPath("ip"); err != nil {
		t.Skip("network namespaces need the tool ip, which is not here")
	}
	cmd := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v", "-test.timeout=2m")
	cmd.Env = append(os.Environ(), mark+"="+t.Name())
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNET,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}},
	}
	out, err := cmd.CombinedOutput()
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		t.Skipf("no network namespace can be made here: %v", err)
	}
	if err != nil || !strings.Contains(string(out), "--- PASS: "+t.Name()) {
		t.Errorf("in the namespace: %v\n%s", err, out)
	} else {
		t.Logf("in the namespace:\n%s", out)
	}
	return false
}

func ip(t *testing.T, args ...string) {
	t.Helper()
	if out, err := exec.Command("ip", args...).CombinedOutput(); err != nil {
		t.Fatalf("ip %s: %v %s", strings.Join(args, " "), err, out)
	}
}

// TestProxyNamespace is TestProxy where there is no route to anywhere and no
// resolver: a dial or a look-up beside the proxy could only fail.
func TestProxyNamespace(t *testing.T) {
	if inNamespace(t) {
		TestProxy(t)
	}
}

// serveOn runs a handler at an address and returns its URL.
func serveOn(t *testing.T, scheme, address string, h http.Handler) string {
	t.Helper()
	l, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	s := &http.Server{Handler: h}
	go s.Serve(l)
	t.Cleanup(func() { s.Close() })
	return scheme + "://" + l.Addr().String() + "/"
}

// TestLadderNamespace gives each carrier an address of its own and cuts one after
// another at the network: the address goes, and packets to it vanish in a device
// that drops them (or, where the kernel has none, find no route). The same
// ping-pong then takes the next rung; with all cut, the peer is unreachable and the
// attempts say why. Each black hole costs its five seconds.
func TestLadderNamespace(t *testing.T) {
	if testing.Short() {
		t.Skip("waits for black holes")
	}
	if !inNamespace(t) {
		return
	}
	ip(t, "addr", "add", "10.8.0.1/32", "dev", "lo") // ours: it stays
	if hole() {
		ip(t, "link", "set", "hole", "up")
		ip(t, "route", "add", "10.9.0.0/16", "dev", "hole", "src", "10.8.0.1")
	} else {
		t.Log("this kernel has no device that drops all: a cut rung refuses at once")
	}
	up := func(a string) { ip(t, "addr", "add", a+"/32", "dev", "lo") }
	up("10.9.0.1")
	up("10.9.0.2")
	up("10.9.0.3")

	wa, wb := transport.NewWSS(direct(t)), transport.NewWSS(direct(t))
	first, second := transport.NewWSS(direct(t)), transport.NewWSS(direct(t)) // the same carrier under two names
	r, err := relay.New(relay.Config{Store: store.NewMemory()})
	if err != nil {
		t.Fatal(err)
	}
	ga, _ := relayNode(t)
	gb, kb := relayNode(t)
	theirs := []transport.Endpoint{
		ep("alpha", serveOn(t, "ws", "10.9.0.1:0", first), 10),
		ep("wss", serveOn(t, "ws", "10.9.0.2:0", wb), 20),
		ep("giftwrap", serveOn(t, "ws", "10.9.0.3:0", r), 90),
	}
	ours := []transport.Endpoint{ep("alpha", "", 0), ep("wss", "", 0), ep("giftwrap", "", 0)}
	dialers := map[string]transport.Transport{"alpha": second, "wss": wa, "giftwrap": ga}
	servers := map[string]transport.Transport{"alpha": first, "wss": wb, "giftwrap": gb}
	rungs := transport.Ladder(ours, theirs)
	dial := func(ctx context.Context, e transport.Endpoint) (transport.Stream, error) {
		return dialers[e.Scheme].Dial(ctx, e, kb)
	}
	for i, e := range theirs {
		l, err := servers[e.Scheme].Listen(t.Context(), e)
		if err != nil {
			t.Fatal(err)
		}
		s, attempts, err := transport.Climb(t.Context(), rungs, dial)
		if err != nil {
			t.Fatal(err)
		}
		for _, a := range attempts {
			t.Logf("%d cut: %s %s %v", i, a.Rung.Endpoint.Scheme, a.Took.Round(1e6), a.Err)
		}
		if got := attempts[len(attempts)-1].Rung.Endpoint.Scheme; got != e.Scheme {
			t.Errorf("%d cut: climbed to %s, wanted %s", i, got, e.Scheme)
		}
		pingPongOver(t, s, l)
		s.Close()
		l.Close()
		ip(t, "addr", "del", "10.9.0."+string(rune('1'+i))+"/32", "dev", "lo")
	}
	var gone *transport.UnreachableError
	if _, _, err := transport.Climb(t.Context(), rungs, dial); !errors.As(err, &gone) || len(gone.Attempts) != len(theirs) {
		t.Errorf("all cut: %v", err)
	} else {
		t.Log(err)
	}
}

// hole makes a device that swallows packets, of a kind that the kernel has.
func hole() bool {
	for _, kind := range []string{"dummy", "ifb"} {
		if exec.Command("ip", "link", "add", "hole", "type", kind).Run() == nil {
			return true
		}
	}
	return false
}

func pingPongOver(t *testing.T, s transport.Stream, l transport.Listener) {
	t.Helper()
	ctx := t.Context()
	if err := s.Send(ctx, []byte(`{"ping":1}`)); err != nil {
		t.Fatal(err)
	}
	in, err := l.Accept(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	if f, err := in.Receive(ctx); err != nil || string(f) != `{"ping":1}` {
		t.Fatalf("%q, %v", f, err)
	}
	if err := in.Send(ctx, []byte(`{"pong":1}`)); err != nil {
		t.Fatal(err)
	}
	if f, err := s.Receive(ctx); err != nil || string(f) != `{"pong":1}` {
		t.Fatalf("%q, %v", f, err)
	}
}
