package daemon

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"fleetmesh.org/fleetmesh/internal/host"
	"fleetmesh.org/fleetmesh/internal/transport"
)

// checkProxy connects to the proxy, if there is one.
func (f *federation) checkProxy(ctx context.Context) *ProxyCheck {
	if f.n.cfg().Spec.Proxy == "" {
		return nil
	}
	u, err := url.Parse(f.n.cfg().Spec.Proxy)
	if err != nil {
		return &ProxyCheck{Error: "spec.proxy is not a URL", Help: "write it as socks5://127.0.0.1:9050"}
	}
	ctx, cancel := context.WithTimeout(ctx, transport.RungTimeout)
	defer cancel()
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", u.Host)
	if err != nil {
		return &ProxyCheck{Error: err.Error(), Help: "start the proxy at " + u.Host + ", or correct spec.proxy: nothing is dialled beside it"}
	}
	conn.Close()
	return &ProxyCheck{OK: true}
}

// checkDoors dials what this node advertises, from this machine.
func (f *federation) checkDoors(ctx context.Context) []DoorCheck {
	out := []DoorCheck{}
	for _, e := range doors(&f.n.cfg().Spec, f.n.url) {
		d := DoorCheck{Scheme: e.Scheme, Address: e.Address}
		if f.net.Proxied() && e.Scheme != "unix" && len(host.Unusable(doors(&f.n.cfg().Spec, f.n.url))) > 0 {
			d.Help = "not dialled: everything goes through the proxy, which does not reach this machine's own addresses"
			out = append(out, d)
			continue
		}
		rung, cancel := context.WithTimeout(ctx, transport.RungTimeout)
		d.Dialled = true
		start := time.Now()
		err := f.knock(rung, transport.Endpoint{Scheme: e.Scheme, Address: e.Address})
		d.TookMS = time.Since(start).Milliseconds()
		if d.OK = err == nil; err != nil {
			if errors.Is(rung.Err(), context.DeadlineExceeded) {
				err = fmt.Errorf("no answer in %s", transport.RungTimeout)
			}
			d.Error, d.Help = err.Error(), host.Advice(e.Scheme, err)
		}
		cancel()
		out = append(out, d)
	}
	return out
}

// knock opens one of our own doors from outside.
func (f *federation) knock(ctx context.Context, ep transport.Endpoint) error {
	if ep.Scheme == f.https.Scheme() {
		return f.knockHTTPS(ctx, ep.Address)
	}
	i := slices.IndexFunc(f.carriers(), func(t transport.Transport) bool { return t.Scheme() == ep.Scheme })
	if i < 0 {
		return fmt.Errorf("this build has no transport %q", ep.Scheme)
	}
	s, err := f.carriers()[i].Dial(ctx, ep, f.n.agent.PubKey())
	if err != nil {
		return err
	}
	return s.Close()
}

// knockHTTPS asks the way a browser would: the door answers that it wants a POST.
func (f *federation) knockHTTPS(ctx context.Context, address string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return err
	}
	resp, err := f.net.HTTPClient().Do(req)
	if err != nil {
		return err
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusMethodNotAllowed || resp.Header.Get("Allow") != http.MethodPost {
		return fmt.Errorf("the server answers %s to a GET, where this node's door would say 405", resp.Status)
	}
	return nil
}

// checkClock compares the clock with the Date of other servers' answers.
func (f *federation) checkClock(ctx context.Context, peers []host.PeerHealth) ClockCheck {
	c := ClockCheck{OK: true}
	var urls []string
	for _, p := range peers {
		for _, r := range p.Rungs {
			if r.Scheme == "wss" && r.OK {
				urls = append(urls, r.Address)
				break
			}
		}
	}
	urls = append(urls, f.n.cfg().Spec.Relays...)
	var offsets []float64
	for _, u := range urls[:min(len(urls), examinedAtOnce)] {
		if off, err := f.clockOf(ctx, u); err == nil {
			offsets = append(offsets, off.Seconds())
		}
	}
	c.Compared = len(offsets)
	if len(offsets) == 0 {
		c.Help = "no other server showed its clock; nothing was compared"
		return c
	}
	slices.Sort(offsets)
	mid := offsets[len(offsets)/2]
	c.Offset = &mid
	if limit := clockTolerance.Seconds(); mid > limit || mid < -limit {
		c.OK = false
		c.Help = fmt.Sprintf("it differs by %.0f s from most others, and a minute is allowed: run an NTP client", mid)
	}
	return c
}

// clockOf returns how far ahead of ours a relay's clock is, to about a second.
func (f *federation) clockOf(ctx context.Context, relay string) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, transport.RungTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http"+strings.TrimPrefix(relay, "ws"), nil)
	if err != nil {
		return 0, err
	}
	req.Header.Set("Accept", "application/nostr+json")
	start := time.Now()
	resp, err := f.net.HTTPClient().Do(req)
	if err != nil {
		return 0, err
	}
	resp.Body.Close()
	at, err := http.ParseTime(resp.Header.Get("Date"))
	if err != nil {
		return 0, err
	}
	return at.Add(time.Second / 2).Sub(start.Add(time.Since(start) / 2)), nil
}

// PeerHealth is what the doctor found of one peer.
type PeerHealth = host.PeerHealth
