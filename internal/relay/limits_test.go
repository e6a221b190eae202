package relay_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"fleetmesh.org/fleetmesh/internal/policy"
	"fleetmesh.org/fleetmesh/internal/relay"
	"fleetmesh.org/fleetmesh/internal/relay/relaytest"
)

// TestKnobs checks that each limit refuses with its name, its value and what would have sufficed, and the
// connection goes on.
func TestKnobs(t *testing.T) {
	now := time.Unix(relaytest.T0, 0)
	set := func(f func(*relay.Limits)) relaytest.Option {
		return func(c *relay.Config) {
			c.Clock = func() time.Time { return now }
			f(&c.Limits)
		}
	}
	many := `["REQ","x"` + strings.Repeat(`,{"kinds":[1]}`, 5) + `]`
	long := strings.Repeat("é", 65)
	for name, tc := range map[string]struct {
		limits func(*relay.Limits)
		before []string
		frame  string
		label  string
		id     string
		reason string
	}{
		"filters": {func(l *relay.Limits) { l.MaxFilters = 4 }, nil, many, "CLOSED", "x", "blocked: limits.maxFilters is 4, 5 would have sufficed"},
		"subscriptions": {func(l *relay.Limits) { l.MaxSubscriptions = 1 }, []string{`["REQ","a",{"limit":0}]`}, `["REQ","x",{}]`, "CLOSED", "x",
			"blocked: limits.maxSubscriptions is 1, 2 would have sufficed"},
		"watched values": {func(l *relay.Limits) { l.MaxWatchedValues = 2 }, nil, `["REQ","x",{"kinds":[1,2,3]}]`, "CLOSED", "x",
			"blocked: limits.maxWatchedValues is 2, 3 would have sufficed"},
		"watched values in all": {func(l *relay.Limits) { l.MaxWatchedInAll = 3 }, []string{`["REQ","a",{"kinds":[1,2],"limit":0}]`}, `["REQ","x",{"kinds":[1,2]}]`,
			"CLOSED", "x", "rate-limited: limits.maxWatchedInAll is 3, 4 would have sufficed"},
		"subscription id": {func(l *relay.Limits) {}, nil, `["REQ","` + long + `",{}]`, "CLOSED", long, "invalid: limits.maxSubIdLength is 64, 65 would have sufficed"},
		"subscription id of COUNT": {func(l *relay.Limits) {}, nil, `["COUNT","` + long + `",{}]`, "CLOSED", long,
			"invalid: limits.maxSubIdLength is 64, 65 would have sufficed"},
		"requests": {func(l *relay.Limits) { l.RequestsPerSecond, l.RequestsBurst = 1, 1 }, []string{`["REQ","a",{"limit":0}]`}, `["REQ","x",{}]`, "CLOSED", "x",
			"rate-limited: limits.requestsPerSecond is 1 with a burst of 1, a burst of 2 would have sufficed; try again in 1000 ms"},
		"requests of COUNT": {func(l *relay.Limits) { l.RequestsPerSecond, l.RequestsBurst = 1, 1 }, []string{`["REQ","a",{"limit":0}]`}, `["COUNT","x",{}]`, "CLOSED", "x",
			"rate-limited: limits.requestsPerSecond is 1 with a burst of 1, a burst of 2 would have sufficed; try again in 1000 ms"},
		"requests of NEG-OPEN": {func(l *relay.Limits) { l.RequestsPerSecond, l.RequestsBurst = 1, 1 }, []string{`["REQ","a",{"limit":0}]`}, `["NEG-OPEN","x",{},"61"]`, "NEG-ERR", "x",
			"rate-limited: limits.requestsPerSecond is 1 with a burst of 1, a burst of 2 would have sufficed; try again in 1000 ms"},
		"bytes": {func(l *relay.Limits) { l.BytesPerSecond, l.BytesBurst = 10, 30 }, []string{`["REQ","a",{"limit":0}]`}, `["REQ","x",{"kinds":[1,2,3]}]`, "CLOSED", "x",
			"rate-limited: limits.bytesPerSecond is 10 with a burst of 30, a burst of 59 would have sufficed; try again in 2200 ms"},
		"message size": {func(l *relay.Limits) { l.MaxMessageBytes = 40 }, nil, `["REQ","x",{"kinds":[1,2,3,4,5,6,7,8,9,10]}]`, "CLOSED", "x",
			"invalid: limits.maxMessageBytes is 40, 44 would have sufficed"},
	} {
		t.Run(name, func(t *testing.T) {
			c := relaytest.Start(t, memory(t), set(tc.limits)).Dial(t)
			for _, s := range tc.before {
				c.Send(s)
				c.AwaitAnswer("a")
			}
			c.Send(tc.frame)
			m := c.Next()
			if m.Label() != tc.label || m.String(1) != tc.id || m.String(2) != tc.reason {
				t.Errorf("got %q, want %s %s %q", m, tc.label, tc.id, tc.reason)
			}
		})
	}
}

