package interop

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"

	"fleetmesh.org/fleetmesh/internal/gateway"
	"fleetmesh.org/fleetmesh/internal/identity"
	"fleetmesh.org/fleetmesh/internal/manifest"
	"fleetmesh.org/fleetmesh/internal/mesh"
	"fleetmesh.org/fleetmesh/nostr"
	"fleetmesh.org/fleetmesh/spec"
)

// crowd are clients that subscribe and publish for as long as it lasts.
type crowd struct {
	groups  int
	clients []*crowdClient
	stop    chan struct{}
	work    sync.WaitGroup

	mu    sync.Mutex
	acked map[int][]nostr.ID // by group
	wrong []string
}

// crowdClient is one connection: a subscription to a group's events, and an author of some.
type crowdClient struct {
	group int
	conn  *websocket.Conn
	oks   chan bool
	mu    sync.Mutex
	seen  map[string]int
}

func (c *crowd) say(format string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.wrong) < 20 {
		c.wrong = append(c.wrong, fmt.Sprintf(format, args...))
	}
}

// gather connects n clients in groups of ten.
func gather(t *testing.T, url string, n int, pace time.Duration) *crowd {
	t.Helper()
	c := &crowd{groups: n / 10, stop: make(chan struct{}), acked: map[int][]nostr.ID{}}
	for i := range n {
		conn, _, err := websocket.Dial(t.Context(), url, nil)
		if err != nil {
			t.Fatalf("client %d: %v", i, err)
		}
		conn.SetReadLimit(1 << 20)
		k := &crowdClient{group: i % c.groups, conn: conn, oks: make(chan bool, 4), seen: map[string]int{}}
		c.clients = append(c.clients, k)
		if err := conn.Write(t.Context(), websocket.MessageText, fmt.Appendf(nil, `["REQ","s",{"kinds":[1],"#t":["g%d"],"limit":0}]`, k.group)); err != nil {
			t.Fatal(err)
		}
		ready := make(chan struct{})
		c.work.Go(func() { c.read(t.Context(), i, k, ready) })
		select {
		case <-ready:
		case <-time.After(30 * time.Second):
			t.Fatalf("client %d: no EOSE", i)
		}
	}
	for i, k := range c.clients {
		c.work.Go(func() { c.publish(t.Context(), i, k, pace) })
	}
	return c
}

func (c *crowd) read(ctx context.Context, i int, k *crowdClient, ready chan struct{}) {
	for {
		_, text, err := k.conn.Read(ctx)
		if err != nil {
			select {
			case <-c.stop:
			default:
				c.say("client %d was dropped: %v", i, err)
			}
			return
		}
		var m []json.RawMessage
		if err := json.Unmarshal(text, &m); err != nil || len(m) < 2 {
			c.say("client %d was told %q", i, text)
			continue
		}
		switch string(m[0]) {
		case `"AUTH"`:
		case `"EOSE"`:
			close(ready)
		case `"EVENT"`:
			var e struct{ ID string }
			if err := json.Unmarshal(m[2], &e); err != nil {
				c.say("client %d: %v", i, err)
			}
			k.mu.Lock()
			k.seen[e.ID]++
			k.mu.Unlock()
		case `"OK"`:
			if string(m[2]) != "true" {
				c.say("client %d: %s", i, text)
			}
			k.oks <- string(m[2]) == "true"
		default:
			c.say("client %d was told %s", i, text)
		}
	}
}

