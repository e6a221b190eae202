package web

import (
	"bufio"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strings"
	"testing"
	"time"
)

func TestEveryAnswerKeepsThePageToItself(t *testing.T) {
	b := newBench(t)
	cookie, _ := b.signIn()
	for _, rec := range []*httptest.ResponseRecorder{b.ask("GET", "/ui/", "", ""), b.ask("GET", "/ui/node", cookie, ""), b.ask("GET", "/ui/none", "", ""), b.ask("POST", "/ui/out", "", "")} {
		h := rec.Header()
		csp := h.Get("Content-Security-Policy")
		if !strings.Contains(csp, "default-src 'none'") || !strings.Contains(csp, "frame-ancestors 'none'") || strings.Contains(csp, "unsafe") || h.Get("X-Frame-Options") != "DENY" ||
			h.Get("X-Content-Type-Options") != "nosniff" || h.Get("Referrer-Policy") != "same-origin" || h.Get("Cache-Control") != "no-store" {
			t.Errorf("%d: headers %v", rec.Code, h)
		}
		for _, bad := range []string{" style=", " onclick=", "<style", "<script>"} {
			if strings.Contains(rec.Body.String(), bad) {
				t.Errorf("the page holds %q, which the policy forbids", bad)
			}
		}
	}
}

func TestCrossSiteRequestsDoNothing(t *testing.T) {
	b := newBench(t)
	cookie, csrf := b.signIn()
	form := url.Values{"did": {"did:nostr:" + peerKey}, "sure": {"yes"}}
	with := func(token string) string {
		f := url.Values{"csrf": {token}}
		f["did"], f["sure"] = form["did"], form["sure"]
		return f.Encode()
	}
	stranger, strangerToken, _ := b.visit()
	for _, c := range []struct {
		name, cookie, body string
		header             []string
	}{
		{"no token", cookie, form.Encode(), nil},
		{"a wrong token", cookie, with(strings.Repeat("0", 64)), nil},
		{"a stranger's token", cookie, with(strangerToken), nil},
		{"another site, with the token", cookie, with(csrf), []string{"Sec-Fetch-Site", "cross-site"}},
		{"a subdomain's page, with the token", cookie, with(csrf), []string{"Sec-Fetch-Site", "same-site"}},
		{"another origin in an old browser", cookie, with(csrf), []string{"Sec-Fetch-Site", "", "Origin", "http://evil.example"}},
		{"nobody", "", with(csrf), nil},
		{"a visitor who has not signed in", stranger, with(strangerToken), nil},
	} {
		rec := b.ask("POST", "/ui/do/peer-end", c.cookie, c.body, c.header...)
		if rec.Code != http.StatusForbidden && rec.Code != http.StatusUnauthorized {
			t.Errorf("%s: %d", c.name, rec.Code)
		}
	}
	if n := b.node.count("peer.end"); n != 0 {
		t.Fatalf("%d peerings were ended", n)
	}
	if rec := b.ask("POST", "/ui/do/peer-end", cookie, with(csrf)); rec.Code != http.StatusSeeOther || b.node.count("peer.end") != 1 {
		t.Errorf("the operator's own request: %d, ended %d", rec.Code, b.node.count("peer.end"))
	}
}

