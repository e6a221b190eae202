package schnorr

import (
	"bytes"
	"encoding/csv"
	"encoding/hex"
	"math/rand/v2"
	"os"
	"testing"

	"github.com/btcsuite/btcd/btcec/v2"
	btc "github.com/btcsuite/btcd/btcec/v2/schnorr"

	"fleetmesh.org/fleetmesh/internal/vectors"
)

// TestSignOfficialVectors signs what BIP-340's vectors sign, octet by octet alike, on every path.
func TestSignOfficialVectors(t *testing.T) {
	text, err := os.ReadFile(vectors.Path(t, "bip340", "test-vectors.csv"))
	if err != nil {
		t.Fatal(err)
	}
	rows, err := csv.NewReader(bytes.NewReader(text)).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	eachPath(t, func(t *testing.T) {
		signed := 0
		for _, row := range rows[1:] {
			secret, _ := hex.DecodeString(row[1])
			aux, _ := hex.DecodeString(row[3])
			msg, _ := hex.DecodeString(row[4])
			if len(secret) != 32 || len(msg) != 32 {
				continue
			}
			s, ok := NewSigner((*[32]byte)(secret))
			if !ok {
				t.Fatalf("row %s: the key is refused", row[0])
			}
			sig, pub := s.Sign((*[32]byte)(msg), (*[32]byte)(aux)), s.PubKey()
			if got := hex.EncodeToString(sig[:]); !bytes.EqualFold([]byte(got), []byte(row[5])) || !bytes.EqualFold([]byte(hex.EncodeToString(pub[:])), []byte(row[2])) {
				t.Errorf("row %s: signature %s by %x, want %s by %s", row[0], got, pub, row[5], row[2])
			}
			signed++
		}
		if signed < 4 {
			t.Errorf("only %d rows sign 32 bytes", signed)
		}
	})
}

// TestSignLikeBtcec compares with another implementation: the same key, message and auxiliary octets give the same signature.
func TestSignLikeBtcec(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	draw := func() (b [32]byte) {
		for i := range b {
			b[i] = byte(r.Uint32())
		}
		return b
	}
	for range 300 {
		secret, msg, aux := draw(), draw(), draw()
		s, ok := NewSigner(&secret)
		if !ok {
			continue
		}
		priv, _ := btcec.PrivKeyFromBytes(secret[:])
		want, err := btc.Sign(priv, msg[:], btc.CustomNonce(aux), btc.FastSign())
		if err != nil {
			t.Fatal(err)
		}
		if got := s.Sign(&msg, &aux); !bytes.Equal(got[:], want.Serialize()) {
			t.Fatalf("key %x, message %x, aux %x: %x, want %x", secret, msg, aux, got, want.Serialize())
		}
	}
}

func TestSignerKeys(t *testing.T) {
	var zero, n [32]byte
	n = order.bytes()
	for _, k := range [][32]byte{zero, n, {0xff, 31: 0xff}} {
		if k == ([32]byte{0xff, 31: 0xff}) {
			for i := range k {
				k[i] = 0xff
			}
		}
		if _, ok := NewSigner(&k); ok {
			t.Errorf("%x is taken as a key", k)
		}
	}
}

func BenchmarkSign(b *testing.B) {
	secret, msg, aux := [32]byte{31: 7}, [32]byte{1}, [32]byte{}
	s, _ := NewSigner(&secret)
	b.Run("here", func(b *testing.B) {
		for b.Loop() {
			msg[0]++
			s.Sign(&msg, &aux)
		}
	})
	priv, _ := btcec.PrivKeyFromBytes(secret[:])
	b.Run("btcec", func(b *testing.B) {
		for b.Loop() {
			msg[0]++
			if _, err := btc.Sign(priv, msg[:], btc.CustomNonce(aux), btc.FastSign()); err != nil {
				b.Fatal(err)
			}
		}
	})
}