// publish sends an event at a time, and waits for its OK before the next.
func (c *crowd) publish(ctx context.Context, i int, k *crowdClient, pace time.Duration) {
	var sk nostr.SecretKey
	sk[0], sk[30], sk[31] = 9, byte(i), 1
	tick := time.NewTicker(pace)
	defer tick.Stop()
	for n := 0; ; n++ {
		e := nostr.Event{CreatedAt: time.Now().Unix(), Kind: 1, Content: fmt.Sprintf("client %d says %d", i, n), Tags: []nostr.Tag{{"t", fmt.Sprint("g", k.group)}}}
		err := e.Sign(sk)
		if err == nil {
			err = k.conn.Write(ctx, websocket.MessageText, nostr.AppendPublish(nil, &e))
		}
		if err != nil {
			c.say("client %d cannot publish: %v", i, err)
			return
		}
		select {
		case ok := <-k.oks:
			if ok {
				c.mu.Lock()
				c.acked[k.group] = append(c.acked[k.group], e.ID)
				c.mu.Unlock()
			}
		case <-time.After(time.Minute):
			c.say("client %d has no OK in a minute", i)
			return
		}
		select {
		case <-tick.C:
		case <-c.stop:
			return
		}
	}
}

// missing says what a client has not seen of what its group was told to be stored, or has seen twice.
func (c *crowd) missing() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i, k := range c.clients {
		k.mu.Lock()
		for _, id := range c.acked[k.group] {
			if n := k.seen[id.String()]; n != 1 {
				k.mu.Unlock()
				return fmt.Sprintf("client %d has seen %s %d times", i, id, n)
			}
		}
		k.mu.Unlock()
	}
	return ""
}

func (c *crowd) all() (ids []nostr.ID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, list := range c.acked {
		ids = append(ids, list...)
	}
	return ids
}

// operated is a node that is run by manifests alone.
type operated struct {
	*node
	t       *testing.T
	browser *http.Client
	file    string
}

func (o *operated) ctl(args ...string) string {
	o.t.Helper()
	cmd := exec.CommandContext(o.t.Context(), filepath.Join(filepath.Dir(binary), "meshctl"), append(args, "--socket", filepath.Join(o.dir, "control.sock"))...)
	out, err := cmd.Output()
	var failed *exec.ExitError
	if errors.As(err, &failed) {
		o.t.Fatalf("meshctl %s: %v\n%s%s", strings.Join(args, " "), err, out, failed.Stderr)
	}
	return string(out)
}

var pageToken = regexp.MustCompile(`name="csrf" value="([^"]+)"`)

// signIn opens the operator's page by a code.
func (o *operated) signIn() {
	o.t.Helper()
	jar, err := cookiejar.New(nil)
	if err != nil {
		o.t.Fatal(err)
	}
	o.browser = &http.Client{Jar: jar}
	token := pageToken.FindStringSubmatch(o.page(""))
	var c struct{ Code string }
	if err := json.Unmarshal([]byte(mustRun(o.t, "", "--dir", o.dir, "--json", "ui", "code")), &c); err != nil || token == nil {
		o.t.Fatalf("no code or no form: %v", err)
	}
	resp, err := o.browser.PostForm(o.web()+"/ui/in/code", url.Values{"csrf": {token[1]}, "code": {c.Code}})
	if err != nil {
		o.t.Fatal(err)
	}
	resp.Body.Close()
}

func (o *operated) web() string { return "http" + strings.TrimPrefix(o.url, "ws") }

func (o *operated) page(path string) string {
	o.t.Helper()
	resp, err := o.browser.Get(o.web() + "/ui/" + path)
	if err != nil {
		o.t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		o.t.Fatalf("the page %q: %s, %v", path, resp.Status, err)
	}
	return string(text)
}

// wish is one state of the node as the operator declares it.
type wish struct {
	round      int
	url        string
	unix       string // path of a door
	peers      []*node
	dids       []string
	maxLimit   int
	perIP      int
	deny       int // kind that is turned away
	budget     int // events_in of the second peer
	operator   string
	withFourth bool
}

