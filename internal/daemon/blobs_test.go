package daemon

import (
	"context"
	"crypto/sha256"
	"log/slog"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"fleetmesh.org/fleetmesh/internal/blossom"
	"fleetmesh.org/fleetmesh/internal/identity"
	"fleetmesh.org/fleetmesh/internal/store"
	"fleetmesh.org/fleetmesh/nostr"
)

func TestBlobsConfig(t *testing.T) {
	base := string(DefaultConfig("127.0.0.1:7777").YAML())
	if strings.Contains(base, "blobs") {
		t.Error("a fresh configuration speaks of blobs")
	}
	for blobs, want := range map[string]string{
		"{enabled: true, path: blobs, maxBytes: 10, maxBlobBytes: 5}": "",
		"{enabled: true, maxBytes: -1}":                               "negative",
		"{enabled: true, maxBytes: 5, maxBlobBytes: 10}":              "more than maxBytes",
		"{enabled: true, list: all}":                                  "spec.blobs.list",
		"{enabled: true, media: shrink}":                              "spec.blobs.media",
		"{enabled: true, off: [upload]}":                              "spec.blobs.off",
		"{enabled: true, publicUrl: https://a.example/blobs}":         "spec.blobs.publicUrl",
		"{enable: true}":                                              "enable",
		"{enabled: true, s3: {endpoint: s3.example, bucket: b}}":      "spec.blobs.s3.endpoint",
		"{enabled: true, s3: {endpoint: https://s3.example}}":         "spec.blobs.s3.bucket",
	} {
		_, err := ParseConfig([]byte(strings.Replace(base, "  relay:\n", "  blobs: "+blobs+"\n  relay:\n", 1)))
		if (err == nil) != (want == "") || (err != nil && !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v, want %q", blobs, err, want)
		}
	}
}

func TestBlobNeedsItsEvent(t *testing.T) {
	n := &node{store: store.NewMemory(), log: slog.New(slog.DiscardHandler)}
	author, other := newKey(t), newKey(t)
	h := func(s string) blossom.Hash { return sha256.Sum256([]byte(s)) }
	add := func(k nostr.SecretKey, kind nostr.Kind, content string, tags ...nostr.Tag) {
		e := &nostr.Event{Kind: kind, CreatedAt: time.Now().Unix() - 10, Content: content, Tags: tags}
		if err := e.Sign(k); err != nil {
			t.Fatal(err)
		}
		if _, err := n.store.Insert(t.Context(), []*nostr.Event{e}, time.Now().Unix()); err != nil {
			t.Fatal(err)
		}
	}
	add(author, 1, "https://a.example/"+h("in a URL").String()+".png")
	add(author, 1, "a picture", nostr.Tag{"imeta", "url https://a.example/x", "x " + h("in imeta").String()})
	add(other, 1063, "a file", nostr.Tag{"x", h("in x").String()})
	add(other, 1984, "bad", nostr.Tag{"x", h("reported").String(), "spam"})
	for _, c := range []struct {
		blob string
		by   nostr.SecretKey
		want bool
	}{{"in a URL", author, true}, {"in a URL", other, false}, {"in imeta", author, true}, {"in x", author, true}, {"reported", author, false}, {"nowhere", author, false}} {
		if got, err := n.blobHasEvent(t.Context(), h(c.blob), c.by.PubKey()); err != nil || got != c.want {
			t.Errorf("%s: %v %v", c.blob, got, err)
		}
	}
}

func TestBlobErase(t *testing.T) {
	agent, err := identity.NewKeyAgent(newKey(t))
	if err != nil {
		t.Fatal(err)
	}
	b := blobFace{store: blossom.NewMemory(0), flows: map[nostr.PubKey]*BlobFlow{}, answers: newBlobAnswers(t.TempDir())}
	if _, err := b.erase(t.Context(), EraseParams{Blob: strings.Repeat("0", 64)}); err == nil {
		t.Error("a node without a blob face erases")
	}
	if b.server, err = blossom.New(blossom.Config{Store: b.store, Signer: agent}); err != nil {
		t.Fatal(err)
	}
	m, _, err := b.store.Put(context.Background(), strings.NewReader("x"), blossom.Incoming{Size: 1})
	if err != nil {
		t.Fatal(err)
	}
	a, err := b.erase(t.Context(), EraseParams{Blob: m.Hash.CID(), Reason: "takedown", Block: true})
	if err != nil || a.Outcome != blossom.Erased || a.Verify(nostr.NewVerifier()) != nil {
		t.Errorf("%+v %v", a, err)
	}
	for _, bad := range []EraseParams{{Blob: "x"}, {Blob: m.Hash.String(), Event: "ab"}} {
		if _, err := b.erase(t.Context(), bad); err == nil {
			t.Errorf("%+v is taken", bad)
		}
	}
	b.meter(blossom.Flow{In: 3})
	if s, err := b.status(t.Context(), none{}); err != nil || s.Blocked != 1 || len(s.Flows) != 1 || s.Flows[0].In != 3 {
		t.Errorf("%+v %v", s, err)
	}
}

