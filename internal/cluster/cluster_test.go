package cluster

import (
	"bufio"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

func TestLinks(t *testing.T) {
	for _, c := range []struct {
		topology        string
		nodes           int
		links, diameter int
	}{
		{"ring", 5, 5, 2}, {"ring", 2, 1, 1}, {"ring", 3, 3, 1}, {"star", 5, 4, 2}, {"line", 4, 3, 3}, {"mesh", 5, 10, 1},
	} {
		l, err := Links(c.topology, c.nodes)
		if err != nil || len(l) != c.links || Diameter(l, c.nodes) != c.diameter {
			t.Errorf("%s of %d: %v, diameter %d, %v", c.topology, c.nodes, l, Diameter(l, c.nodes), err)
		}
	}
}

func TestBadConfig(t *testing.T) {
	good := Config{Nodes: 5, Topology: "ring", Window: 60, Events: 10}
	if _, err := good.Check(); err != nil {
		t.Fatal(err)
	}
	for want, spoil := range map[string]func(*Config){
		"--nodes is 1":        func(c *Config) { c.Nodes = 1 },
		"--nodes 4 would do":  func(c *Config) { c.Topology = "line" },
		"--nodes 7 would do":  func(c *Config) { c.Nodes = 9 },
		"--topology is \"x\"": func(c *Config) { c.Topology = "x" },
		"--window is 5":       func(c *Config) { c.Window = 5 },
		"--events is -1":      func(c *Config) { c.Events = -1 },
	} {
		bad := good
		spoil(&bad)
		if _, err := bad.Check(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %q", bad, err, want)
		}
	}
}

func TestAccountsOfBothEnds(t *testing.T) {
	at := &peer{Worst: clean, Windows: []verdict{{Window: 1, Severity: clean, Measured: counters{"req": 3}, Claimed: counters{"req": 3}}},
		Accounts: []account{{Way: "issued", Window: 2, Counted: counters{"req": 2, "conn_open": 1}}, {Way: "held", Window: 2, Counted: counters{"req": 9}}}}
	by := &peer{Worst: clean, Accounts: []account{{Way: "held", Window: 2, Counted: counters{"req": 2}, InDoubt: counters{"conn_open": 1}}}}
	if a := compare(0, 1, at, by); a.Divergence != 0 || a.Closed != 1 || a.Open != 1 || a.Measured["req"] != 5 || a.Claimed["req"] != 5 {
		t.Errorf("honest: %+v", a)
	}
	by.Accounts[0].Counted["req"] = 1
	at.Windows[0].Claimed = counters{"req": 5}
	if a := compare(0, 1, at, by); a.Divergence != 1+2 {
		t.Errorf("one too few now, two too many before: %+v", a)
	}
	if !unsettled(at, 2) || unsettled(at, 1) {
		t.Error("window 2 is open, window 1 is not")
	}
	at.Windows[0].Severity, at.Windows[0].Limit = "S1", "req"
	if f := findings(0, 1, at); len(f) != 1 || f[0].Severity != "S1" || f[0].Window != 1 {
		t.Errorf("%+v", f)
	}
	if f := findings(1, 0, &peer{Worst: "S3"}); len(f) != 1 || f[0].Severity != "S3" {
		t.Errorf("found without a window: %+v", f)
	}
}

// ask dials an address through a proxy and returns the reply's code.
func ask(t *testing.T, proxy, address string) (net.Conn, byte) {
	t.Helper()
	c, err := net.Dial("tcp", proxy)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	a, err := net.ResolveTCPAddr("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	msg := append([]byte{5, 1, 0, 5, 1, 0, 1}, a.IP.To4()...)
	if _, err := c.Write(append(msg, byte(a.Port>>8), byte(a.Port))); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, 2+10)
	if _, err := io.ReadFull(c, got); err != nil {
		t.Fatal(err)
	}
	return c, got[3]
}

func TestWires(t *testing.T) {
	echo, err := net.Listen("tcp", local(0))
	if err != nil {
		t.Fatal(err)
	}
	defer echo.Close()
	go func() {
		for {
			c, err := echo.Accept()
			if err != nil {
				return
			}
			go func() { _, _ = io.Copy(c, c); c.Close() }()
		}
	}()
	free, err := freePorts(2)
	if err != nil {
		t.Fatal(err)
	}
	w := newWires()
	t.Cleanup(w.close)
	face := echo.Addr().String()
	if err := w.join(0, "127.0.0.1:1", local(free[0])); err != nil {
		t.Fatal(err)
	}
	if err := w.join(1, face, local(free[1])); err != nil {
		t.Fatal(err)
	}
	say := func(c net.Conn) (time.Duration, error) {
		began := time.Now()
		if _, err := io.WriteString(c, "hello\n"); err != nil {
			return 0, err
		}
		_, err := bufio.NewReader(c).ReadString('\n')
		return time.Since(began), err
	}
	c, code := ask(t, local(free[0]), face)
	if _, err := say(c); code != socksOK || err != nil {
		t.Fatalf("reply %d, %v", code, err)
	}
	w.setDelay(Link{0, 1}, 50*time.Millisecond)
	if took, err := say(c); err != nil || took < 100*time.Millisecond {
		t.Errorf("slowed: %v, %v", took, err)
	}
	w.setCut(Link{0, 1}, true)
	if _, err := say(c); err == nil {
		t.Error("the connection outlived the cut")
	}
	if _, code := ask(t, local(free[0]), face); code != socksUnreachable {
		t.Errorf("reply %d over a cut link", code)
	}
	w.setCut(Link{0, 1}, false)
	w.setDelay(Link{0, 1}, 0)
	if c, code := ask(t, local(free[0]), face); code != socksOK {
		t.Errorf("reply %d after the cut", code)
	} else if _, err := say(c); err != nil {
		t.Error(err)
	}
	if _, code := ask(t, local(free[0]), "127.0.0.1:9"); code != socksUnreachable {
		t.Errorf("reply %d for an address that is no node's", code)
	}
}

func FuzzGreet(f *testing.F) {
	f.Add([]byte{5, 1, 0, 5, 1, 0, 1, 127, 0, 0, 1, 0, 80})
	f.Add([]byte{5, 1, 0, 5, 1, 0, 3, 1, 'a', 0, 80})
	f.Add([]byte{4, 1})
	f.Fuzz(func(t *testing.T, text []byte) {
		near, far := net.Pipe()
		go func() {
			_, _ = far.Write(text)
			far.Close()
		}()
		go func() { _, _ = io.Copy(io.Discard, far) }()
		_, _, _ = greet(near) // it may refuse anything, and must end
		near.Close()
	})
}

func TestPageAnswersItsOwnQuestions(t *testing.T) {
	c := &Cluster{cfg: Config{Topology: "ring", Events: 7}, wires: newWires(), phase: phaseTraffic, links: []Link{{0, 1}}}
	for i := range 2 {
		c.nodes, c.seen = append(c.nodes, &node{n: i}), append(c.seen, NodeStatus{Node: i})
	}
	server := httptest.NewServer(c.handler())
	defer server.Close()
	for path, want := range map[string]string{"/": "<svg", "/status.json": `"phase":"traffic"`} {
		resp, err := http.Get(server.URL + path)
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil || resp.StatusCode != 200 || !strings.Contains(string(text), want) {
			t.Errorf("%s: %s %v", path, resp.Status, err)
		}
		if path != "/" && !json.Valid(text) {
			t.Errorf("%s is no JSON", path)
		}
	}
	resp, err := http.Get(server.URL + "/../etc/passwd")
	if err != nil || resp.StatusCode != 404 {
		t.Errorf("another path: %v %v", resp, err)
	}
}
