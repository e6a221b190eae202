package blossom

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Fetcher gets blobs from URLs that strangers hand in, so it goes nowhere but where the whole world could go as well: only http
// and https, and no address that is private, local or reserved. The address is checked when the connection is made, after the
// name was looked up, so a name that changes its mind does not help.
type Fetcher struct {
	client  *http.Client
	private bool
}

// FetchConfig configures a Fetcher.
type FetchConfig struct {
	AllowPrivate bool          // also private and local addresses: for tests, and for mirrors within an estate
	Timeout      time.Duration // for one blob; 0: 10 minutes
	// Transport makes the requests instead of direct connections, such as through a proxy that looks names up itself. Then only
	// addresses in the URL can be checked, and names that are local by definition. nil: direct.
	Transport http.RoundTripper
}

const (
	maxRedirects = 3
	maxURL       = 2048
)

// Errors of Fetcher; the rest is the origin's failure.
var (
	errURL     = errors.New("the URL must be http or https, with a host and without a user, and up to 2048 bytes")
	errPrivate = errors.New("the URL leads to a private or reserved address")
)

// NewFetcher makes a Fetcher. It uses no proxy of the environment.
func NewFetcher(c FetchConfig) *Fetcher {
	if c.Timeout == 0 {
		c.Timeout = 10 * time.Minute
	}
	f := &Fetcher{private: c.AllowPrivate}
	if c.Transport == nil {
		d := &net.Dialer{Timeout: 10 * time.Second}
		if !c.AllowPrivate {
			d.Control = func(_, address string, _ syscall.RawConn) error { return publicAddress(address) }
		}
		c.Transport = &http.Transport{
			DialContext: d.DialContext, TLSHandshakeTimeout: 10 * time.Second, ResponseHeaderTimeout: 30 * time.Second,
			MaxResponseHeaderBytes: 64 << 10, DisableCompression: true, MaxIdleConns: 8, IdleConnTimeout: 30 * time.Second, ForceAttemptHTTP2: true,
		}
	}
	f.client = &http.Client{
		Timeout: c.Timeout, Transport: c.Transport,
		CheckRedirect: func(r *http.Request, via []*http.Request) error {
			if len(via) > maxRedirects {
				return errors.New("too many redirects")
			}
			return f.check(r.URL)
		},
	}
	return f
}

// ParseURL reads a URL that a stranger hands in, and refuses what will not be fetched.
func (f *Fetcher) ParseURL(text string) (*url.URL, error) {
	if len(text) > maxURL {
		return nil, errURL
	}
	u, err := url.Parse(text)
	if err != nil {
		return nil, errURL
	}
	return u, f.check(u)
}

// check looks at what can be told from a URL alone.
func (f *Fetcher) check(u *url.URL) error {
	if (u.Scheme != "http" && u.Scheme != "https") || u.Hostname() == "" || u.User != nil {
		return errURL
	}
	if f.private {
		return nil
	}
	host := strings.TrimSuffix(strings.ToLower(u.Hostname()), ".")
	for _, local := range []string{"localhost", ".localhost", ".local", ".internal", ".onion", ".home.arpa"} {
		if host == strings.TrimPrefix(local, ".") || (local[0] == '.' && strings.HasSuffix(host, local)) {
			return errPrivate
		}
	}
	if a, err := netip.ParseAddr(host); err == nil && !public(a) {
		return errPrivate
	}
	return nil
}

// publicAddress checks the host:port that a connection is about to be made to.
func publicAddress(address string) error {
	ap, err := netip.ParseAddrPort(address)
	if err != nil || !public(ap.Addr()) {
		return errPrivate
	}
	return nil
}

// reserved lists what is not private by netip's own words, but leads to no public server either (IANA special-purpose registries).
var reserved = []netip.Prefix{
	netip.MustParsePrefix("0.0.0.0/8"), netip.MustParsePrefix("100.64.0.0/10"), netip.MustParsePrefix("192.0.0.0/24"),
	netip.MustParsePrefix("192.0.2.0/24"), netip.MustParsePrefix("192.88.99.0/24"), netip.MustParsePrefix("198.18.0.0/15"),
	netip.MustParsePrefix("198.51.100.0/24"), netip.MustParsePrefix("203.0.113.0/24"), netip.MustParsePrefix("240.0.0.0/4"),
	netip.MustParsePrefix("64:ff9b:1::/48"), netip.MustParsePrefix("100::/64"), netip.MustParsePrefix("2001::/23"),
	netip.MustParsePrefix("2001:db8::/32"), netip.MustParsePrefix("3fff::/20"), netip.MustParsePrefix("5f00::/16"), netip.MustParsePrefix("fec0::/10"),
}

