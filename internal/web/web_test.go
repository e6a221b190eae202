package web

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"fleetmesh.org/fleetmesh/internal/control"
	"fleetmesh.org/fleetmesh/nostr"
)

// hostile stands in every text that a stranger may choose.
const hostile = `"><script>window.pwned=1</script><img src=x onerror=window.pwned=1>'`

// stub is a node that answers from a table and remembers what was called.
type stub struct {
	control.Local
	mu     sync.Mutex
	called []string
}

func (s *stub) Call(ctx context.Context, method string, params, result any, onStep func(json.RawMessage)) error {
	s.mu.Lock()
	text, _ := json.Marshal(params)
	s.called = append(s.called, method+" "+string(text))
	s.mu.Unlock()
	return s.Local.Call(ctx, method, params, result, onStep)
}

func (s *stub) count(method string) (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.called {
		if strings.HasPrefix(c, method+" ") {
			n++
		}
	}
	return n
}

func says(text string) control.Handler {
	return func(context.Context, json.RawMessage, func(any)) (any, error) { return json.RawMessage(text), nil }
}

func quote(s string) string {
	b, _ := json.Marshal(s)
	return string(b)
}

var operatorKey = func() (k nostr.SecretKey) { k[31] = 9; return k }()

const peerKey = "c6047f9441ed7d6d3045406e95c07cd85c778e4b8cef3ca7abac09b95c709ee5"

// hostileNode answers with hostile text wherever somebody else may write.
func hostileNode() *stub {
	h := quote(hostile)
	budget := `{"grant":` + h + `,"tier":"member","window_seconds":3600,"epoch":5,"limits":{"events_in":100,"bytes_in":1000},"used":{"events_in":50}}`
	window := `{"window":4,"at":1700000000,"severity":` + h + `,"measured":{"events_in":50},"claimed":{"events_in":40},"limits":{"events_in":100},"receipts":2,"limit":` + h
	return &stub{Local: control.Local{
		"relay.info":  says(`{"document":{"name":` + h + `,"description":` + h + `,"contact":` + h + `,"version":` + h + `,"software":"javascript:alert(1)","terms_of_service":"javascript:alert(1)","supported_nips":[1,11]},"urls":[]}`),
		"node.id":     says(`{"did":"did:nostr:` + peerKey + `","operator":"` + operatorKey.PubKey().String() + `","class":` + h + `,"endpoints":[{"scheme":` + h + `,"address":` + h + `}],"relays":[` + h + `],"digest":` + h + `}`),
		"node.status": says(`{"did":"did:nostr:` + peerKey + `","class":` + h + `,"enrolment":` + h + `,"store":{"events":12345,"bytes":99},"relaying":{"open_connections":77777,"bad_subscription_ids_by_agent":{` + h + `:3}}}`),
		"manifest.get": says(`{"hash":` + h + `,"in_force":{"spec":{"relay":{"name":` + h + `,"limits":{"maxLimit":7}},"storage":{"dsn":"postgres://secret"},"operator":{"policyUrl":"javascript:alert(1)"}}},"pending":[{"key":` + h + `,"why":` + h + `}],"drift":[{"object":` + h + `,"key":` + h +
			`}],"applied":[{"object":{"kind":"Peering","metadata":{"name":` + h + `},"spec":{"peer":"did:nostr:` + peerKey + `"}}}]}`),
		"peer.list": says(`[{"key":"` + peerKey + `","stage":"active","tier":` + h + `,"worst_severity":` + h + `,"wants":[{"shard":` + h + `,"filter":{"#t":[` + h + `]},"mode":"pull"}],"issued":` + budget + `,"held":` + budget +
			`,"windows":[` + window + `}],"receipts":[{"way":` + h + `,"head":` + h + `}],"schema_digest":` + h + `}]`),
		"peer.windows": says(`[` + window + `,"lines":[{"limit":` + h + `,"severity":"S1","steps":[` + h + `]}],"rules":[` + h + `],"counted":"S0"}]`),
		"peer.history": says(`[{"at":1700000000,"peer":` + h + `,"what":` + h + `,"code":` + h + `,"detail":` + h + `,"severity":` + h + `}]`),
		"peer.known":   says(`[{"did":` + h + `,"class":` + h + `,"learned_from":` + h + `}]`),
		"why.event":    says(`{"held":false,"refused":` + h + `,"refused_at":1,"origin":{"from":` + h + `,"grant":` + h + `,"path":[{"node":` + h + `,"at":1}]}}`),
		"node.load":    says(`{"declared":{"bytes_in":100},"used":{"bytes_in":50},"percent":50,"counter":` + h + `,"rungs":[` + h + `],"depends_on":` + h + `,"strain":[{"side":` + h + `,"name":` + h + `,"events":2,"last":1}]}`),
		"peer.end":     says(`{}`),
		"peer.add":     says(`{}`),
		"relay.sync": func(ctx context.Context, _ json.RawMessage, notify func(any)) (any, error) {
			notify(map[string]any{"fetched": 3, "summary": hostile})
			<-ctx.Done()
			return nil, ctx.Err()
		},
	}}
}

