package interop

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/coder/websocket"

	"fleetmesh.org/fleetmesh/internal/gateway"
	"fleetmesh.org/fleetmesh/nostr"
)

// at publishes a fresh note at a relay and returns it.
func at(t *testing.T, url, content string) *nostr.Event {
	t.Helper()
	e := sign(t, &nostr.Event{Kind: 1, CreatedAt: time.Now().Unix(), Content: content})
	c, err := gateway.Dial(t.Context(), url, gateway.Options{})
	if err != nil {
		t.Fatalf("%s: %v", content, err)
	}
	defer c.Close()
	a, err := c.Publish(t.Context(), e)
	if err != nil || !a.OK {
		t.Fatalf("%s: %+v %v", content, a, err)
	}
	return e
}

// has asks a relay for an event.
func has(t *testing.T, url string, id nostr.ID) bool {
	t.Helper()
	c, err := gateway.Dial(t.Context(), url, gateway.Options{})
	if err != nil {
		return false
	}
	defer c.Close()
	list, err := c.QueryAll(t.Context(), nostr.Filter{IDs: []nostr.ID{id}})
	return err == nil && len(list) == 1
}

// gatewayFile writes a gateway's configuration that lets notes across at once.
func gatewayFile(t *testing.T, estate, mesh string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "gateway.yaml")
	text := fmt.Sprintf("dir: %s\nestate: {relays: [%q]}\nmesh: {relays: [%q]}\ningress: {filters: [{kinds: [1, 5]}]}\negress: {filters: [{kinds: [1, 5]}]}\n",
		filepath.Join(filepath.Dir(newDir(t)), "g"), estate, mesh)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestUnplug is the unplug test: the estate is a foreign relay, the mesh two nodes of which one stands at the gateway. Whatever is pulled out, what
// is left goes on.
func TestUnplug(t *testing.T) {
	if testing.Short() {
		t.Skip("the foreign relay has to be built")
	}
	estate := khatru(t)
	dirs := []string{newDir(t), newDir(t)}
	for _, dir := range dirs {
		mustRun(t, "", "--dir", dir, "init")
		unlimit(t, dir)
		edit(t, dir, "    enrolment: closed\n", "    enrolment: closed\n    descriptorPow: 8\n")
	}
	front, behind := up(t, dirs[0]), up(t, dirs[1])
	for _, p := range [][2]*node{{front, behind}, {behind, front}} {
		mustRun(t, "", "--dir", p[0].dir, "peer", "add", "--relay", p[1].url, "--tier", "anchor", "--shard", "notes", "--filter", `{"kinds":[1]}`, "--mode", "both", p[1].did(t))
	}
	file := gatewayFile(t, estate, front.url)
	_, stop := background(t, nil, "--json", "gateway", "--config", file)
	across := func(what string) {
		t.Helper()
		in, out := at(t, front.url, what+", into the estate"), at(t, estate, what+", out to the mesh")
		until(t, what, 2*time.Minute, func() bool { return has(t, estate, in.ID) && has(t, front.url, out.ID) && has(t, behind.url, out.ID) })
	}
	across("all is well")

	// The gateway dies: neither side notices more than a client that is gone.
	stop()
	in, out := at(t, behind.url, "while the gateway is dead, mesh"), at(t, estate, "while the gateway is dead, estate")
	until(t, "the mesh goes on", time.Minute, func() bool { return has(t, front.url, in.ID) })
	cmd, again := background(t, nil, "--json", "gateway", "--config", file)
	until(t, "the gap is closed", 2*time.Minute, func() bool { return has(t, estate, in.ID) && has(t, behind.url, out.ID) })

	// The gateway hangs, with its connections open.
	if err := cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	for i := range 50 {
		at(t, estate, fmt.Sprint("while the gateway hangs ", i))
	}
	at(t, front.url, "while the gateway hangs, mesh")
	if err := cmd.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	across("it woke up")

	// The mesh side goes: the estate is unharmed. Then it is back.
	front.kill()
	e := at(t, estate, "the mesh is down")
	if !has(t, estate, e.ID) {
		t.Error("the estate lost an event")
	}
	front = up(t, dirs[0], "--listen", strings.TrimPrefix(front.url, "ws://"))
	until(t, "what the estate took meanwhile comes", 3*time.Minute, func() bool { return has(t, front.url, e.ID) })
	again()
}