var (
	nat64  = netip.MustParsePrefix("64:ff9b::/96")
	sixTo4 = netip.MustParsePrefix("2002::/16")
)

// public tells whether an address is one that anybody on the internet could reach. Addresses that carry an IPv4 address are judged by that.
func public(a netip.Addr) bool {
	a = a.Unmap().WithZone("")
	b := a.As16()
	switch {
	case nat64.Contains(a):
		return public(netip.AddrFrom4([4]byte(b[12:16])))
	case sixTo4.Contains(a):
		return public(netip.AddrFrom4([4]byte(b[2:6])))
	case !a.IsGlobalUnicast(), a.IsPrivate():
		return false
	case a.Is6() && [12]byte(b[:12]) == [12]byte{}: // IPv4-compatible, long abolished
		return false
	}
	for _, p := range reserved {
		if p.Contains(a) {
			return false
		}
	}
	return true
}

// fetched is what an origin sends.
type fetched struct {
	body io.ReadCloser
	size int64 // -1: not told
	kind string
}

// get asks for a URL that ParseURL has let pass, with a token if there is one. Its errors are answers for the client. answered, if not nil, is told
// whether the origin gave the blob or refused; where there is no telling it is not called.
func (f *Fetcher) get(ctx context.Context, u *url.URL, token string, answered func(ok bool)) (*fetched, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return nil, refuse(http.StatusBadRequest, errURL.Error())
	}
	req.Header.Set("User-Agent", "meshnode")
	if token != "" {
		req.Header.Set("Authorization", token)
	}
	req.Header.Set("Accept-Encoding", "identity") // the hash is of the bytes, not of what they were packed from
	resp, err := f.client.Do(req)
	if err != nil {
		return nil, originFailed(err)
	}
	if answered != nil {
		answered(resp.StatusCode == http.StatusOK)
	}
	if resp.StatusCode != http.StatusOK {
		resp.Body.Close()
		return nil, refuse(http.StatusBadGateway, "the origin answered "+strconv.Itoa(resp.StatusCode))
	}
	if enc := resp.Header.Get("Content-Encoding"); enc != "" && !strings.EqualFold(enc, "identity") {
		resp.Body.Close()
		return nil, refuse(http.StatusBadGateway, "the origin sent the blob in an encoding that was not asked for")
	}
	return &fetched{originBody{resp.Body}, resp.ContentLength, resp.Header.Get("Content-Type")}, nil
}

// originFailed says what went wrong without telling what our network looks like from within.
func originFailed(err error) error {
	var ne net.Error
	switch {
	case errors.Is(err, errPrivate):
		return refuse(http.StatusForbidden, errPrivate.Error())
	case errors.Is(err, errURL):
		return refuse(http.StatusBadGateway, "the origin redirects to a URL that is not fetched")
	case errors.As(err, &ne) && ne.Timeout():
		return refuse(http.StatusBadGateway, "the origin did not answer in time")
	}
	return refuse(http.StatusBadGateway, "the origin could not be reached")
}

// originBody turns the errors of an origin's body into answers.
type originBody struct{ io.ReadCloser }

func (b originBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil && err != io.EOF {
		err = refuse(http.StatusBadGateway, "the origin broke off")
	}
	return n, err
}

// Holds asks another server whether it has a blob, with HEAD. An error means that nobody can say: no answer, or one that says neither.
func (f *Fetcher) Holds(ctx context.Context, server string, h Hash) (bool, error) {
	_, holds, err := f.Size(ctx, server, h)
	return holds, err
}

// Size asks another server how long a blob is, with HEAD: -1 if it does not say. holds and err are those of Holds.
func (f *Fetcher) Size(ctx context.Context, server string, h Hash) (size int64, holds bool, err error) {
	u, err := f.ParseURL(strings.TrimRight(server, "/") + "/" + h.String())
	if err != nil {
		return -1, false, err
	}
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodHead, u.String(), nil)
	if err != nil {
		return -1, false, errURL
	}
	req.Header.Set("User-Agent", "meshnode")
	resp, err := f.client.Do(req)
	if err != nil {
		return -1, false, originFailed(err)
	}
	resp.Body.Close()
	switch resp.StatusCode {
	case http.StatusOK:
		return resp.ContentLength, true, nil
	case http.StatusNotFound, http.StatusGone:
		return -1, false, nil
	}
	return -1, false, errors.New("the server answered " + strconv.Itoa(resp.StatusCode))
}
