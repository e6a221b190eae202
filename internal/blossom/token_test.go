package blossom

import (
	"encoding/base64"
	"strconv"
	"strings"
	"testing"

	"fleetmesh.org/fleetmesh/nostr"
)

// TestAuthAttacks tries a token in every way in which it does not hold.
func TestAuthAttacks(t *testing.T) {
	f := serve(t, func(c *Config) { c.PublicURL, c.Hosts = "https://blobs.example.org", []string{"Other.Example:443"} })
	k := key(t)
	const text = "the blob"
	h := hashed(text)
	set := func(name, value string) func(*nostr.Event) {
		return func(e *nostr.Event) { e.Tags = append(e.Tags, nostr.Tag{name, value}) }
	}
	without := func(name string) func(*nostr.Event) {
		return func(e *nostr.Event) {
			var kept []nostr.Tag
			for _, tag := range e.Tags {
				if tag[0] != name {
					kept = append(kept, tag)
				}
			}
			e.Tags = kept
		}
	}
	spoil := func(e *nostr.Event) string {
		c := e.Copy()
		c.Sig[7] ^= 1
		return header(c)
	}
	good := event(t, k, VerbUpload, []Hash{h}, nil)
	padded := "nostr " + base64.StdEncoding.EncodeToString(good.JSON())
	for _, c := range []struct {
		what, auth string
		want       int
	}{
		{"replayed for another hash", token(t, k, VerbUpload, hashed("another")), 401},
		{"replayed for another verb", token(t, k, VerbDelete, h), 401},
		{"for a verb of its own", token(t, k, "upload ", h), 401},
		{"expired", header(event(t, k, VerbUpload, []Hash{h}, func(e *nostr.Event) { e.Tags[1][1] = strconv.Itoa(testNow) })), 401},
		{"without expiration", header(event(t, k, VerbUpload, []Hash{h}, without("expiration"))), 401},
		{"with an expiration that is none", header(event(t, k, VerbUpload, []Hash{h}, func(e *nostr.Event) { e.Tags[1][1] = "soon" })), 401},
		{"without verb", header(event(t, k, VerbUpload, []Hash{h}, without("t"))), 401},
		{"without hashes", token(t, k, VerbUpload), 401},
		{"of another kind", header(event(t, k, VerbUpload, []Hash{h}, func(e *nostr.Event) { e.Kind = 27235 })), 401},
		{"dated ahead", header(event(t, k, VerbUpload, []Hash{h}, func(e *nostr.Event) { e.CreatedAt = testNow + clockSkew + 1 })), 401},
		{"for another server", header(event(t, k, VerbUpload, []Hash{h}, set("server", "evil.example"))), 401},
		{"for a server whose name only begins so", header(event(t, k, VerbUpload, []Hash{h}, set("server", "blobs.example.org.evil.example"))), 401},
		{"with a wrong signature", spoil(good), 401},
		{"with another scheme", strings.Replace(header(good), "Nostr", "Bearer", 1), 401},
		{"that is no base64", "Nostr ****", 401},
		{"that is no event", "Nostr " + base64.RawURLEncoding.EncodeToString([]byte(`{"kind":24242}`)), 401},
		{"that is empty", "Nostr ", 401},
		{"an upper-case hash", header(event(t, k, VerbUpload, nil, set("x", strings.ToUpper(h.String())))), 401},

		{"in order", header(good), 201},
		{"again", header(good), 200},
		{"in plain base64, scheme in lower case", padded, 200},
		{"for this server", header(event(t, k, VerbUpload, []Hash{h}, set("server", "blobs.example.org"))), 200},
		{"for this server's other name", header(event(t, k, VerbUpload, []Hash{h}, set("server", "other.example"))), 200},
		{"for this server's URL", header(event(t, k, VerbUpload, []Hash{h}, set("server", "https://BLOBS.example.org/"))), 200},
	} {
		r := f.ask("PUT", "/upload", []byte(text), "Authorization", c.auth)
		if r.StatusCode != c.want {
			t.Errorf("a token %s: %d (%s), want %d", c.what, r.StatusCode, r.Header.Get("X-Reason"), c.want)
		}
	}
}

