package didcomm

import (
	"bytes"
	"crypto/ecdh"
	"crypto/ed25519"
	"encoding/hex"
	"encoding/json"
	"os"
	"testing"

	"fleetmesh.org/fleetmesh/internal/vectors"
)

// hexBytes is octets that the vectors write in hex.
type hexBytes []byte

func (h *hexBytes) UnmarshalText(b []byte) error {
	d, err := hex.DecodeString(string(b))
	*h = d
	return err
}

type wycheTest struct {
	TcID    int      `json:"tcId"`
	Comment string   `json:"comment"`
	Flags   []string `json:"flags"`
	Result  string   `json:"result"`
	Key     hexBytes `json:"key"`
	IV      hexBytes `json:"iv"`
	AAD     hexBytes `json:"aad"`
	Msg     hexBytes `json:"msg"`
	CT      hexBytes `json:"ct"`
	Tag     hexBytes `json:"tag"`
	Sig     hexBytes `json:"sig"`
	Public  hexBytes `json:"public"`
	Private hexBytes `json:"private"`
	Shared  hexBytes `json:"shared"`
}

type wycheGroup struct {
	KeySize   int `json:"keySize"`
	IVSize    int `json:"ivSize"`
	PublicKey struct {
		PK hexBytes `json:"pk"`
	} `json:"publicKey"`
	Tests []wycheTest `json:"tests"`
}

func eachWyche(t *testing.T, file string, do func(*testing.T, *wycheGroup, *wycheTest)) {
	t.Helper()
	b, err := os.ReadFile(vectors.Path(t, "wycheproof", file))
	if err != nil {
		t.Fatal(err)
	}
	var f struct {
		NumberOfTests int          `json:"numberOfTests"`
		TestGroups    []wycheGroup `json:"testGroups"`
	}
	if err := json.Unmarshal(b, &f); err != nil {
		t.Fatal(err)
	}
	n := 0
	for i := range f.TestGroups {
		g := &f.TestGroups[i]
		for j := range g.Tests {
			do(t, g, &g.Tests[j])
			n++
		}
	}
	if n == 0 || n != f.NumberOfTests {
		t.Errorf("%s: ran %d tests of %d", file, n, f.NumberOfTests)
	}
}

func TestWycheproofX25519(t *testing.T) {
	zero := make([]byte, 32)
	eachWyche(t, "x25519_test.json", func(t *testing.T, _ *wycheGroup, c *wycheTest) {
		k, err := ecdh.X25519().NewPrivateKey(c.Private)
		if err != nil {
			t.Fatal(err)
		}
		j := JWK{Kty: "OKP", Crv: "X25519", X: b64.EncodeToString(c.Public)}
		p, err := j.AgreementPublic()
		if err != nil {
			t.Fatalf("%d: %v", c.TcID, err)
		}
		z, err := k.ECDH(p)
		if bytes.Equal(c.Shared, zero) { // contributes nothing: must be refused
			if err == nil {
				t.Errorf("%d %s: an all-zero secret was accepted", c.TcID, c.Comment)
			}
			return
		}
		if err != nil || !bytes.Equal(z, c.Shared) {
			t.Errorf("%d %s: %x, %v, wanted %x", c.TcID, c.Comment, z, err, c.Shared)
		}
	})
}

func TestWycheproofKeyWrap(t *testing.T) {
	eachWyche(t, "aes_wrap_test.json", func(t *testing.T, _ *wycheGroup, c *wycheTest) {
		got, err := unwrapKey(c.Key, c.CT)
		// "acceptable" are keys so short that RFC 3394 does not define them.
		if c.Result != "valid" {
			if err == nil {
				t.Errorf("%d %s: unwrapped", c.TcID, c.Comment)
			}
			return
		}
		if err != nil || !bytes.Equal(got, c.Msg) {
			t.Errorf("%d %s: %x, %v, wanted %x", c.TcID, c.Comment, got, err, c.Msg)
		}
		w, err := wrapKey(c.Key, c.Msg)
		if err != nil || !bytes.Equal(w, c.CT) {
			t.Errorf("%d %s: wrapped to %x, %v", c.TcID, c.Comment, w, err)
		}
	})
}

func TestWycheproofContent(t *testing.T) {
	for file, enc := range map[string]string{
		"a256cbc_hs512_test.json":      EncCBC,
		"xchacha20_poly1305_test.json": EncXC20P,
	} {
		t.Run(enc, func(t *testing.T) {
			eachWyche(t, file, func(t *testing.T, _ *wycheGroup, c *wycheTest) {
				aead, err := contents[enc].aead(c.Key)
				if err != nil {
					t.Fatalf("%d: %v", c.TcID, err)
				}
				if len(c.IV) != aead.NonceSize() || len(c.Tag) != contents[enc].tagSize {
					if c.Result == "valid" {
						t.Errorf("%d %s: nonce of %d or tag of %d octets", c.TcID, c.Comment, len(c.IV), len(c.Tag))
					}
					return // openWith looks at both first
				}
				plain, err := aead.Open(nil, c.IV, append(bytes.Clone(c.CT), c.Tag...), c.AAD)
				if c.Result != "valid" {
					if err == nil {
						t.Errorf("%d %s: opened", c.TcID, c.Comment)
					}
					return
				}
				if err != nil || !bytes.Equal(plain, c.Msg) {
					t.Errorf("%d %s: %x, %v", c.TcID, c.Comment, plain, err)
				}
				if sealed := aead.Seal(nil, c.IV, c.Msg, c.AAD); !bytes.Equal(sealed, append(bytes.Clone(c.CT), c.Tag...)) {
					t.Errorf("%d %s: sealed to %x", c.TcID, c.Comment, sealed)
				}
			})
		})
	}
}

func TestWycheproofEd25519(t *testing.T) {
	eachWyche(t, "ed25519_test.json", func(t *testing.T, g *wycheGroup, c *wycheTest) {
		if ok := verify(ed25519.PublicKey(g.PublicKey.PK), AlgEdDSA, c.Msg, c.Sig); ok != (c.Result == "valid") {
			t.Errorf("%d %s: verified is %v, wanted %s", c.TcID, c.Comment, ok, c.Result)
		}
	})
}
