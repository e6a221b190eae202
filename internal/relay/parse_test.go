package relay

import (
	"net/http"
	"net/http/httptest"
	"net/netip"
	"testing"
	"unicode/utf8"
)

func TestWantsInfo(t *testing.T) {
	for accept, want := range map[string]bool{
		"application/nostr+json":                    true,
		"Application/Nostr+JSON; charset=utf-8":     true,
		"text/html;q=0.5, application/nostr+json":   true,
		"text/html, application/nostr+json":         true,
		"text/html, application/nostr+json;q=0.9":   false,
		"application/nostr+json;q=0":                false,
		"application/nostr+json;q=zero":             false,
		"text/html,application/xhtml+xml,*/*;q=0.8": false,
		"*/*": false,
		"":    false,
		"application/json, application/nostr+json;q=0.1, */* ": true,
	} {
		if got := wantsInfo([]string{accept}); got != want {
			t.Errorf("%q: %v, want %v", accept, got, want)
		}
	}
}

func TestPeek(t *testing.T) {
	for text, want := range map[string][2]string{
		`["EVENT",{"id":"x"}]`:    {"EVENT", ""},
		` [ "REQ" , "sub" , {} ]`: {"REQ", "sub"},
		`["REQ","a\"b",{}]`:       {"REQ", ""},
		`["REQ"]`:                 {"REQ", ""},
		`["REQ",""]`:              {"REQ", ""},
		`[1]`:                     {"", ""},
		`{}`:                      {"", ""},
		``:                        {"", ""},
		`["`:                      {"", ""},
	} {
		label, rest := peekLabel([]byte(text))
		sub, _ := peekString(rest)
		if label != want[0] || sub != want[1] {
			t.Errorf("%s: %q %q, want %q", text, label, sub, want)
		}
	}
}

func FuzzPeek(f *testing.F) {
	f.Add([]byte(`["REQ","sub",{}]`))
	f.Add([]byte(`[ "EVENT" , {"id":"x"}]`))
	f.Fuzz(func(t *testing.T, p []byte) {
		label, rest := peekLabel(p)
		sub, ok := peekString(rest)
		if ok && (sub == "" || len(label)+len(sub) > len(p)) {
			t.Errorf("%q: %q %q", p, label, sub)
		}
	})
}

func FuzzAccept(f *testing.F) {
	f.Add("text/html;q=0.5, application/nostr+json")
	f.Add("a;q=;q=1,,;")
	f.Fuzz(func(_ *testing.T, s string) { wantsInfo([]string{s}) })
}

func FuzzForwardedFor(f *testing.F) {
	f.Add("192.0.2.1, 10.0.0.1", "10.0.0.2:80")
	f.Add("[2001:db8::1]:5, unknown, ::ffff:10.0.0.1", "[::1]:80")
	trusted := []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("::1/128")}
	f.Fuzz(func(_ *testing.T, xff, remote string) {
		req := httptest.NewRequest(http.MethodGet, "/", nil)
		req.RemoteAddr = remote
		req.Header["X-Forwarded-For"] = []string{xff}
		clientAddr(req, trusted)
	})
}

func TestCut(t *testing.T) {
	s := "aé€😀"
	for n := range len(s) + 2 {
		if got := cut(s, n); len(got) > n || !utf8.ValidString(got) {
			t.Errorf("cut to %d: %q", n, got)
		}
	}
}