// bench is a page under test, with a clock that stands until it is moved.
type bench struct {
	t    *testing.T
	web  *Web
	node *stub
	mu   sync.Mutex
	now  time.Time
}

func newBench(t *testing.T, change ...func(*Config)) *bench {
	b := &bench{t: t, node: hostileNode(), now: time.Unix(1_790_000_000, 0)}
	cfg := Config{Node: b.node, Clock: func() time.Time { b.mu.Lock(); defer b.mu.Unlock(); return b.now }}
	for _, c := range change {
		c(&cfg)
	}
	b.web = New(cfg)
	for name, f := range map[string]func() any{
		"page.code":     func() any { return b.web.MakeCode("http://127.0.0.1:7777") },
		"page.sessions": func() any { return b.web.SignIns() },
		"page.end":      func() any { return b.web.SignOutAll() },
	} {
		b.node.Local[name] = func(context.Context, json.RawMessage, func(any)) (any, error) { return f(), nil }
	}
	t.Cleanup(b.web.Close)
	return b
}

func (b *bench) pass(d time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.now = b.now.Add(d)
}

// ask sends one request with a cookie and headers, name and value in turn.
func (b *bench) ask(method, path, cookie, body string, header ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, "http://127.0.0.1:7777"+path, strings.NewReader(body))
	if method == http.MethodPost {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		r.Header.Set("Sec-Fetch-Site", "same-origin")
	}
	if cookie != "" {
		r.Header.Set("Cookie", cookie)
	}
	for i := 0; i+1 < len(header); i += 2 {
		if header[i] == "Host" {
			r.Host = header[i+1]
		} else {
			r.Header.Set(header[i], header[i+1])
		}
	}
	rec := httptest.NewRecorder()
	b.web.ServeHTTP(rec, r)
	return rec
}

var metaCSRF = regexp.MustCompile(`<meta name="csrf" content="([0-9a-f]{64})">`)
var metaChallenge = regexp.MustCompile(`<meta name="challenge" content="([^"]+)">`)

func cookieOf(rec *httptest.ResponseRecorder) (pair string, c *http.Cookie) {
	for _, c := range rec.Result().Cookies() {
		if c.MaxAge > 0 {
			return c.Name + "=" + c.Value, c
		}
	}
	return "", nil
}

// visit opens the sign-in page as a browser that was never here.
func (b *bench) visit(header ...string) (cookie, csrf, challenge string) {
	b.t.Helper()
	rec := b.ask("GET", "/ui/", "", "", header...)
	cookie, _ = cookieOf(rec)
	token, nonce := metaCSRF.FindStringSubmatch(rec.Body.String()), metaChallenge.FindStringSubmatch(rec.Body.String())
	if rec.Code != 200 || cookie == "" || token == nil || nonce == nil {
		b.t.Fatalf("the sign-in page: %d, cookie %q\n%s", rec.Code, cookie, rec.Body)
	}
	return cookie, token[1], nonce[1]
}