func TestHostileTextStaysText(t *testing.T) {
	b := newBench(t)
	cookie, csrf := b.signIn()
	if rec := b.ask("POST", "/ui/do/sync", cookie, url.Values{"csrf": {csrf}, "url": {"wss://evil.example/" + url.PathEscape(hostile)}, "direction": {hostile}}.Encode()); rec.Code != http.StatusSeeOther {
		t.Fatalf("sync: %d %s", rec.Code, rec.Body)
	}
	pages := map[string]string{}
	for _, path := range []string{"/ui/", "/ui/peers/did:nostr:" + peerKey, "/ui/peers/" + url.PathEscape(hostile), "/ui/log?what=all&peer=" + url.QueryEscape(hostile), "/ui/why?id=" + url.QueryEscape(hostile),
		"/ui/sync", "/ui/node", "/ui/?done=" + url.QueryEscape(hostile)} {
		pages[path] = b.ask("GET", path, cookie, "").Body.String()
	}
	rec := httptest.NewRecorder()
	b.web.Landing().ServeHTTP(rec, httptest.NewRequest("GET", "http://127.0.0.1/", nil))
	pages["/"] = rec.Body.String()
	for path, text := range pages {
		for _, bad := range []string{"<script>window", "<img src=x", "href=\"javascript:", "href=javascript:"} {
			if strings.Contains(text, bad) {
				t.Errorf("%s holds %q", path, bad)
			}
		}
	}
	for _, path := range []string{"/ui/", "/ui/node", "/"} {
		if !strings.Contains(pages[path], "&lt;script&gt;window.pwned=1") {
			t.Errorf("%s does not show the text at all: the test tests nothing", path)
		}
	}
}

func TestStrangersSeeNoPeerAddressOrAgent(t *testing.T) {
	b := newBench(t)
	rec := httptest.NewRecorder()
	b.web.Landing().ServeHTTP(rec, httptest.NewRequest("GET", "http://127.0.0.1/", nil))
	landing := rec.Body.String()
	if !strings.Contains(landing, "12\u202f000") || strings.Contains(landing, "12\u202f345") {
		t.Error("the count of events is not rounded to two figures")
	}
	for _, secret := range []string{"77777", "77\u202f777", "events_in", "bad_subscription"} {
		if strings.Contains(landing, secret) {
			t.Errorf("the landing page tells %q", secret)
		}
	}
	if b.node.count("peer.list")+b.node.count("peer.history")+b.node.count("peer.known") != 0 {
		t.Error("the landing page asked about peers")
	}
	for _, path := range []string{"/ui/peers/did:nostr:" + peerKey, "/ui/log", "/ui/why?id=00", "/ui/sync", "/ui/node", "/ui/live?view=overview"} {
		if rec := b.ask("GET", path, "", ""); rec.Code != http.StatusSeeOther && rec.Code != http.StatusUnauthorized || strings.Contains(rec.Body.String(), peerKey) {
			t.Errorf("%s without a session: %d", path, rec.Code)
		}
	}
}

func TestPathsLeadNowhereElse(t *testing.T) {
	b := newBench(t)
	for _, path := range []string{"/ui/static/../web.go", "/ui/static/..%2fweb.go", "/ui/static/%2e%2e%2f%2e%2e%2fetc%2fpasswd", "/ui/static/page.css%00.js", "/ui/static/", "/ui/static/templates", "/ui/../../etc/passwd", "/ui//etc/passwd"} {
		rec := b.ask("GET", path, "", "")
		if rec.Code == 200 {
			t.Errorf("%s: %d\n%s", path, rec.Code, rec.Body)
		}
	}
	rec := httptest.NewRecorder()
	b.web.Landing().ServeHTTP(rec, httptest.NewRequest("GET", "http://127.0.0.1/..%2f..%2fetc%2fpasswd", nil))
	if rec.Code != 404 {
		t.Errorf("beside the landing page: %d", rec.Code)
	}
}