func (w *wish) text() string {
	s := fmt.Sprintf(`apiVersion: fleetmesh.org/v1alpha1
kind: MeshNode
metadata: {name: harbour}
spec:
  class: edge
  operator: {pubkey: %s}
  endpoints:
    - {transport: wss, address: "%s", priority: 40}
    - {transport: unix, address: "%s", priority: 80}
  shards: [{name: round-%d, filter: {kinds: [30023]}}]
  relay:
    listen: 127.0.0.1:0
    name: meshnode
    description: A fleetmesh node.
    denyKinds: [%d]
    limits: {maxConnections: 1000, connectionsPerIp: %d, maxLimit: %d, maxSubscriptions: %d, eventsPerSecond: -1, requestsPerSecond: -1, bytesPerSecond: -1}
  federation: {descriptorPow: 4}
---
apiVersion: fleetmesh.org/v1alpha1
kind: GrantPolicy
metadata: {name: strangers}
spec: {admission: closed, tiers: {probation: {events_in: %d}}}
`, w.operator, w.url, w.unix, w.round, w.deny, w.perIP, w.maxLimit, 20+w.round, 100+w.round)
	for i, did := range w.dids {
		if i == 3 && !w.withFourth {
			continue
		}
		s += fmt.Sprintf("---\napiVersion: fleetmesh.org/v1alpha1\nkind: Peering\nmetadata: {name: peer-%d}\nspec:\n  peer: '%s'\n  tier: anchor\n  relays: ['%s']\n", i, did, w.peers[i].url)
		filter := "{kinds: [1]}"
		if i == 0 && w.round%2 == 1 {
			filter = "{kinds: [1, 6]}" // a filter that widens and narrows in place
		}
		s += "  ingress: {filter: " + filter + "}\n  egress: {filter: " + filter + "}\n"
		if i == 1 {
			s += fmt.Sprintf("  budget: {events_in: %d}\n", w.budget)
		}
	}
	return s
}

// apply hands the wish to meshctl and returns the hash that it says the node runs.
func (o *operated) apply(w *wish) string {
	o.t.Helper()
	if err := os.WriteFile(o.file, []byte(w.text()), 0o600); err != nil {
		o.t.Fatal(err)
	}
	var done manifest.Applied
	if err := json.Unmarshal([]byte(o.ctl("apply", "-f", o.file, "--json")), &done); err != nil {
		o.t.Fatal(err)
	}
	if done.Restart || done.Done == 0 {
		o.t.Errorf("round %d: %d steps, restart %v", w.round, done.Done, done.Restart)
	}
	return done.Hash
}

// agrees holds what the node says of itself, by every way in which it says so, against the wish.
func (o *operated) agrees(w *wish, hash string) {
	t := o.t
	t.Helper()
	docs, err := manifest.Parse(o.file, []byte(w.text()))
	if err != nil {
		t.Fatal(err)
	}
	if declared := manifest.Set(docs).Hash(); declared != hash {
		t.Errorf("round %d: apply says %s, the file is %s", w.round, hash, declared)
	}
	var run manifest.Running
	if err := json.Unmarshal([]byte(o.ctl("get", "--json")), &run); err != nil {
		t.Fatal(err)
	}
	if run.Hash != hash || len(run.Drift) > 0 || len(run.Pending) > 0 {
		t.Errorf("round %d: get says hash %s, drift %+v, pending %+v", w.round, run.Hash, run.Drift, run.Pending)
	}
	o.facts(w)
	page := o.page("node")
	for _, want := range []string{hash, fmt.Sprintf(`spec.relay.limits.maxLimit</code></dt><dd><code class="wrap">%d<`, w.maxLimit), fmt.Sprintf(`spec.relay.denyKinds</code></dt><dd><code class="wrap">[%d]<`, w.deny), w.unix, w.operator} {
		if !strings.Contains(page, want) {
			t.Errorf("round %d: the page does not show %q", w.round, want)
		}
	}
	var peers []mesh.Peer
	if err := jsonLines(mustRun(t, "", "--dir", o.dir, "--json", "peer", "list"), &peers); err != nil {
		t.Fatal(err)
	}
	active := map[string]*mesh.Peer{}
	for i := range peers {
		if peers[i].Stage != "ended" {
			active[identity.FormatDID(peers[i].Key)] = &peers[i]
		}
	}
	for i, did := range w.dids {
		p := active[did]
		switch {
		case (p != nil) != (i < 3 || w.withFourth):
			t.Errorf("round %d: peer %d is there: %v", w.round, i, p != nil)
		case i == 0 && strings.Contains(string(p.Wants[0].Filter), "6") != (w.round%2 == 1):
			t.Errorf("round %d: the first peer's filter is %s", w.round, p.Wants[0].Filter)
		case i == 1 && (p.Caps[spec.LimitEventsIn] != int64(w.budget) || p.Issued == nil):
			t.Errorf("round %d: the second peer's budget is %v", w.round, p.Caps)
		}
	}
}