func (b *bench) code() string {
	b.t.Helper()
	var c Code
	if err := b.node.Local.Call(b.t.Context(), "page.code", nil, &c, nil); err != nil {
		b.t.Fatal(err)
	}
	return c.Code
}

// signIn is an operator's browser with a session.
func (b *bench) signIn() (cookie, csrf string) {
	b.t.Helper()
	before, token, _ := b.visit()
	rec := b.ask("POST", "/ui/in/code", before, url.Values{"csrf": {token}, "code": {b.code()}}.Encode())
	cookie, _ = cookieOf(rec)
	if rec.Code != http.StatusSeeOther || cookie == "" || cookie == before {
		b.t.Fatalf("sign in by code: %d, cookie %q before %q\n%s", rec.Code, cookie, before, rec.Body)
	}
	m := metaCSRF.FindStringSubmatch(b.ask("GET", "/ui/", cookie, "").Body.String())
	if m == nil {
		b.t.Fatal("no token on the overview")
	}
	return cookie, m[1]
}

func TestSignInAndOut(t *testing.T) {
	b := newBench(t)
	cookie, csrf := b.signIn()
	for _, path := range []string{"/ui/", "/ui/peers/did:nostr:" + peerKey, "/ui/log", "/ui/log?what=all", "/ui/why", "/ui/why?id=ab", "/ui/sync", "/ui/node"} {
		if rec := b.ask("GET", path, cookie, ""); rec.Code != 200 || strings.Contains(rec.Body.String(), "could not be shown") {
			t.Errorf("%s: %d", path, rec.Code)
		}
	}
	if rec := b.ask("GET", "/ui/peers/did:nostr:00", cookie, ""); rec.Code != 404 {
		t.Errorf("an unknown peer: %d", rec.Code)
	}
	var list []Session
	if err := b.node.Local.Call(t.Context(), "page.sessions", nil, &list, nil); err != nil || len(list) != 1 || list[0].How != "code" {
		t.Errorf("sessions %+v, %v", list, err)
	}
	if rec := b.ask("POST", "/ui/out", cookie, "csrf="+csrf); rec.Code != http.StatusSeeOther {
		t.Errorf("sign out: %d", rec.Code)
	}
	if rec := b.ask("GET", "/ui/log", cookie, ""); rec.Code != http.StatusSeeOther {
		t.Errorf("after signing out: %d, want a way to the sign-in", rec.Code)
	}
}

func TestASessionEndsAfterTwelveHours(t *testing.T) {
	b := newBench(t)
	cookie, _ := b.signIn()
	b.pass(sessionLife - time.Second)
	if rec := b.ask("GET", "/ui/log", cookie, ""); rec.Code != 200 {
		t.Errorf("a second before its end: %d", rec.Code)
	}
	b.pass(time.Second)
	if rec := b.ask("GET", "/ui/log", cookie, ""); rec.Code != http.StatusSeeOther {
		t.Errorf("at its end: %d", rec.Code)
	}
}

func TestCookieIsForThisHostAndNoScript(t *testing.T) {
	b := newBench(t, func(c *Config) { c.PublicURLs = []string{"wss://relay.example.org"} })
	_, plain := cookieOf(b.ask("GET", "/ui/", "", ""))
	_, tls := cookieOf(b.ask("GET", "/ui/", "", "", "Host", "relay.example.org"))
	for _, c := range []*http.Cookie{plain, tls} {
		if c == nil || !c.HttpOnly || c.SameSite != http.SameSiteStrictMode || c.Path != "/" || c.Domain != "" {
			t.Fatalf("cookie %+v", c)
		}
	}
	if plain.Secure || !tls.Secure || !strings.HasPrefix(tls.Name, "__Host-") {
		t.Errorf("over HTTP %+v, over TLS %+v", plain, tls)
	}
}

// loginEvent is what an extension signs.
func loginEvent(t *testing.T, b *bench, challenge string, change func(*nostr.Event)) string {
	t.Helper()
	e := &nostr.Event{Kind: kindHTTPAuth, CreatedAt: b.web.now().Unix(), Tags: []nostr.Tag{
		{"u", "http://127.0.0.1:7777/ui/in/nostr"}, {"method", "POST"}, {"challenge", challenge}}}
	key := operatorKey
	if change != nil {
		change(e)
	}
	if e.Content == "as another" {
		key[31]++
	}
	if err := e.Sign(key); err != nil {
		t.Fatal(err)
	}
	return string(e.JSON())
}

