package nostr

import (
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"strings"
)

// NormalizeRelayURL brings a relay's URL into one form: scheme and host in
// lower case, no default port, a path without slash at the end unless it is all of
// the path, no fragment. The scheme must be ws or wss (http and https are read as
// those). It is pure: no name is looked up.
func NormalizeRelayURL(s string) (string, error) {
	u, err := parseRelayURL(s)
	if err != nil {
		return "", err
	}
	return u.String(), nil
}

var defaultPort = map[string]string{"ws": "80", "wss": "443"}

func parseRelayURL(s string) (*url.URL, error) {
	u, err := url.Parse(strings.TrimSpace(s))
	if err != nil {
		return nil, errors.New("relay url: not a URL")
	}
	switch strings.ToLower(u.Scheme) {
	case "ws", "http":
		u.Scheme = "ws"
	case "wss", "https":
		u.Scheme = "wss"
	default:
		return nil, fmt.Errorf("relay url: scheme %.10q is neither ws nor wss", u.Scheme)
	}
	host := strings.TrimSuffix(strings.ToLower(u.Hostname()), ".")
	if u.User != nil || u.Opaque != "" {
		return nil, errors.New("relay url: a user name, or no //")
	}
	if !validHost(host) {
		return nil, errors.New("relay url: neither a host name nor an address")
	}
	port := u.Port()
	if strings.Contains(host, ":") {
		host = "[" + host + "]"
	}
	u.Host = host
	if port != "" && port != defaultPort[u.Scheme] {
		u.Host += ":" + port
	}
	u.Path = strings.TrimRight(u.Path, "/")
	if u.Path == "" {
		u.Path = "/"
	}
	u.RawPath = ""
	u.Fragment, u.RawFragment = "", ""
	u.ForceQuery = false
	u.RawQuery = escapeQuery(u.RawQuery)
	return u, nil
}

// escapeQuery escapes what may not stand in a URL as it is.
func escapeQuery(s string) string {
	var out []byte
	for _, c := range []byte(s) {
		if c <= ' ' || c >= 0x7f {
			out = append(out, '%', "0123456789ABCDEF"[c>>4], "0123456789ABCDEF"[c&15])
		} else {
			out = append(out, c)
		}
	}
	return string(out)
}

// validHost takes names of letters, digits, hyphens, dots and underscores, and IP
// addresses without zone.
func validHost(host string) bool {
	if strings.Contains(host, ":") {
		a, err := netip.ParseAddr(host)
		return err == nil && a.Zone() == ""
	}
	for _, c := range []byte(host) {
		if !isLetter(c) && c-'0' > 9 && c != '-' && c != '.' && c != '_' {
			return false
		}
	}
	return !strings.Contains("."+host+".", "..")
}

// SameRelay tells whether two URLs name the same relay for the relay tag of
// NIP-42: equal after normalisation, leaving scheme and query aside. (A relay behind
// a proxy may be spoken to by another scheme than it declares.) Host, port and path count.
func SameRelay(a, b string) bool {
	ua, err := parseRelayURL(a)
	if err != nil {
		return false
	}
	ub, err := parseRelayURL(b)
	if err != nil {
		return false
	}
	return effectiveHost(ua) == effectiveHost(ub) && ua.Path == ub.Path
}

// effectiveHost is host and port for comparison, the default port spelled out.
func effectiveHost(u *url.URL) string {
	port := u.Port()
	if port == "" {
		port = defaultPort[u.Scheme]
	}
	return u.Hostname() + " " + port
}
