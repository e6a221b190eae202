package blossom

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"image"
	"image/color"
	"image/jpeg"
	"image/png"
	"slices"
	"strings"
	"testing"

	"fleetmesh.org/fleetmesh/internal/identity"
	"fleetmesh.org/fleetmesh/internal/policy"
	"fleetmesh.org/fleetmesh/nostr"
)

func TestSeveralOwners(t *testing.T) {
	f := serve(t, nil)
	a, b := key(t), key(t)
	h := f.put(a, "shared")
	f.put(b, "shared")
	if r := f.ask("DELETE", "/"+h.String(), nil, "Authorization", token(t, a, VerbDelete, h)); r.StatusCode != 200 || !strings.Contains(string(r.body), `"removed":false`) {
		t.Fatalf("%d %s", r.StatusCode, r.body)
	}
	if r := f.ask("GET", "/"+h.String(), nil); r.StatusCode != 200 {
		t.Fatal("gone with its first owner")
	}
	if r := f.ask("DELETE", "/"+h.String(), nil, "Authorization", token(t, b, VerbDelete, h)); r.StatusCode != 200 || !strings.Contains(string(r.body), `"removed":true`) {
		t.Fatalf("%d %s", r.StatusCode, r.body)
	}
	if r := f.ask("GET", "/"+h.String(), nil); r.StatusCode != 404 {
		t.Fatal("still there after its last owner left")
	}
}

func TestList(t *testing.T) {
	f := serve(t, nil)
	k := key(t)
	var all []string
	for i := range 25 {
		f.now = testNow + int64(i/2) // some at the same second
		all = append(all, f.put(k, fmt.Sprint("blob ", i)).String())
	}
	get := func(query string) (out []Descriptor) {
		r := f.ask("GET", "/list/"+k.PubKey().String()+query, nil)
		if err := json.Unmarshal(r.body, &out); err != nil || r.StatusCode != 200 {
			t.Fatalf("%s: %d %s", query, r.StatusCode, r.body)
		}
		return out
	}
	var paged []string
	for cursor := ""; ; {
		page := get("?limit=7" + cursor)
		if len(page) == 0 {
			break
		}
		for i, d := range page {
			if i > 0 && d.Uploaded > page[i-1].Uploaded {
				t.Error("not the newest first")
			}
			paged = append(paged, d.SHA256)
		}
		cursor = "&cursor=" + paged[len(paged)-1]
	}
	if len(paged) != 25 {
		t.Errorf("%d blobs in pages", len(paged))
	}
	slices.Sort(paged)
	slices.Sort(all)
	if !slices.Equal(paged, all) {
		t.Error("the pages are not the list")
	}
	if n := len(get(fmt.Sprintf("?since=%d&until=%d", testNow+2, testNow+3))); n != 4 {
		t.Errorf("since and until: %d", n)
	}
	if n := len(get("?limit=0")); n != 0 {
		t.Errorf("limit 0: %d", n)
	}
	if r := f.ask("GET", "/list/"+key(t).PubKey().String(), nil); string(r.body) != "[]" {
		t.Errorf("nobody's list: %s", r.body)
	}
}

func TestPrivateFace(t *testing.T) {
	f := serve(t, func(c *Config) { c.List, c.PrivateGet = ListOwner, true })
	a, b := key(t), key(t)
	h := f.put(a, "private")
	for _, c := range []struct {
		path, auth string
		want       int
	}{
		{"/list/" + a.PubKey().String(), "", 401},
		{"/list/" + a.PubKey().String(), token(t, b, VerbList), 403},
		{"/list/" + a.PubKey().String(), token(t, a, VerbGet), 401},
		{"/list/" + a.PubKey().String(), token(t, a, VerbList), 200},
		{"/" + h.String(), "", 401},
		{"/" + h.String(), token(t, b, VerbGet, hashed("other")), 401},
		{"/" + h.String(), token(t, b, VerbGet, h), 200},
		{"/" + h.String(), token(t, b, VerbGet), 200},
		{"/ipfs/" + h.CID(), "", 401},
	} {
		if r := f.ask("GET", c.path, nil, "Authorization", c.auth); r.StatusCode != c.want {
			t.Errorf("%s: %d, want %d", c.path, r.StatusCode, c.want)
		}
	}
}