// TestDeleteTokenIsNoLastingWeapon: a leaked token deletes what was there when it was made, not what its owner uploads later.
func TestDeleteTokenIsNoLastingWeapon(t *testing.T) {
	f := serve(t, nil)
	k := key(t)
	h := f.put(k, "the blob")
	leaked := token(t, k, VerbDelete, h)
	if r := f.ask("DELETE", "/"+h.String(), nil, "Authorization", leaked); r.StatusCode != 200 {
		t.Fatalf("delete: %d", r.StatusCode)
	}
	f.now += 300
	f.put(k, "the blob")
	if r := f.ask("DELETE", "/"+h.String(), nil, "Authorization", leaked); r.StatusCode != 401 {
		t.Errorf("an old token deletes a new upload: %d", r.StatusCode)
	}
}

func TestHugeHeaders(t *testing.T) {
	f := serve(t, nil)
	long := "Nostr " + strings.Repeat("A", maxToken)
	if r := f.ask("PUT", "/upload", []byte("x"), "Authorization", long); r.StatusCode != 401 {
		t.Errorf("an Authorization header of %d bytes: %d", len(long), r.StatusCode)
	}
	k := key(t)
	many := make([]Hash, 2000)
	for i := range many {
		many[i] = hashed(strconv.Itoa(i))
	}
	if r := f.ask("PUT", "/upload", []byte("1999"), "Authorization", token(t, k, VerbUpload, many...)); r.StatusCode != 201 {
		t.Errorf("a token for 2000 blobs: %d (%s)", r.StatusCode, r.Header.Get("X-Reason"))
	}
	for _, name := range []string{"Range", "If-None-Match", "Content-Type", "X-SHA-256", "If-Range"} {
		if r := f.ask("GET", "/"+hashed("1999").String(), nil, name, strings.Repeat("bytes=0-1,", 9000)); r.StatusCode >= 500 {
			t.Errorf("a huge %s: %d", name, r.StatusCode)
		}
	}
}

func FuzzToken(f *testing.F) {
	k, err := nostr.ParseSecretKey(strings.Repeat("0", 63) + "1")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(token(f, k, VerbUpload, hashed("x")))
	f.Add("Nostr e30")
	f.Add("nostr  =")
	f.Add("Basic x")
	f.Fuzz(func(t *testing.T, s string) {
		tok, e, err := ParseToken(s)
		if (err == nil) != (tok != nil && e != nil) {
			t.Fatalf("%q: %v %v %v", s, tok, e, err)
		}
		if err == nil && tok.Covers(Hash{1}) && len(tok.Hashes) == 0 {
			t.Fatal("covers what it does not list")
		}
	})
}

func FuzzRange(f *testing.F) {
	for _, s := range []string{"bytes=0-", "bytes=-5", "bytes=1-2", "bytes=9223372036854775807-9223372036854775808", "pages=1", "bytes=0-0,1-1", "", "bytes=--1"} {
		f.Add(s, int64(10))
	}
	f.Fuzz(func(t *testing.T, s string, size int64) {
		if size < 0 {
			return
		}
		sp, whole, err := parseRange(s, size)
		if err == nil && !whole && (sp.start < 0 || sp.length <= 0 || sp.start+sp.length > size) {
			t.Fatalf("%q of %d gives %+v", s, size, sp)
		}
	})
}

func FuzzPath(f *testing.F) {
	h := hashed("x").String()
	for _, s := range []string{h, h + ".png", h + ".", "../" + h, h + ".a/b", h + "%00", "blobs/" + h, h + "..", ".", h[:63] + "\x00"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		h, err := parseName(s)
		if err != nil {
			return
		}
		if !strings.HasPrefix(s, h.String()) || strings.ContainsAny(s, "/\\\x00% ") {
			t.Fatalf("%q is taken for %s", s, h)
		}
		if name := blobName(h); len(name) != len("blobs/ab/")+64 || strings.Contains(name, "..") {
			t.Fatalf("%q leads to %q", s, name)
		}
	})
}