func TestWrongMethodsAndLargeBodies(t *testing.T) {
	b := newBench(t)
	cookie, csrf := b.signIn()
	for _, c := range []struct{ method, path string }{{"POST", "/ui/log"}, {"PUT", "/ui/in/code"}, {"DELETE", "/ui/"}, {"GET", "/ui/do/peer-end"}, {"GET", "/ui/out"}, {"GET", "/ui/in/code"}} {
		if rec := b.ask(c.method, c.path, cookie, ""); rec.Code != http.StatusMethodNotAllowed {
			t.Errorf("%s %s: %d", c.method, c.path, rec.Code)
		}
	}
	big := strings.Repeat("x", maxBody+1)
	if rec := b.ask("POST", "/ui/do/peer-end", cookie, "csrf="+csrf+"&reason="+big); rec.Code != http.StatusRequestEntityTooLarge {
		t.Errorf("a large form: %d", rec.Code)
	}
	if rec := b.ask("POST", "/ui/in/nostr", cookie, big, "X-CSRF-Token", csrf); rec.Code != http.StatusRequestEntityTooLarge {
		t.Errorf("a large event: %d", rec.Code)
	}
	if rec := b.ask("POST", "/ui/do/node-stop", cookie, "csrf="+csrf); rec.Code != http.StatusNotFound {
		t.Errorf("an action that is none: %d", rec.Code)
	}
	if rec := b.ask("POST", "/ui/do/peer-tier", cookie, "csrf="+csrf); rec.Code != http.StatusNotFound {
		t.Errorf("an action that this node lacks: %d", rec.Code)
	}
}

func TestPlantedCookiesBecomeNoSession(t *testing.T) {
	b := newBench(t)
	planted := b.web.cookie + "=planted-by-somebody-else"
	csrf := b.web.token("planted-by-somebody-else")
	rec := b.ask("POST", "/ui/in/code", planted, url.Values{"csrf": {csrf}, "code": {b.code()}}.Encode())
	session, _ := cookieOf(rec)
	if rec.Code != http.StatusSeeOther || session == "" || session == planted {
		t.Fatalf("sign in: %d, cookie %q", rec.Code, session)
	}
	if rec := b.ask("GET", "/ui/log", planted, ""); rec.Code != http.StatusSeeOther {
		t.Errorf("the planted cookie is signed in: %d", rec.Code)
	}
	// Signing in again ends the session before.
	m := metaCSRF.FindStringSubmatch(b.ask("GET", "/ui/", session, "").Body.String())
	if rec := b.ask("POST", "/ui/in/code", session, url.Values{"csrf": {m[1]}, "code": {b.code()}}.Encode()); rec.Code != http.StatusSeeOther {
		t.Fatalf("sign in again: %d", rec.Code)
	}
	if rec := b.ask("GET", "/ui/log", session, ""); rec.Code != http.StatusSeeOther {
		t.Errorf("the session before lives on: %d", rec.Code)
	}
}

func TestCodesAreNotGuessed(t *testing.T) {
	addr := netip.MustParseAddr("203.0.113.7")
	b := newBench(t, func(c *Config) { c.ClientAddr = func(*http.Request) netip.Addr { return addr } })
	cookie, csrf, _ := b.visit()
	code := b.code()
	try := func(code string) *httptest.ResponseRecorder {
		return b.ask("POST", "/ui/in/code", cookie, url.Values{"csrf": {csrf}, "code": {code}}.Encode())
	}
	for i := range triesAtOnce {
		if rec := try("0000-0000-0000"); rec.Code != http.StatusForbidden {
			t.Fatalf("try %d: %d", i, rec.Code)
		}
	}
	if rec := try(code); rec.Code != http.StatusTooManyRequests || rec.Header().Get("Retry-After") == "" {
		t.Fatalf("the right code after too many tries: %d", rec.Code)
	}
	// The operator, elsewhere, is not locked out, and a code is good once.
	addr = netip.MustParseAddr("198.51.100.1")
	if rec := try(strings.ToLower(strings.ReplaceAll(code, "-", " "))); rec.Code != http.StatusSeeOther {
		t.Errorf("the operator's own try: %d", rec.Code)
	}
	if rec := try(code); rec.Code != http.StatusForbidden {
		t.Errorf("a used code: %d", rec.Code)
	}
	code = b.code()
	b.pass(codeLife)
	if rec := try(code); rec.Code != http.StatusForbidden {
		t.Errorf("an old code: %d", rec.Code)
	}
}