// TestBadSubIDsAreCounted by user agent.
func TestBadSubIDsAreCounted(t *testing.T) {
	r := relaytest.Start(t, memory(t))
	c := relaytest.Dial(t, r.Addr, "/", "User-Agent: chatty/1.0")
	c.Req(strings.Repeat("x", 65), `{}`)
	if got := r.Metrics().BadSubIDs["chatty/1.0"]; got != 1 {
		t.Errorf("counted %d", got)
	}
}

// TestParallelWrites lets exactly the allowed number of 1,000 parallel events pass.
func TestParallelWrites(t *testing.T) {
	now := time.Unix(relaytest.T0, 0)
	r := relaytest.Start(t, memory(t), func(c *relay.Config) {
		c.Clock = func() time.Time { return now }
		c.Limits.EventsPerSecond, c.Limits.EventsBurst = 100, 100
	})
	var accepted, limited atomic.Int64
	var wg sync.WaitGroup
	for w := range 20 {
		wg.Go(func() {
			c := r.Dial(t)
			for i := range 50 {
				ok := c.Publish(relaytest.Event(relaytest.A, relaytest.T0, 1, nil, fmt.Sprint(w, i)))
				switch {
				case ok.OK:
					accepted.Add(1)
				case strings.HasPrefix(ok.Reason, "rate-limited: "):
					limited.Add(1)
				}
			}
		})
	}
	wg.Wait()
	if accepted.Load() != 100 || limited.Load() != 900 {
		t.Errorf("%d accepted and %d limited, want 100 and 900", accepted.Load(), limited.Load())
	}
	stats, err := r.Store.Stats(t.Context())
	m := r.Metrics()
	if err != nil || stats.Events != 100 || m.Stored != 100 || m.RefusedBy["rate-limited"] != 900 {
		t.Errorf("the store holds %d, the counters say %d stored and %v refused: %v", stats.Events, m.Stored, m.RefusedBy, err)
	}
}

// TestForwardedFor believes listed proxies only, and only as far as they go.
func TestForwardedFor(t *testing.T) {
	loopback := []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("10.0.0.0/8")}
	oneEach := func(trusted []netip.Prefix) relaytest.Option {
		return func(c *relay.Config) {
			c.Limits.ConnectionsPerIP = 1
			c.TrustedProxies = trusted
		}
	}
	try := func(r *relaytest.Relay, headers ...string) int {
		_, status, err := relaytest.Handshake(t, r.Addr, "/", headers...)
		if err != nil {
			t.Fatal(err)
		}
		return status
	}
	r := relaytest.Start(t, memory(t), oneEach(loopback))
	for i, tc := range []struct {
		header string
		status int
	}{
		{"192.0.2.1", 101}, {"192.0.2.1", 429}, {"192.0.2.2", 101},
		{"203.0.113.9, 192.0.2.1", 429}, // what stands left of the client was written by the client
		{"192.0.2.3, 10.1.2.3", 101},    // an inner proxy
		{"192.0.2.3", 429},
		{"2001:db8:1:2:3::1", 101}, {"2001:db8:1:2:4::1", 429}, {"2001:db8:1:3::1", 101}, // counted by /64
		{"192.0.2.4:5555", 101}, {"192.0.2.4", 429},
	} {
		if got := try(r, "X-Forwarded-For: "+tc.header); got != tc.status {
			t.Errorf("step %d, %q: status %d, want %d", i, tc.header, got, tc.status)
		}
	}
	plain := relaytest.Start(t, memory(t), oneEach(nil))
	if a, b := try(plain, "X-Forwarded-For: 192.0.2.1"), try(plain, "X-Forwarded-For: 192.0.2.2"); a != 101 || b != 429 {
		t.Errorf("without trusted proxies: %d, %d", a, b)
	}
	exempt := relaytest.Start(t, memory(t), oneEach(nil), func(c *relay.Config) { c.Exempt = loopback })
	if a, b := try(exempt), try(exempt); a != 101 || b != 101 {
		t.Errorf("exempt: %d, %d", a, b)
	}
}