// facts are what anybody can see: the information document, the descriptor, and the doors themselves.
func (o *operated) facts(w *wish) {
	t := o.t
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, o.web(), nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Accept", "application/nostr+json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	var info struct {
		Limitation struct {
			MaxLimit int `json:"max_limit"`
			MaxSubs  int `json:"max_subscriptions"`
		}
	}
	err = json.NewDecoder(resp.Body).Decode(&info)
	resp.Body.Close()
	if err != nil || info.Limitation.MaxLimit != w.maxLimit || info.Limitation.MaxSubs != 20+w.round {
		t.Errorf("round %d: the information document says %+v, %v", w.round, info.Limitation, err)
	}
	conn, err := net.Dial("unix", w.unix)
	if err != nil {
		t.Errorf("round %d: the door that is announced: %v", w.round, err)
	} else {
		conn.Close()
	}
}

// descriptor reads what the node tells others of itself.
func (o *operated) descriptor() *identity.Descriptor {
	o.t.Helper()
	conn, err := gateway.Dial(o.t.Context(), o.url, gateway.Options{})
	if err != nil {
		o.t.Fatal(err)
	}
	defer conn.Close()
	list, err := conn.QueryAll(o.t.Context(), nostr.Filter{Kinds: []nostr.Kind{spec.KindDescriptor}, Tags: []nostr.TagFilter{}})
	if err != nil {
		o.t.Fatal(err)
	}
	self := o.did(o.t)
	for _, e := range list {
		if d, err := identity.CheckDescriptor(e, identity.Rules{Now: time.Now().Unix()}); err == nil && identity.FormatDID(d.Subject) == self {
			return d
		}
	}
	o.t.Fatal("the node holds no descriptor of its own")
	return nil
}