func TestTriesAreBoundedInMemoryAndInAll(t *testing.T) {
	var tr tries
	now := time.Unix(1_790_000_000, 0)
	allowed := 0
	a := netip.MustParseAddr("10.0.0.1")
	for range 4 * maxAddrs {
		if a = a.Next(); tr.allow(a, now) == 0 {
			allowed++
		}
	}
	if len(tr.by) > maxAddrs || allowed != allAtOnce {
		t.Errorf("%d addresses kept, %d tries allowed, want at most %d and %d", len(tr.by), allowed, maxAddrs, allAtOnce)
	}
	if w := tr.allow(netip.MustParseAddr("2001:db8::1"), now.Add(time.Hour)); w != 0 {
		t.Errorf("an hour later: wait %s", w)
	}
}

func TestForeignHostNamesAreTurnedAway(t *testing.T) {
	b := newBench(t, func(c *Config) { c.PublicURLs, c.Hosts = []string{"wss://relay.example.org/x"}, []string{"Node.Local"} })
	for host, want := range map[string]int{
		"evil.example:7777": 421, "relay.example.org.evil.example": 421, "localhost.evil.example": 421, "": 421,
		"127.0.0.1:7777": 200, "[::1]:7777": 200, "localhost:7777": 200, "relay.example.org": 200, "RELAY.example.org:443": 200, "node.local": 200,
	} {
		if rec := b.ask("GET", "/ui/", "", "", "Host", host); rec.Code != want {
			t.Errorf("host %q: %d, want %d", host, rec.Code, want)
		}
	}
}

func TestLivePagesAreBoundedAndEndWithTheSession(t *testing.T) {
	b := newBench(t)
	cookie, csrf := b.signIn()
	server := httptest.NewServer(b.web)
	defer server.Close()
	open := func() *http.Response {
		r, err := http.NewRequestWithContext(t.Context(), "GET", server.URL+"/ui/live?view=overview", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Cookie", cookie)
		resp, err := server.Client().Do(r)
		if err != nil {
			t.Fatal(err)
		}
		return resp
	}
	var streams []*http.Response
	for range maxStreamsPerSession {
		resp := open()
		defer resp.Body.Close()
		if resp.StatusCode != 200 || resp.Header.Get("Content-Type") != "text/event-stream" {
			t.Fatalf("a live page: %d", resp.StatusCode)
		}
		streams = append(streams, resp)
	}
	if resp := open(); resp.StatusCode != http.StatusTooManyRequests {
		t.Errorf("one page too many: %d", resp.StatusCode)
	}
	lines := bufio.NewScanner(streams[0].Body)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() && !strings.HasPrefix(lines.Text(), "data: ") {
	}
	if !strings.HasPrefix(lines.Text(), `data: {`) || strings.Contains(lines.Text(), "<script>") {
		t.Fatalf("the first message: %.200s", lines.Text())
	}
	if rec := b.ask("POST", "/ui/do/sign-out-all", cookie, "csrf="+csrf); rec.Code != http.StatusSeeOther {
		t.Fatalf("sign everybody out: %d", rec.Code)
	}
	over := false
	for lines.Scan() {
		over = over || lines.Text() == "event: over"
	}
	if !over {
		t.Error("the live page was not told that the session is over")
	}
}

func TestSyncsAreBoundedAndStop(t *testing.T) {
	b := newBench(t)
	cookie, csrf := b.signIn()
	begin := func() int {
		return b.ask("POST", "/ui/do/sync", cookie, url.Values{"csrf": {csrf}, "url": {"wss://relay.example.org"}, "direction": {"pull"}}.Encode()).Code
	}
	for range maxRunning {
		if code := begin(); code != http.StatusSeeOther {
			t.Fatalf("begin: %d", code)
		}
	}
	if code := begin(); code != http.StatusUnprocessableEntity {
		t.Errorf("one sync too many: %d", code)
	}
	b.web.Close() // it ends what is under way, and waits for it
	for _, j := range b.web.jobs.list() {
		if j.Ended == 0 || j.Failure != "stopped" {
			t.Errorf("a sync after Close: %+v", j)
		}
	}
	if code := begin(); code != http.StatusUnprocessableEntity {
		t.Errorf("a sync of a page that is closed: %d", code)
	}
}