func TestBlobsNeedAnEvent(t *testing.T) {
	named := map[Hash]bool{hashed("named"): true}
	f := serve(t, func(c *Config) {
		local(c)
		c.HasEvent = func(_ context.Context, h Hash, _ nostr.PubKey) (bool, error) {
			if h == hashed("trouble") {
				return false, errors.New("the store is away")
			}
			return named[h], nil
		}
	})
	k := key(t)
	for text, want := range map[string]int{"named": 201, "unnamed": 403, "trouble": 500} {
		for _, sum := range []string{"", hashed(text).String()} {
			if text == "named" && sum != "" {
				want = 200
			}
			if r := f.ask("PUT", "/upload", []byte(text), "Authorization", token(t, k, VerbUpload, hashed(text)), "X-SHA-256", sum); r.StatusCode != want {
				t.Errorf("%s (%q): %d, want %d", text, sum, r.StatusCode, want)
			}
		}
	}
	origin := serve(t, nil)
	h := origin.put(k, "unnamed")
	if r := f.mirror(k, origin.URL+"/"+h.String(), h); r.StatusCode != 403 {
		t.Errorf("a mirror without an event: %d", r.StatusCode)
	}
}

func TestReport(t *testing.T) {
	var got []Hash
	f := serve(t, func(c *Config) {
		c.Report = func(_ context.Context, _ *nostr.Event, about []Hash) error { got = append(got, about...); return nil }
	})
	k := key(t)
	h := f.put(k, "bad")
	report := func(kind nostr.Kind, spoil bool, tags ...nostr.Tag) int {
		e := &nostr.Event{Kind: kind, CreatedAt: testNow, Tags: tags, Content: "it is bad"}
		if err := e.Sign(k); err != nil {
			t.Fatal(err)
		}
		if spoil {
			e = e.Copy()
			e.Sig[0] ^= 1
		}
		return f.ask("PUT", "/report", e.JSON()).StatusCode
	}
	x := nostr.Tag{"x", h.String(), "malware"}
	for what, c := range map[string]struct{ got, want int }{
		"in order":     {report(1984, false, x, nostr.Tag{"x", hashed("not here").String(), "spam"}), 200},
		"another kind": {report(1, false, x), 400},
		"wrong sig":    {report(1984, true, x), 400},
		"no x":         {report(1984, false), 400},
		"bad x":        {report(1984, false, nostr.Tag{"x", "abc"}), 400},
		"not held":     {report(1984, false, nostr.Tag{"x", hashed("not here").String()}), 404},
		"no event":     {f.ask("PUT", "/report", []byte("{}")).StatusCode, 400},
		"too long":     {f.ask("PUT", "/report", make([]byte, maxReport+1)).StatusCode, 413},
	} {
		if c.got != c.want {
			t.Errorf("%s: %d, want %d", what, c.got, c.want)
		}
	}
	if !slices.Equal(got, []Hash{h}) {
		t.Errorf("handed on: %v", got)
	}
}

func TestAdmitAndMeter(t *testing.T) {
	var flows []Flow
	var asked []Request
	refused := key(t)
	f := serve(t, func(c *Config) {
		c.Meter = func(f Flow) { flows = append(flows, f) }
		c.Admit = func(_ context.Context, r *Request) *Refusal {
			asked = append(asked, *r)
			if r.PubKey == refused.PubKey() {
				return RefusalOf(policy.Reject(policy.RateLimited, "your blob_bytes are used up"))
			}
			return nil
		}
	})
	k := key(t)
	h := f.put(k, "0123456789")
	f.ask("GET", "/"+h.String(), nil, "Authorization", token(t, k, VerbGet))
	f.ask("GET", "/"+h.String(), nil, "Range", "bytes=2-4")
	if r := f.ask("GET", "/"+h.String(), nil, "Authorization", token(t, refused, VerbGet)); r.StatusCode != 429 || r.Header.Get("X-Reason") != "your blob_bytes are used up" {
		t.Errorf("a node over its budget: %d %s", r.StatusCode, r.Header.Get("X-Reason"))
	}
	want := []Flow{{k.PubKey(), 10, 0}, {k.PubKey(), 0, 10}, {nostr.PubKey{}, 0, 3}}
	if !slices.Equal(flows, want) {
		t.Errorf("metered %+v, want %+v", flows, want)
	}
	if len(asked) != 4 || asked[0].Verb != VerbUpload || asked[0].Size != 10 || asked[1].Verb != VerbGet || asked[1].Hash != h {
		t.Errorf("asked %+v", asked)
	}
}