func TestSignInByEventIsForThisBrowserAddressAndTimeAndOnce(t *testing.T) {
	b := newBench(t)
	cookie, csrf, challenge := b.visit()
	other, otherToken, _ := b.visit()
	send := func(cookie, csrf, event string) *httptest.ResponseRecorder {
		b.pass(time.Minute / 4) // within the allowance of tries
		return b.ask("POST", "/ui/in/nostr", cookie, event, "X-CSRF-Token", csrf)
	}
	good := loginEvent(t, b, challenge, nil)
	for _, c := range []struct{ name, cookie, csrf, event string }{
		{"another key", cookie, csrf, loginEvent(t, b, challenge, func(e *nostr.Event) { e.Content = "as another" })},
		{"another kind", cookie, csrf, loginEvent(t, b, challenge, func(e *nostr.Event) { e.Kind = 1 })},
		{"another address", cookie, csrf, loginEvent(t, b, challenge, func(e *nostr.Event) { e.Tags[0][1] = "http://evil.example/ui/in/nostr" })},
		{"another method", cookie, csrf, loginEvent(t, b, challenge, func(e *nostr.Event) { e.Tags[1][1] = "GET" })},
		{"another time", cookie, csrf, loginEvent(t, b, challenge, func(e *nostr.Event) { e.CreatedAt -= 600 })},
		{"two addresses", cookie, csrf, loginEvent(t, b, challenge, func(e *nostr.Event) { e.Tags = append(e.Tags, nostr.Tag{"u", "http://evil.example"}) })},
		{"no challenge", cookie, csrf, loginEvent(t, b, "", nil)},
		{"a forged challenge", cookie, csrf, loginEvent(t, b, "9999999999.AAAA."+strings.Repeat("0", 64), nil)},
		{"no event", cookie, csrf, "{}"},
		{"another browser", other, otherToken, good},
	} {
		if rec := send(c.cookie, c.csrf, c.event); rec.Code != http.StatusForbidden || strings.Contains(rec.Header().Get("Set-Cookie"), "=") {
			t.Errorf("%s: %d %s", c.name, rec.Code, rec.Body)
		}
	}
	// The challenge ran out meanwhile; a new one is good once.
	if rec := send(cookie, csrf, good); rec.Code != http.StatusForbidden {
		t.Errorf("a late event: %d", rec.Code)
	}
	cookie, csrf, challenge = b.visit()
	good = loginEvent(t, b, challenge, nil)
	rec := send(cookie, csrf, good)
	if session, _ := cookieOf(rec); rec.Code != 200 || session == "" || session == cookie {
		t.Fatalf("a good event: %d %s", rec.Code, rec.Body)
	}
	if rec := send(cookie, csrf, good); rec.Code != http.StatusForbidden {
		t.Errorf("the same event again: %d", rec.Code)
	}
}

func TestFormats(t *testing.T) {
	for _, c := range []struct{ got, want string }{
		{number(0), "0"}, {number(-1234567), "-1\u202f234\u202f567"}, {size(1023), "1023\u00a0B"}, {size(1024), "1.0\u00a0KiB"}, {size(33554432), "32.0\u00a0MiB"}, {size(1 << 62), "4096\u00a0PiB"},
		{span(59), "59\u00a0s"}, {span(3600), "1\u00a0h"}, {span(90061), "1\u00a0d 1\u00a0h"}, {short("did:nostr:" + peerKey), "c6047f94…709ee5"},
		{fmt.Sprint(percent(1, 0), percent(0, 0), percent(1<<53, 1), percent(50, 100)), "999 0 999 50"}, {fmt.Sprint(coarse(98), coarse(12345)), "98 12000"},
	} {
		if c.got != c.want {
			t.Errorf("%q, want %q", c.got, c.want)
		}
	}
}