// TestTwoHundredClientsWhileApplying keeps 200 clients publishing and reading and three peers syncing while an operator applies ten changes of filters,
// limits, peers and doors. Nobody is dropped, nothing that was acknowledged is lost, each event comes once, and every way in which the node tells what
// is in force agrees.
func TestTwoHundredClientsWhileApplying(t *testing.T) {
	if testing.Short() {
		t.Skip("five nodes and two hundred clients")
	}
	own, pace := 150, 700*time.Millisecond
	if full() {
		own, pace = 5000, 100*time.Millisecond
	}
	dir := newDir(t)
	mustRun(t, "", "init", "--listen", "127.0.0.1:0", dir)
	edit(t, dir, "    enrolment: closed\n", "    enrolment: closed\n    descriptorPow: 4\n")
	o := &operated{node: up(t, dir), t: t, file: filepath.Join(t.TempDir(), "wish.yaml"), browser: http.DefaultClient}
	o.signIn()
	w := &wish{url: o.url, maxLimit: 500, perIP: 400, deny: 7, budget: 40000, unix: filepath.Join(filepath.Dir(dir), "d0"), withFourth: true}
	var sk nostr.SecretKey
	sk[31] = 5
	w.operator = sk.PubKey().String()
	self := o.did(t)
	for i := range 4 {
		d := newDir(t)
		file := filepath.Join(t.TempDir(), "events")
		writeEvents(t, file, own*i, own)
		mustRun(t, "", "--dir", d, "import", file)
		edit(t, d, "    enrolment: closed\n", "    enrolment: closed\n    descriptorPow: 4\n")
		p := up(t, d)
		w.peers, w.dids = append(w.peers, p), append(w.dids, p.did(t))
	}
	o.apply(w)
	for i, p := range w.peers {
		mustRun(t, "", "--dir", p.dir, "peer", "add", "--relay", o.url, "--tier", "anchor", "--filter", `{"kinds":[1]}`, "--mode", []string{"both", "both", "both", "none"}[i], self)
	}
	c := gather(t, o.url, 200, pace)
	before := o.relaying()
	for w.round = 1; w.round <= 10; w.round++ {
		old := w.unix
		w.unix = filepath.Join(filepath.Dir(dir), fmt.Sprint("d", w.round))
		w.maxLimit, w.deny, w.budget, w.withFourth = 500+w.round, 7+w.round%2, 40000+w.round, w.round%2 == 0
		w.perIP = 400
		if w.round == 5 {
			w.perIP = 100 // below what is there: those may stay, and nobody else comes
		}
		sk[31] = byte(10 + w.round)
		w.operator = sk.PubKey().String()
		hash := o.apply(w)
		if w.round == 5 {
			if conn, _, err := websocket.Dial(t.Context(), o.url, nil); err == nil {
				conn.CloseNow()
				t.Error("a client came in above a limit that was lowered")
			}
			w.perIP = 400 // the checks below connect
			hash = o.apply(w)
		}
		if _, err := net.Dial("unix", old); err == nil {
			t.Errorf("round %d: the door that went takes new streams", w.round)
		}
		o.agrees(w, hash)
		o.turnsAway(w)
	}
	w.round = 10 // the last
	d := o.descriptor()
	if len(d.Endpoints) != 2 || d.Endpoints[0].Address != o.url && d.Endpoints[1].Address != o.url || d.Operator.String() != w.operator {
		t.Errorf("the descriptor says %+v, operator %s", d.Endpoints, d.Operator)
	}
	close(c.stop)
	until(t, "everybody has what was acknowledged", time.Minute, func() bool { return c.missing() == "" })
	ids := c.all()
	o.checkPeers(w, ids, own)
	after := o.relaying()
	if after.Open < 200 || after.Shed != before.Shed {
		t.Errorf("%d connections are open, %d were shed", after.Open, after.Shed-before.Shed)
	}
	for _, k := range c.clients {
		k.conn.CloseNow()
	}
	c.work.Wait()
	for _, s := range c.wrong {
		t.Error(s)
	}
	t.Logf("%d events by 200 clients were acknowledged, and each came once to ten of them", len(ids))
	if !strings.Contains(mustRun(t, "", "--dir", dir, "coverage"), "round-10") {
		t.Error("the shard of the last round is not claimed")
	}
}

type faceCounts struct{ Open, Shed int64 }

func (o *operated) relaying() (c faceCounts) {
	o.t.Helper()
	var s struct {
		Relaying struct {
			Open int64 `json:"open_connections"`
			Shed int64 `json:"clients_shed"`
		}
	}
	if err := json.Unmarshal([]byte(mustRun(o.t, "", "--dir", o.dir, "--json", "status")), &s); err != nil {
		o.t.Fatal(err)
	}
	return faceCounts{s.Relaying.Open, s.Relaying.Shed}
}

// turnsAway offers what the present filter refuses and what the one before refused.
func (o *operated) turnsAway(w *wish) {
	o.t.Helper()
	for _, kind := range []int{7, 8} {
		out, code := run(o.t, "", "event", "--kind", fmt.Sprint(kind), "--content", fmt.Sprint("+", w.round), "--relay", o.url)
		if (code != 0) != (kind == w.deny) {
			o.t.Errorf("round %d: kind %d ends with %d: %s", w.round, kind, code, out)
		}
	}
}

// checkPeers wants everything of kind 1 at the three peers that sync, and theirs here.
func (o *operated) checkPeers(w *wish, ids []nostr.ID, own int) {
	t := o.t
	t.Helper()
	want := len(ids) + 3*own
	for i := range 3 {
		until(t, fmt.Sprintf("peer %d has what the clients published", i), 3*time.Minute, func() bool {
			mine, theirs := o.fingerprint(t), w.peers[i].fingerprint(t)
			return mine == theirs && mine.Count >= want
		})
	}
}
