package relay_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"fleetmesh.org/fleetmesh/internal/relay"
	"fleetmesh.org/fleetmesh/internal/relay/relaytest"
)

// TestSetLimits changes each limit that may change while clients are connected: the next message is held to it, what is there stays, and the
// information document says so.
func TestSetLimits(t *testing.T) {
	now := time.Unix(relaytest.T0, 0)
	r := relaytest.Start(t, memory(t), func(c *relay.Config) { c.Clock = func() time.Time { return now } })
	first := r.Limits()
	set := func(f func(*relay.Limits)) {
		l := relay.Limits{EventsPerSecond: -1, RequestsPerSecond: -1, BytesPerSecond: -1}
		f(&l)
		r.SetLimits(l)
	}
	free := func() { set(func(*relay.Limits) {}) }
	free()
	c := r.Dial(t)
	for i := range 5 {
		c.MustPublish(relaytest.Event(relaytest.A, relaytest.T0-int64(i), 1, nil, fmt.Sprint(i)))
	}
	c.Req("old", `{"kinds":[1]}`)
	answers := func(frame, label, reason string) {
		t.Helper()
		c.Send(frame)
		m := c.Await(func(m relaytest.Message) bool { return m.Label() == label })
		if got := m.String(len(m) - 1); got != reason {
			t.Errorf("%s\ngot  %q\nwant %q", frame, got, reason)
		}
	}

	set(func(l *relay.Limits) { l.MaxFilters = 2 })
	answers(`["REQ","x",{},{},{}]`, "CLOSED", "blocked: limits.maxFilters is 2, 3 would have sufficed")
	set(func(l *relay.Limits) { l.MaxSubscriptions = 1 })
	answers(`["REQ","x",{}]`, "CLOSED", "blocked: limits.maxSubscriptions is 1, 2 would have sufficed")
	set(func(l *relay.Limits) { l.MaxMessageBytes = 40 })
	answers(`["REQ","x",{"kinds":[1,2,3,4,5,6,7,8,9,10]}]`, "CLOSED", "invalid: limits.maxMessageBytes is 40, 44 would have sufficed")
	set(func(l *relay.Limits) { l.RequestsPerSecond, l.RequestsBurst = 1, 1 })
	c.Req("a", `{"limit":0}`)
	answers(`["REQ","x",{}]`, "CLOSED", "rate-limited: limits.requestsPerSecond is 1 with a burst of 1, a burst of 2 would have sufficed; try again in 1000 ms")
	set(func(l *relay.Limits) { l.MaxLimit = 3 })
	if n := len(c.Get(`{"kinds":[1]}`).Contents()); n != 3 {
		t.Errorf("%d events of a query, want 3", n)
	}
	set(func(l *relay.Limits) { l.EventsPerSecond, l.EventsBurst = 1, 1 })
	if a, b := c.Publish(relaytest.Event(relaytest.A, relaytest.T0, 1, nil, "a")), c.Publish(relaytest.Event(relaytest.A, relaytest.T0, 1, nil, "b")); !a.OK || b.OK || !strings.Contains(b.Reason, "limits.eventsPerSecond is 1") {
		t.Errorf("%+v, then %+v", a, b)
	}

	// Those who are above a lowered number of connections stay; nobody else comes until it is raised.
	for name, f := range map[string]func(*relay.Limits){
		"connectionsPerIp": func(l *relay.Limits) { l.ConnectionsPerIP = 1 },
		"maxConnections":   func(l *relay.Limits) { l.MaxConnections = 1 },
	} {
		free()
		second := r.Dial(t)
		set(f)
		if _, status, err := relaytest.Handshake(t, r.Addr, "/"); err != nil || status != http.StatusTooManyRequests {
			t.Errorf("%s: a third client: %d, %v", name, status, err)
		}
		c.Alive()
		second.Alive()
		free()
		r.Dial(t).Alive()
	}

	// The subscription of before lived through all of it.
	c.Settle()
	e := relaytest.Event(relaytest.A, relaytest.T0, 1, nil, "at last")
	r.Dial(t).MustPublish(e)
	if m := c.Await(func(m relaytest.Message) bool { return m.Label() == "EVENT" && m.String(1) == "old" }); !strings.Contains(fmt.Sprint(m[2]), e.ID.String()) {
		t.Errorf("the old subscription brings %s", m)
	}

	set(func(l *relay.Limits) { l.MaxLimit, l.MaxSubscriptions, l.MaxQueries, l.MaxPendingBytes = 77, 9, 1, 1 })
	var doc struct {
		Limitation struct {
			MaxLimit int `json:"max_limit"`
			MaxSubs  int `json:"max_subscriptions"`
		}
	}
	if err := json.Unmarshal(r.InfoDocument(), &doc); err != nil || doc.Limitation.MaxLimit != 77 || doc.Limitation.MaxSubs != 9 {
		t.Errorf("the document says %+v, %v", doc.Limitation, err)
	}
	if l := r.Limits(); l.MaxQueries != first.MaxQueries || l.MaxPendingBytes != first.MaxPendingBytes || l.MaxFilters != first.MaxFilters {
		t.Errorf("room that is set aside at the start, or a default, is another: %+v", l)
	}
}

// TestSetLimitsUnderLoad changes limits all the time while clients publish: none is dropped, and every event gets its OK.
func TestSetLimitsUnderLoad(t *testing.T) {
	r := relaytest.Start(t, memory(t))
	stop := make(chan struct{})
	var changing, work sync.WaitGroup
	changing.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
				r.SetLimits(relay.Limits{EventsPerSecond: []float64{-1, 1e6}[i%2], RequestsPerSecond: -1, BytesPerSecond: -1, ConnectionsPerIP: 1 + i%50, MaxSubscriptions: 20 + i%9, MaxLimit: 10 + i%90})
			}
		}
	})
	clients := make([]*relaytest.Client, 20)
	r.SetLimits(relay.Limits{EventsPerSecond: -1, ConnectionsPerIP: 50})
	for i := range clients {
		for clients[i] == nil {
			if c, status, err := relaytest.Handshake(t, r.Addr, "/"); err == nil && status == http.StatusSwitchingProtocols {
				clients[i] = c
			}
		}
	}
	for w, c := range clients {
		work.Go(func() {
			for i := range 50 {
				if ok := c.Publish(relaytest.Event(relaytest.A, relaytest.T0, 1, nil, fmt.Sprint(w, " ", i))); !ok.OK {
					t.Errorf("client %d: %s", w, ok.Reason)
				}
			}
			c.Alive()
		})
	}
	work.Wait()
	close(stop)
	changing.Wait()
	if m := r.Metrics(); m.Stored != 1000 || m.Shed != 0 {
		t.Errorf("%d stored, %d shed", m.Stored, m.Shed)
	}
}
