package didcomm

import (
	"crypto/rand"
	"encoding/json"
	"strings"
	"testing"

	"golang.org/x/crypto/nacl/box"
)

// benchSizes are octets of body: a receipt, and a delivery of many events.
var benchSizes = []struct {
	name string
	n    int
}{{"1KiB", 1 << 10}, {"256KiB", 256 << 10}}

func benchLetter(n int) *Message {
	m := letter()
	m.Body, _ = json.Marshal(map[string]string{"x": strings.Repeat("x", n)})
	return m
}

func BenchmarkPack(b *testing.B) {
	w := newTown(b)
	for _, s := range benchSizes {
		m := benchLetter(s.n)
		for name, o := range map[string]PackOptions{
			"authcrypt": {From: w.sender(alice), ShowSender: true}, "hidden": {From: w.sender(alice)}, "anoncrypt": {},
		} {
			o.To = []PublicKey{w.public(bob)}
			b.Run(name+"/"+s.name, func(b *testing.B) {
				b.SetBytes(int64(s.n))
				b.ReportAllocs()
				for b.Loop() {
					if _, err := Pack(m, o); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

func BenchmarkUnpack(b *testing.B) {
	w := newTown(b)
	for _, s := range benchSizes {
		for name, o := range map[string]PackOptions{
			"authcrypt": {From: w.sender(alice), ShowSender: true}, "hidden": {From: w.sender(alice)}, "anoncrypt": {},
		} {
			o.To = []PublicKey{w.public(bob)}
			packed := mustPack(b, benchLetter(s.n), o)
			keys := w.of(bob)
			b.Run(name+"/"+s.name, func(b *testing.B) {
				b.SetBytes(int64(s.n))
				b.ReportAllocs()
				for b.Loop() {
					if _, err := Unpack(packed, keys, w); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

// BenchmarkNaClBox is the yardstick: the same octets with nothing round them.
func BenchmarkNaClBox(b *testing.B) {
	pub, priv, err := box.GenerateKey(rand.Reader)
	if err != nil {
		b.Fatal(err)
	}
	for _, s := range benchSizes {
		msg, nonce := make([]byte, s.n), [24]byte{}
		b.Run("seal/"+s.name, func(b *testing.B) {
			b.SetBytes(int64(s.n))
			for b.Loop() {
				box.Seal(nil, msg, &nonce, pub, priv)
			}
		})
		sealed := box.Seal(nil, msg, &nonce, pub, priv)
		b.Run("open/"+s.name, func(b *testing.B) {
			b.SetBytes(int64(s.n))
			for b.Loop() {
				box.Open(nil, sealed, &nonce, pub, priv)
			}
		})
	}
}