// TestAuthToRead asks for authentication before any question.
func TestAuthToRead(t *testing.T) {
	c := relaytest.Start(t, memory(t), func(c *relay.Config) { c.AuthToRead = true }).Dial(t)
	if a := c.Req("x", `{}`); !strings.HasPrefix(a.Closed, "auth-required: ") {
		t.Errorf("REQ: %+v", a)
	}
	if _, closed := c.Count(`{}`); !strings.HasPrefix(closed, "auth-required: ") {
		t.Errorf("COUNT: %q", closed)
	}
	if reason := c.NegIDs(`{}`); !strings.HasPrefix(reason, "auth-required: ") {
		t.Errorf("NEG-OPEN: %q", reason)
	}
	if ok := c.Auth(relaytest.A, relaytest.URL); !ok.OK {
		t.Fatal(ok.Reason)
	}
	c.Alive()
}

// TestWrongURLIsLogged with both values, and with nothing that names the client.
func TestWrongURLIsLogged(t *testing.T) {
	var text bytes.Buffer
	r := relaytest.Start(t, memory(t), func(c *relay.Config) { c.Log = slog.New(slog.NewTextHandler(&text, nil)) })
	c := r.Dial(t)
	if ok := c.Auth(relaytest.A, "wss://proxy.test/"+strings.Repeat("x", 500)); ok.OK {
		t.Error("accepted")
	}
	if err := r.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	line := text.String()
	for _, there := range []string{"wss://proxy.test/", relaytest.URL} {
		if !strings.Contains(line, there) {
			t.Errorf("the log does not name %s: %s", there, line)
		}
	}
	for _, not := range []string{"127.0.0.1", relaytest.A.PubKey().String()} {
		if strings.Contains(line, not) {
			t.Errorf("the log names %s: %s", not, line)
		}
	}
	if len(line) > 512 {
		t.Errorf("a line of %d octets", len(line))
	}
}

// TestContradictions are found when the relay is made.
func TestContradictions(t *testing.T) {
	s := memory(t)
	for name, cfg := range map[string]relay.Config{
		"no store":                  {},
		"auth to read, no auth":     {Store: s, AuthToRead: true, Off: relay.Features{Auth: true}},
		"auth to write, no auth":    {Store: s, Policy: policy.AuthToWrite{}, Off: relay.Features{Auth: true}},
		"a public URL that is none": {Store: s, PublicURLs: []string{"relay.test"}},
	} {
		if _, err := relay.New(cfg); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

// TestSharedOutboundCap sheds those who do not keep up, once all together are owed too much, and spares the others.
func TestSharedOutboundCap(t *testing.T) {
	r := relaytest.Start(t, memory(t), func(c *relay.Config) {
		c.Limits.MaxOutboundBytes, c.Limits.MaxOutboundInAll, c.Limits.StreamWindow = 64<<20, 1<<20, 64<<10
	})
	w := r.Dial(t)
	var stalled []*relaytest.Client
	for range 4 {
		c := r.Dial(t)
		c.Req("live", `{"kinds":[1]}`)
		stalled = append(stalled, c)
	}
	text := strings.Repeat("x", 100_000)
	for i := range 2000 {
		w.MustPublish(relaytest.Event(relaytest.A, relaytest.T0+int64(i), 1, nil, text))
		// Whoever is within his share may still be owed one message more.
		if m := r.Metrics(); m.Owed > 1<<20+5*101_000 {
			t.Fatalf("%d octets are owed", m.Owed)
		} else if m.Shed == int64(len(stalled)) {
			break
		}
	}
	if got := r.Metrics().Shed; got == 0 {
		t.Error("nobody was shed")
	}
	w.Alive()
}