func newKey(t *testing.T) nostr.SecretKey {
	t.Helper()
	k, err := nostr.GenerateKey()
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func TestBlobTrace(t *testing.T) {
	mirror := blossom.NewMemory(0)
	face, err := blossom.New(blossom.Config{Store: mirror})
	if err != nil {
		t.Fatal(err)
	}
	there := httptest.NewServer(face)
	defer there.Close()
	n := &node{store: store.NewMemory(), log: slog.New(slog.DiscardHandler)}
	n.blobs.store, n.blobs.server, n.blobs.fetch = blossom.NewMemory(0), face, blossom.NewFetcher(blossom.FetchConfig{AllowPrivate: true})
	m, _, err := mirror.Put(t.Context(), strings.NewReader("x"), blossom.Incoming{Size: 1})
	if err != nil {
		t.Fatal(err)
	}
	k, now := newKey(t), time.Now().Unix()
	note := &nostr.Event{Kind: 1, CreatedAt: now - 5, Content: "https://a.example/" + m.Hash.String()}
	list := blossom.ServerList([]string{there.URL, "http://127.0.0.1:1"}, now-5)
	for _, e := range []*nostr.Event{note, list} {
		if err := e.Sign(k); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := n.store.Insert(t.Context(), []*nostr.Event{note, list}, now); err != nil {
		t.Fatal(err)
	}
	got, err := n.trace(t.Context(), TraceParams{Event: note.ID.String()})
	if err != nil || len(got) != 3 || got[0].Holds != "no" || got[1].Holds != "yes" || got[2].Holds != "unanswered" || got[2].Cause == "" {
		t.Errorf("%+v %v", got, err)
	}
	if _, err := n.trace(t.Context(), TraceParams{Event: strings.Repeat("0", 64)}); err == nil {
		t.Error("an event that is not held is traced")
	}
}

// TestBlobsGoWithTheirEvents has an author delete one of two events, and then vanish: a blob goes when nothing of its author's names it any
// more, and only its author's part of it.
func TestBlobsGoWithTheirEvents(t *testing.T) {
	agent, err := identity.NewKeyAgent(newKey(t))
	if err != nil {
		t.Fatal(err)
	}
	n := &node{store: store.NewMemory(), log: slog.New(slog.DiscardHandler)}
	n.conf.Store(DefaultConfig("127.0.0.1:0"))
	n.blobs.store, n.blobs.answers = blossom.NewMemory(0), newBlobAnswers(t.TempDir())
	if n.blobs.server, err = blossom.New(blossom.Config{Store: n.blobs.store, Signer: agent}); err != nil {
		t.Fatal(err)
	}
	author, other, now := newKey(t), newKey(t), time.Now().Unix()
	put := func(text string, owners ...nostr.SecretKey) blossom.Hash {
		t.Helper()
		var h blossom.Hash
		for _, k := range owners {
			m, _, err := n.blobs.store.Put(t.Context(), strings.NewReader(text), blossom.Incoming{Size: int64(len(text)), Owner: k.PubKey(), Now: now})
			if err != nil {
				t.Fatal(err)
			}
			h = m.Hash
		}
		return h
	}
	publish := func(k nostr.SecretKey, e *nostr.Event) *nostr.Event {
		t.Helper()
		e.CreatedAt = now
		if err := e.Sign(k); err != nil {
			t.Fatal(err)
		}
		if _, err := n.store.Insert(t.Context(), []*nostr.Event{e}, now); err != nil {
			t.Fatal(err)
		}
		return e
	}
	release := func(e *nostr.Event, reason string, want ...blossom.Hash) {
		t.Helper()
		if err := n.releaseBlobs(t.Context(), e, reason); err != nil {
			t.Fatal(err)
		}
		got, err := n.blobs.erasures(t.Context(), ErasuresParams{Event: e.ID.String()})
		if err != nil || len(got) != len(want) {
			t.Fatalf("%d answers, %v, want %d", len(got), err, len(want))
		}
		for i, a := range got {
			if a.Verify(nostr.NewVerifier()) != nil || a.Outcome != blossom.Erased || a.Reason != reason || !slices.Contains(want, mustHash(t, a.SHA256)) {
				t.Errorf("answer %d: %+v", i, a)
			}
		}
	}
	alone, twice, shared, kept := put("alone", author), put("twice", author), put("shared", author, other), put("kept", author)
	gone := publish(author, &nostr.Event{Kind: 1, Content: "blossom:" + alone.String() + " blossom:" + twice.String() + " blossom:" + shared.String()})
	publish(author, &nostr.Event{Kind: 1, Content: "again blossom:" + twice.String() + " and blossom:" + kept.String()})
	release(publish(author, &nostr.Event{Kind: 5, Tags: []nostr.Tag{{"e", gone.ID.String()}}}), blobDeleted, alone)
	if m, err := n.blobs.store.Stat(t.Context(), shared); err != nil || len(m.Owners) != 1 {
		t.Errorf("what another key owns as well: %+v, %v", m, err)
	}
	release(publish(author, &nostr.Event{Kind: 62, Tags: []nostr.Tag{{"relay", "ALL_RELAYS"}}}), blobVanished, twice, kept)
}

func mustHash(t *testing.T, s string) blossom.Hash {
	t.Helper()
	h, err := blossom.ParseHash(s)
	if err != nil {
		t.Fatal(err)
	}
	return h
}