// TestEstateDown: the mesh is unharmed while there is no estate.
func TestEstateDown(t *testing.T) {
	dir := newDir(t)
	mustRun(t, "", "--dir", dir, "init")
	unlimit(t, dir)
	node := up(t, dir)
	nowhere := "ws://" + freeAddr(t)
	file := gatewayFile(t, nowhere, node.url)
	background(t, nil, "--json", "gateway", "--config", file)
	e := at(t, node.url, "there is no estate")
	until(t, "it waits at the gateway", time.Minute, func() bool {
		var w struct {
			Origin   *struct{ Relay string }
			Released bool
		}
		return json.Unmarshal([]byte(mustRun(t, "", "--json", "gateway", "why", "--config", file, e.ID.String())), &w) == nil && w.Released && w.Origin != nil
	})
	mustRun(t, "", "--dir", dir, "status")

	// When it comes, it gets what waited.
	estate := newDir(t)
	mustRun(t, "", "--dir", estate, "init")
	edit(t, estate, "listen: 127.0.0.1:7777", "listen: "+strings.TrimPrefix(nowhere, "ws://"))
	background(t, nil, "up", "--json", "--dir", estate)
	until(t, "the estate gets what waited", 2*time.Minute, func() bool { return has(t, nowhere, e.ID) })
}

// TestGatewayUnderFire: a relay on the mesh side that floods, talks nonsense and sends what was not asked for. The gateway lives, and the estate gets
// nothing of it.
func TestGatewayUnderFire(t *testing.T) {
	estate := newDir(t)
	mustRun(t, "", "--dir", estate, "init")
	unlimit(t, estate)
	home := up(t, estate)
	good := sign(t, &nostr.Event{Kind: 1, CreatedAt: time.Now().Unix(), Content: "the one good event"})
	forged := *good
	forged.Content = "not what was signed"
	forged.ID = forged.ComputeID()
	other := sign(t, &nostr.Event{Kind: 7, CreatedAt: time.Now().Unix(), Content: "outside the filter"})
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ws, err := websocket.Accept(w, r, nil)
		if err != nil {
			return
		}
		defer ws.CloseNow()
		ctx := r.Context()
		say := func(text string) { _ = ws.Write(ctx, websocket.MessageText, []byte(text)) }
		for {
			_, frame, err := ws.Read(ctx)
			if err != nil {
				return
			}
			var m []json.RawMessage
			if json.Unmarshal(frame, &m) != nil || len(m) < 2 {
				continue
			}
			switch sub := string(m[1]); string(m[0]) {
			case `"REQ"`:
				for _, text := range []string{"{", `["EVENT"]`, `["EVENT",3,{}]`, "[[[[[[", strings.Repeat("x", 100_000), `["OK",` + sub + `]`, `["NEG-MSG",` + sub + `,"zz"]`} {
					say(text)
				}
				for _, e := range []*nostr.Event{&forged, other, good} {
					say(`["EVENT",` + sub + `,` + string(e.JSON()) + `]`)
				}
				for range 2000 { // a flood
					say(`["EVENT",` + sub + `,` + string(forged.JSON()) + `]`)
				}
				say(`["EOSE",` + sub + `]`)
			case `"NEG-OPEN"`:
				say(`["NEG-MSG",` + sub + `,"61ff"]`)
			}
		}
	})}
	go func() { _ = srv.Serve(ln) }()
	t.Cleanup(func() { srv.Close() })
	file := gatewayFile(t, home.url, "ws://"+ln.Addr().String())
	background(t, nil, "--json", "gateway", "--config", file)
	until(t, "the good event crosses", 2*time.Minute, func() bool { return has(t, home.url, good.ID) })
	out := mustRun(t, "", "--dir", estate, "export", `{"kinds":[1,7]}`)
	if n := strings.Count(out, "\n"); n != 1 {
		t.Errorf("%d events are in the estate, want 1:\n%s", n, out)
	}
	at(t, home.url, "the estate takes its clients' events") // and is itself alive
	mustRun(t, "", "--json", "gateway", "status", "--config", file)
}