func TestErase(t *testing.T) {
	sg, err := identity.NewKeyAgent(key(t))
	if err != nil {
		t.Fatal(err)
	}
	f := serve(t, func(c *Config) { c.Signer = sg })
	k := key(t)
	h := f.put(k, "to be erased")
	a, err := f.blossom.Erase(t.Context(), Erasure{Hash: h, Event: strings.Repeat("ab", 32), Reason: "deleted", Block: true})
	if err != nil {
		t.Fatal(err)
	}
	if a.Outcome != Erased || a.Size != 12 || a.Owners != 1 || a.CID != h.CID() || !a.Blocked || a.Place != sg.PubKey().String() {
		t.Errorf("%+v", a)
	}
	if err := a.Verify(nostr.NewVerifier()); err != nil {
		t.Error(err)
	}
	for what, change := range map[string]func(*Answer){
		"outcome": func(a *Answer) { a.Outcome = NotHeld }, "hash": func(a *Answer) { a.SHA256 = hashed("x").String() },
		"place": func(a *Answer) { a.Place = key(t).PubKey().String() }, "time": func(a *Answer) { a.At++ }, "sig": func(a *Answer) { a.Sig = "" },
	} {
		b := *a
		if change(&b); b.Verify(nostr.NewVerifier()) == nil {
			t.Errorf("an answer with another %s verifies", what)
		}
	}
	if r := f.ask("GET", "/"+h.String(), nil); r.StatusCode != 403 {
		t.Errorf("erased: %d", r.StatusCode)
	}
	if r := f.ask("PUT", "/upload", []byte("to be erased"), "Authorization", token(t, k, VerbUpload, h)); r.StatusCode != 403 {
		t.Errorf("uploaded again: %d", r.StatusCode)
	}
	if a, err := f.blossom.Erase(t.Context(), Erasure{Hash: hashed("never"), Reason: "takedown"}); err != nil || a.Outcome != NotHeld || a.Verify(nostr.NewVerifier()) != nil {
		t.Errorf("%+v %v", a, err)
	}
	f.store.Close()
	if a, err := f.blossom.Erase(t.Context(), Erasure{Hash: h, Reason: "takedown"}); err == nil || a.Outcome != Failed {
		t.Errorf("a removal that fails: %+v %v", a, err)
	}
}

func TestNamed(t *testing.T) {
	a, b, c, d := hashed("a"), hashed("b"), hashed("c"), hashed("d")
	e := &nostr.Event{Kind: 1, Content: "look: https://cdn.example.org/" + a.String() + ".png, and (blossom:" + b.String() + ".pdf?sz=3) but not " + hashed("z").String(),
		Tags: []nostr.Tag{{"x", c.String()}, {"imeta", "url https://cdn.example.org/" + a.String() + ".png", "x " + d.String()}, {"e", hashed("event").String()}, {"p"}}}
	if got := Named(e); !slices.Equal(got, []Hash{c, a, d, b}) {
		t.Errorf("%v", got)
	}
	e.Kind = kindReport
	if got := Named(e); got != nil {
		t.Errorf("a report names %v", got)
	}
}

func TestServerList(t *testing.T) {
	e := ServerList([]string{"https://a.example", "https://B.example/", "ftp://c.example", "d.example", "https://a.example/x", "http://u@e.example"}, testNow)
	if err := e.Sign(key(t)); err != nil {
		t.Fatal(err)
	}
	if got := Servers(e); !slices.Equal(got, []string{"https://a.example", "https://b.example"}) || e.Kind != KindServerList {
		t.Errorf("%v", got)
	}
}

func picture() image.Image {
	img := image.NewRGBA(image.Rect(0, 0, 33, 17))
	for i := range img.Pix {
		img.Pix[i] = byte(i * 7)
	}
	img.Set(3, 3, color.White)
	return img
}

