package transport

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"time"
)

// Network is how outgoing connections are made: directly, or all of them through
// one SOCKS5 proxy. With a proxy nothing else is ever dialled and no name is
// looked up here: the proxy gets the name. Environment variables have no say.
type Network struct {
	proxy *url.URL
	tls   *tls.Config
	http  *http.Transport
}

// NewNetwork makes a Network. proxy is empty or
// "socks5://[user:password@]address:port", with an IP address: looking up the
// proxy's name would be the very look-up that the proxy is to prevent. tlsConfig
// may be nil.
func NewNetwork(proxy string, tlsConfig *tls.Config) (*Network, error) {
	n := &Network{tls: tlsConfig}
	dialer := &net.Dialer{Timeout: 30 * time.Second, KeepAlive: 30 * time.Second}
	n.http = &http.Transport{
		DialContext:           dialer.DialContext,
		TLSClientConfig:       tlsConfig,
		TLSHandshakeTimeout:   15 * time.Second,
		ResponseHeaderTimeout: 30 * time.Second,
		IdleConnTimeout:       90 * time.Second,
		MaxIdleConnsPerHost:   2,
	}
	if proxy == "" {
		return n, nil
	}
	u, err := parseProxy(proxy)
	if err != nil {
		return nil, err
	}
	n.proxy = u
	n.http.Proxy = http.ProxyURL(u) // hands host names on unresolved
	n.http.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
		if address != u.Host {
			return nil, fmt.Errorf("refused to dial %s beside the proxy", address)
		}
		return dialer.DialContext(ctx, network, address)
	}
	return n, nil
}

// parseProxy reads a proxy URL. Its errors do not show the password.
func parseProxy(s string) (*url.URL, error) {
	u, err := url.Parse(s)
	if err != nil {
		return nil, fmt.Errorf("proxy: not a URL; wanted socks5://127.0.0.1:9050")
	}
	if u.Scheme != "socks5" && u.Scheme != "socks5h" {
		return nil, fmt.Errorf("proxy %s: scheme must be socks5", u.Redacted())
	}
	u.Scheme = "socks5h"
	if _, err := netip.ParseAddr(u.Hostname()); err != nil {
		return nil, fmt.Errorf("proxy %s: the host must be an IP address, such as 127.0.0.1", u.Redacted())
	}
	if u.Port() == "" {
		return nil, fmt.Errorf("proxy %s: the port is missing", u.Redacted())
	}
	return u, nil
}

// Proxied reports whether everything goes through a proxy.
func (n *Network) Proxied() bool { return n.proxy != nil }

// HTTPClient is a client whose every connection obeys n. It follows no redirects:
// a frame goes where it was sent or nowhere. WebSocket dialers take it too.
func (n *Network) HTTPClient() *http.Client {
	return &http.Client{
		Transport:     n.http,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// CloseIdle closes connections that are kept for reuse.
func (n *Network) CloseIdle() { n.http.CloseIdleConnections() }

// reason cuts an error down to what the network said, where the network said
// something: the layers above it only repeat the address.
func reason(err error) error {
	if op := (*net.OpError)(nil); errors.As(err, &op) {
		return op
	}
	if dns := (*net.DNSError)(nil); errors.As(err, &dns) {
		return dns
	}
	return err
}

// checkURL parses an endpoint's URL. plain is the scheme without TLS, which is for
// machines on this host, onion services and others whose path is already
// protected: it is the operator who writes it.
func checkURL(address, secure, plain string) (*url.URL, error) {
	u, err := url.Parse(address)
	if err != nil {
		return nil, fmt.Errorf("endpoint is not a URL: %w", err)
	}
	if u.Scheme != secure && u.Scheme != plain || u.Host == "" {
		return nil, fmt.Errorf("endpoint %s: wanted %s://host…", u.Redacted(), secure)
	}
	return u, nil
}