// TestGatewayReachesNothingElse runs the gateway in a network namespace in which there is nothing but the two relays' ports, each handed in through a
// socket that was opened inside: the kernel has no route to anything else. Everything works all the same.
func TestGatewayReachesNothingElse(t *testing.T) {
	need(t, "ip")
	if os.Getuid() != 0 {
		t.Skip("network namespaces need root")
	}
	name := fmt.Sprintf("fm%d", os.Getpid())
	if out, err := exec.Command("ip", "netns", "add", name).CombinedOutput(); err != nil {
		t.Skipf("no network namespaces here: %v %s", err, out)
	}
	t.Cleanup(func() { _ = exec.Command("ip", "netns", "del", name).Run() })
	inside := []string{"ip", "netns", "exec", name}
	if out, err := exec.Command(inside[0], append(inside[1:], "ip", "link", "set", "lo", "up")...).CombinedOutput(); err != nil {
		t.Skipf("no network namespaces here: %v %s", err, out)
	}
	dirs := []string{newDir(t), newDir(t)}
	for _, dir := range dirs {
		mustRun(t, "", "--dir", dir, "init")
		unlimit(t, dir)
	}
	estate, mesh := up(t, dirs[0]), up(t, dirs[1])
	file := gatewayFile(t, handIn(t, name, estate.url), handIn(t, name, mesh.url))
	background(t, inside, "--json", "gateway", "--config", file)
	in, out := at(t, mesh.url, "into the estate"), at(t, estate.url, "out to the mesh")
	until(t, "both ways", 2*time.Minute, func() bool { return has(t, estate.url, in.ID) && has(t, mesh.url, out.ID) })

	// A neighbour of the relay, such as its database, is there for us and not for the gateway.
	decoy, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer decoy.Close()
	probe := func(wrap []string, url string) int {
		cmd := exec.Command(binary, "req", "--relay", url, `{"limit":1}`)
		if wrap != nil {
			cmd = exec.Command(wrap[0], append(append(wrap[1:], binary), "req", "--relay", url, `{"limit":1}`)...)
		}
		_ = cmd.Run()
		return cmd.ProcessState.ExitCode()
	}
	for _, url := range []string{"ws://" + decoy.Addr().String(), estate.url, mesh.url, "ws://192.0.2.1:80"} {
		if code := probe(inside, url); code == 0 {
			t.Errorf("%s can be reached from the gateway's namespace", url)
		}
	}
	if code := probe(nil, estate.url); code != 0 {
		t.Errorf("the probe itself fails: %d", code)
	}
	routes, err := exec.Command(inside[0], append(inside[1:], "ip", "route", "show")...).Output()
	if err != nil || len(routes) != 0 {
		t.Errorf("routes: %q %v", routes, err)
	}
}

// handIn opens a port inside the namespace and carries what comes to a relay outside. It returns the URL inside.
func handIn(t *testing.T, namespace, url string) string {
	t.Helper()
	ln, err := listenIn(namespace)
	if err != nil {
		t.Skipf("no way into the namespace: %v", err)
	}
	t.Cleanup(func() { ln.Close() })
	target := strings.TrimPrefix(url, "ws://")
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				out, err := (&net.Dialer{}).DialContext(context.Background(), "tcp", target)
				if err != nil {
					return
				}
				defer out.Close()
				go func() {
					_, _ = out.(*net.TCPConn).ReadFrom(c) // either end may go
					out.Close()
				}()
				_, _ = c.(*net.TCPConn).ReadFrom(out)
			}()
		}
	}()
	return "ws://127.0.0.1:" + strconv.Itoa(ln.Addr().(*net.TCPAddr).Port)
}

// listenIn opens a listener in another namespace. The thread that went there is not used for anything else.
func listenIn(namespace string) (ln net.Listener, err error) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		f, ferr := os.Open("/var/run/netns/" + namespace)
		if ferr != nil {
			err = ferr
			return
		}
		defer f.Close()
		if err = setns(f.Fd()); err == nil {
			ln, err = net.Listen("tcp", "127.0.0.1:0")
		}
	}()
	<-done
	return ln, err
}