func TestStrip(t *testing.T) {
	var j, p bytes.Buffer
	if err := jpeg.Encode(&j, picture(), nil); err != nil {
		t.Fatal(err)
	}
	if err := png.Encode(&p, picture()); err != nil {
		t.Fatal(err)
	}
	secret := []byte("48.8583N 2.2945E")
	exif := append([]byte("Exif\x00\x00MM\x00*\x00\x00\x00\x08\x00\x01\x01\x12\x00\x03\x00\x00\x00\x01\x00\x06\x00\x00\x00\x00\x00\x00"), secret...)
	segment := append([]byte{0xff, 0xe1, 0, byte(len(exif) + 2)}, exif...)
	tagged := slices.Concat(j.Bytes()[:2], segment, []byte{0xff, 0xfe, 0, 18}, secret, j.Bytes()[2:], secret)
	out, kind, err := Strip{}.Convert(t.Context(), tagged, "image/jpeg")
	if err != nil || kind != "image/jpeg" || bytes.Contains(out, secret) {
		t.Fatalf("%s %v", kind, err)
	}
	if orientation(out[6:]) != 6 {
		t.Error("the orientation is lost")
	}
	if _, err := jpeg.Decode(bytes.NewReader(out)); err != nil {
		t.Error(err)
	}
	if again, _, err := (Strip{}).Convert(t.Context(), out, "image/jpeg"); err != nil || !bytes.Equal(again, out) {
		t.Errorf("stripping twice differs from once: %v", err)
	}
	text := slices.Concat([]byte{0, 0, 0, byte(len(secret))}, []byte("tEXt"), secret, []byte{0, 0, 0, 0})
	pngTagged := slices.Concat(p.Bytes()[:33], text, p.Bytes()[33:], secret)
	if out, _, err := (Strip{}).Convert(t.Context(), pngTagged, "image/png"); err != nil || !bytes.Equal(out, p.Bytes()) {
		t.Errorf("png: %v", err)
	}
	if _, _, err := (Strip{}).Convert(t.Context(), []byte("GIF89a"), "image/gif"); !errors.Is(err, ErrUnsupported) {
		t.Error(err)
	}
	if _, _, err := (Strip{}).Convert(t.Context(), tagged[:40], "image/jpeg"); !errors.Is(err, ErrMalformed) {
		t.Error(err)
	}
}

func FuzzStrip(f *testing.F) {
	var j, p bytes.Buffer
	_ = jpeg.Encode(&j, picture(), nil)
	_ = png.Encode(&p, picture())
	f.Add(j.Bytes())
	f.Add(p.Bytes())
	f.Add(slices.Concat(j.Bytes()[:2], orientedSegment(3), j.Bytes()[2:]))
	f.Fuzz(func(t *testing.T, in []byte) {
		for _, kind := range []string{"image/jpeg", "image/png"} {
			out, _, err := Strip{}.Convert(context.Background(), in, kind)
			if err == nil && len(out) > len(in)+64 {
				t.Fatalf("%d octets became %d", len(in), len(out))
			}
		}
	})
}

func TestMedia(t *testing.T) {
	f := serve(t, func(c *Config) { c.Media, c.MaxMedia = Strip{}, 10000 })
	k := key(t)
	var p bytes.Buffer
	if err := png.Encode(&p, picture()); err != nil {
		t.Fatal(err)
	}
	in := append(bytes.Clone(p.Bytes()), "location"...)
	h := hashed(string(in))
	auth := token(t, k, VerbMedia, h, hashed("GIF89a"), hashed("\xff\xd8\xff"))
	r := f.ask("PUT", "/media", in, "Authorization", auth, "X-SHA-256", h.String())
	if d := r.descriptor(t); r.StatusCode != 201 || d.SHA256 != hashed(p.String()).String() || d.Type != "image/png" {
		t.Fatalf("%d %+v", r.StatusCode, d)
	}
	for what, c := range map[string]struct {
		body string
		auth string
		sum  string
		want int
	}{
		"again":          {string(in), auth, "", 200},
		"upload's token": {string(in), token(t, k, VerbUpload, h), "", 401},
		"another body":   {"x", auth, h.String(), 409},
		"not covered":    {"x", auth, "", 401},
		"another type":   {"GIF89a", auth, "", 415},
		"broken":         {"\xff\xd8\xff", auth, "", 422},
		"large":          {strings.Repeat("x", 10001), auth, h.String(), 413},
	} {
		if r := f.ask("PUT", "/media", []byte(c.body), "Authorization", c.auth, "X-SHA-256", c.sum); r.StatusCode != c.want {
			t.Errorf("%s: %d %s, want %d", what, r.StatusCode, r.body, c.want)
		}
	}
	if r := f.ask("HEAD", "/media", nil, "Authorization", auth, "X-SHA-256", h.String(), "X-Content-Length", "10"); r.StatusCode != 200 {
		t.Errorf("ask: %d", r.StatusCode)
	}
}

func TestClaims(t *testing.T) {
	f := serve(t, nil)
	h := hashed("x")
	for path, want := range map[string]bool{
		"/": false, "/health": false, "/metrics": false, "/.well-known/did/x": false, "/index.html": false, "/deadbeef": false,
		"/upload": true, "/mirror": true, "/media": true, "/report": true, "/upload/x": false, "/list": false, "/list/" + h.String(): true,
		"/ipfs/" + h.CID(): true, "/" + h.String(): true, "/" + h.String() + ".png": true, "/" + h.String()[:63]: true, "/a/" + h.String(): false,
	} {
		req, _ := newRequest(f.URL + path)
		if got := f.blossom.Claims(req); got != want {
			t.Errorf("%s: %v", path, got)
		}
	}
}
