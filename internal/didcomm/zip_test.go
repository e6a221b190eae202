package didcomm

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/klauspost/compress/flate"
)

// wordy is a letter that compresses.
func wordy(n int) *Message {
	m := letter()
	m.Body, _ = json.Marshal(map[string]string{"x": strings.Repeat("of all the ships that ever went to sea ", n/39+1)[:n]})
	return m
}

func TestZipRoundTrip(t *testing.T) {
	w := newTown(t)
	for _, show := range []bool{true, false} {
		for _, n := range []int{0, 10, 250, 3000, 100_000, 1 << 20} {
			m := wordy(n)
			o := PackOptions{From: w.sender(alice), To: []PublicKey{w.public(bob)}, ShowSender: show, Zip: true}
			packed := mustPack(t, m, o)
			u, err := Unpack(packed, w.of(bob), w)
			if err != nil {
				t.Fatalf("%d octets: %v", n, err)
			}
			if !bytes.Equal(u.Message.Body, m.Body) || u.SenderKID != alice+"#agree" || u.SenderHidden == show {
				t.Errorf("%d octets: something else came out", n)
			}
			h, err := Peek(packed)
			if err != nil {
				t.Fatal(err)
			}
			o.Zip = false
			plain := mustPack(t, m, o)
			zipped := n == 250 || n == 3000 // what is short, or shrinks to less than a reader inflates, goes as it is
			if smaller := len(packed) < len(plain); smaller != zipped || show && (h.Zip == ZipDeflate) != zipped {
				t.Errorf("%d octets: %d packed, %d without zip, header %q", n, len(packed), len(plain), h.Zip)
			}
		}
	}
}

// zipped seals what a hostile sender says was compressed.
func zipped(t testing.TB, w *town, body []byte) []byte {
	t.Helper()
	return must(t)(seal(body, w.sender(alice), []PublicKey{w.public(bob)}, ZipDeflate))
}

func deflated(t testing.TB, plain []byte) []byte {
	t.Helper()
	var b bytes.Buffer
	z, err := flate.NewWriter(&b, flate.BestCompression)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := z.Write(plain); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestZipRefuses(t *testing.T) {
	w := newTown(t)
	plain, _ := wordy(3000).JSON()
	good := deflated(t, plain)
	if _, err := Unpack(zipped(t, w, good), w.of(bob), w); err != nil {
		t.Fatal(err)
	}
	noise := bytes.Repeat([]byte{0xa5, 0x5a, 0x13}, MaxEnvelope/3+1)
	for name, body := range map[string][]byte{
		"a bomb":             deflated(t, make([]byte, 8<<20)),
		"33 to one":          deflated(t, bytes.Repeat([]byte(" "), 33*100)),
		"more than 4 MiB":    append(deflatedStored(noise), 0),
		"cut short":          good[:len(good)-4],
		"octets after it":    append(bytes.Clone(good), 0),
		"nothing":            {},
		"not compressed":     plain,
		"compressed as zlib": append([]byte{0x78, 0x9c}, good...),
	} {
		if _, err := inflate(body); err == nil {
			t.Errorf("%s: it inflates", name)
		}
		if len(body) > MaxEnvelope/2 {
			continue // no envelope holds it
		}
		if _, err := Unpack(zipped(t, w, body), w.of(bob), w); !errors.Is(err, ErrOpen) {
			t.Errorf("%s: %v, wanted ErrOpen", name, err)
		}
	}
	anon := must(t)(seal(good, nil, []PublicKey{w.public(bob)}, ZipDeflate))
	if _, err := Unpack(anon, w.of(bob), w); !errors.Is(err, ErrSyntax) {
		t.Errorf("compressed by nobody: %v, wanted ErrSyntax", err)
	}
}

// deflatedStored writes plain in stored blocks: a stream that does not shrink.
func deflatedStored(plain []byte) []byte {
	var b bytes.Buffer
	z, _ := flate.NewWriter(&b, flate.NoCompression)
	_, _ = z.Write(plain)
	_ = z.Close()
	return b.Bytes()
}

// FuzzInflate: whatever comes, what goes out is bounded, and what deflate wrote is read.
func FuzzInflate(f *testing.F) {
	plain, _ := wordy(3000).JSON()
	f.Add(deflated(f, plain))
	f.Add(deflated(f, make([]byte, 1<<20)))
	f.Add(plain)
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		if out, err := inflate(b); err == nil && (len(out) > MaxZipRatio*len(b) || len(out) > MaxEnvelope) {
			t.Fatalf("%d octets became %d", len(b), len(out))
		}
		z := deflate(b)
		if z == nil {
			return
		}
		if out, err := inflate(z); err != nil || !bytes.Equal(out, b) {
			t.Fatalf("deflated and not inflated: %v", err)
		}
	})
}

// zipVector is an envelope with zip, and what opens it.
type zipVector struct {
	About    string          `json:"about"`
	From     JWK             `json:"from"`
	To       JWK             `json:"to"`
	Envelope json.RawMessage `json:"envelope"`
	Message  json.RawMessage `json:"message"`
}

// TestZipVector opens the envelope that other implementations open.
func TestZipVector(t *testing.T) {
	text, err := os.ReadFile("testdata/zip.json")
	if err != nil {
		t.Fatal(err)
	}
	var v zipVector
	if err := json.Unmarshal(text, &v); err != nil {
		t.Fatal(err)
	}
	key, err := v.To.AgreementPrivate()
	if err != nil {
		t.Fatal(err)
	}
	from, err := v.From.AgreementPublic()
	if err != nil {
		t.Fatal(err)
	}
	w := &book{agree: map[string][]PublicKey{DIDOf(v.From.KID): {{v.From.KID, from}}}}
	h, err := Peek(v.Envelope)
	if err != nil || h.Zip != ZipDeflate {
		t.Fatalf("%+v, %v", h, err)
	}
	u, err := Unpack(v.Envelope, Keys{v.To.KID: key}, w)
	if err != nil {
		t.Fatal(err)
	}
	var compact bytes.Buffer // the file is indented
	if err := json.Compact(&compact, v.Message); err != nil {
		t.Fatal(err)
	}
	want, err := ParseMessage(compact.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(u.Message, want) || u.SenderKID != v.From.KID {
		t.Errorf("%+v, want %+v", u.Message, want)
	}
}
