package blossom

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strconv"
	"testing"

	"fleetmesh.org/fleetmesh/nostr"
)

const testNow = 1_800_000_000

func key(t testing.TB) nostr.SecretKey {
	t.Helper()
	k, err := nostr.GenerateKey()
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func hashed(s string) Hash { return sha256.Sum256([]byte(s)) }

// event makes a token's event; change may spoil it before it is signed.
func event(t testing.TB, k nostr.SecretKey, verb Verb, hashes []Hash, change func(*nostr.Event)) *nostr.Event {
	t.Helper()
	e := &nostr.Event{Kind: KindToken, CreatedAt: testNow - 5, Content: "a test"}
	e.Tags = []nostr.Tag{{"t", string(verb)}, {"expiration", strconv.Itoa(testNow + 600)}}
	for _, h := range hashes {
		e.Tags = append(e.Tags, nostr.Tag{"x", h.String()})
	}
	if change != nil {
		change(e)
	}
	if err := e.Sign(k); err != nil {
		t.Fatal(err)
	}
	return e
}

func header(e *nostr.Event) string { return "Nostr " + base64.RawURLEncoding.EncodeToString(e.JSON()) }

func token(t testing.TB, k nostr.SecretKey, verb Verb, hashes ...Hash) string {
	t.Helper()
	return header(event(t, k, verb, hashes, nil))
}

type face struct {
	t testing.TB
	*httptest.Server
	blossom *Server
	store   Store
	now     int64
}

// serve starts a face over a memory store; change may set more.
func serve(t testing.TB, change func(*Config)) *face {
	t.Helper()
	f := &face{t: t, now: testNow}
	cfg := Config{Store: NewMemory(0), Now: func() int64 { return f.now }, Log: slog.New(slog.DiscardHandler)}
	if change != nil {
		change(&cfg)
	}
	s, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	f.blossom, f.store = s, cfg.Store
	f.Server = httptest.NewServer(s)
	t.Cleanup(f.Close)
	return f
}

type reply struct {
	*http.Response
	body []byte
}

// ask sends a request. headers come in pairs.
func (f *face) ask(method, path string, body []byte, headers ...string) *reply {
	f.t.Helper()
	var r io.Reader
	if body != nil {
		r = bytes.NewReader(body)
	}
	req, err := http.NewRequest(method, f.URL+path, r)
	if err != nil {
		f.t.Fatal(err)
	}
	for i := 0; i < len(headers); i += 2 {
		if headers[i+1] != "" {
			req.Header.Set(headers[i], headers[i+1])
		}
	}
	resp, err := f.Client().Do(req)
	if err != nil {
		f.t.Fatalf("%s %s: %v", method, path, err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		f.t.Fatalf("%s %s: read: %v", method, path, err)
	}
	return &reply{resp, text}
}

func (r *reply) descriptor(t testing.TB) (d Descriptor) {
	t.Helper()
	if err := json.Unmarshal(r.body, &d); err != nil {
		t.Fatalf("%d %s: %v", r.StatusCode, r.body, err)
	}
	return d
}

// put uploads a text and returns its hash.
func (f *face) put(k nostr.SecretKey, text string) Hash {
	f.t.Helper()
	h := hashed(text)
	if r := f.ask("PUT", "/upload", []byte(text), "Authorization", token(f.t, k, VerbUpload, h)); r.StatusCode > 201 {
		f.t.Fatalf("upload: %d %s", r.StatusCode, r.body)
	}
	return h
}

func newRequest(url string, headers ...string) (*http.Request, error) {
	req, err := http.NewRequest("GET", url, nil)
	for i := 0; i+1 < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	return req, err
}
