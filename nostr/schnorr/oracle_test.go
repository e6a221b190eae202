package schnorr

import (
	"encoding/binary"
	"math/big"
	"math/rand/v2"
	"testing"

	"github.com/btcsuite/btcd/btcec/v2"
	oracle "github.com/btcsuite/btcd/btcec/v2/schnorr"
)

// triple is one signature to be judged.
type triple struct {
	pub, msg [32]byte
	sig      [64]byte
	what     string
}

// oracleVerdict asks btcec.
func oracleVerdict(tr *triple) bool {
	pub, err := oracle.ParsePubKey(tr.pub[:])
	if err != nil {
		return false
	}
	sig, err := oracle.ParseSignature(tr.sig[:])
	if err != nil {
		return false
	}
	return sig.Verify(tr.msg[:], pub)
}

// forge makes signatures with chosen keys and nonces, in math/big and btcec's
// arithmetic, so that every border can be reached.
type forge struct{ r *rand.Rand }

func newForge(seed uint64) *forge { return &forge{rand.New(rand.NewPCG(seed, 340))} }

// number draws a key or nonce below n: any, tiny, just below n, near lambda and
// its multiples, or one with long runs of bits.
func (f *forge) number() *big.Int {
	z := new(big.Int)
	switch f.r.IntN(8) {
	case 0:
		z.SetInt64(int64(1 + f.r.IntN(40)))
	case 1:
		z.Sub(bigN, big.NewInt(int64(1+f.r.IntN(40))))
	case 2:
		z.Mul(toBig(lambda[:]...), big.NewInt(int64(1+f.r.IntN(5))))
		z.Add(z, big.NewInt(int64(f.r.IntN(5)-2)))
	case 3:
		z.Lsh(big.NewInt(int64(1+f.r.IntN(3))), uint(f.r.IntN(256)))
	default:
		l := oddLimbs(f.r)
		z = toBig(l[:]...)
	}
	z.Mod(z, bigN)
	if z.Sign() == 0 {
		z.SetInt64(1)
	}
	return z
}

// evenPoint returns k·G's x and k or n-k, whichever gives an even y.
func evenPoint(k *big.Int) (x [32]byte, even *big.Int) {
	var b [32]byte
	k.FillBytes(b[:])
	_, pub := btcec.PrivKeyFromBytes(b[:])
	c := pub.SerializeCompressed()
	copy(x[:], c[1:])
	if c[0] == 3 {
		return x, new(big.Int).Sub(bigN, k)
	}
	return x, k
}

// sign signs msg by BIP-340 with the key d and the nonce k.
func sign(d, k *big.Int, msg *[32]byte) (tr triple) {
	var key *big.Int
	tr.pub, key = evenPoint(d)
	var r [32]byte
	r, k = evenPoint(k)
	tr.msg = *msg
	copy(tr.sig[:32], r[:])
	e := challengeOf(&tr)
	s := new(big.Int).Mul(e, key)
	s.Add(s, k).Mod(s, bigN).FillBytes(tr.sig[32:])
	return tr
}

func challengeOf(tr *triple) *big.Int {
	var in input
	in.challenge(&tr.pub, tr.msg[:], &tr.sig)
	return toBig(in.e[:]...)
}

// triple draws a signature, good or bad in one of many ways.
func (f *forge) triple(before []triple) triple {
	var msg [32]byte
	for i := 0; i < 32; i += 8 {
		binary.LittleEndian.PutUint64(msg[i:], f.r.Uint64())
	}
	d, k := f.number(), f.number()
	if f.r.IntN(4) == 0 && len(before) > 0 {
		k = d // R = P
	}
	tr := sign(d, k, &msg)
	tr.what = "good"
	if f.r.IntN(3) == 0 {
		f.spoil(&tr, d, before)
	}
	return tr
}

// spoil turns a good signature into one that may be bad, and says how.
func (f *forge) spoil(tr *triple, d *big.Int, before []triple) {
	s := new(big.Int).SetBytes(tr.sig[32:])
	r := new(big.Int).SetBytes(tr.sig[:32])
	put := func(v *big.Int, at []byte) { new(big.Int).Mod(v, new(big.Int).Lsh(big.NewInt(1), 256)).FillBytes(at) }
	switch f.r.IntN(12) {
	case 0:
		tr.what = "bit of the signature"
		tr.sig[f.r.IntN(64)] ^= 1 << f.r.IntN(8)
	case 1:
		tr.what = "bit of the message"
		tr.msg[f.r.IntN(32)] ^= 1 << f.r.IntN(8)
	case 2:
		tr.what = "bit of the key"
		tr.pub[f.r.IntN(32)] ^= 1 << f.r.IntN(8)
	case 3:
		tr.what = "-s"
		put(s.Sub(bigN, s), tr.sig[32:])
	case 4:
		tr.what = "s + n, or what is left of it"
		put(s.Add(s, bigN), tr.sig[32:])
	case 5:
		tr.what = "s on the border"
		put(new(big.Int).Add(bigN, big.NewInt(int64(f.r.IntN(5)-2))), tr.sig[32:])
	case 6:
		tr.what = "r + p, or what is left of it"
		put(r.Add(r, bigP), tr.sig[:32])
	case 7:
		tr.what = "r or key on the border"
		v := new(big.Int).Add(bigP, big.NewInt(int64(f.r.IntN(9)-4)))
		if f.r.IntN(2) == 0 {
			put(v, tr.sig[:32])
		} else {
			put(v, tr.pub[:])
		}
	case 8:
		tr.what = "another's r"
		if len(before) > 0 {
			copy(tr.sig[:32], before[f.r.IntN(len(before))].sig[:32])
		}
	case 9:
		tr.what = "odd R"
		oddR(tr, d, f.number())
	case 10:
		tr.what = "infinite R"
		_, key := evenPoint(d)
		put(new(big.Int).Mod(new(big.Int).Mul(challengeOf(tr), key), bigN), tr.sig[32:])
	case 11:
		tr.what = "zeros"
		clear(tr.sig[32*f.r.IntN(2):][:32])
	}
}

// oddR signs so that s·G - e·P has r as x, but an odd y.
func oddR(tr *triple, d, k *big.Int) {
	r, even := evenPoint(k)
	_, key := evenPoint(d)
	copy(tr.sig[:32], r[:])
	s := new(big.Int).Mul(challengeOf(tr), key)
	s.Sub(s, even).Mod(s, bigN).FillBytes(tr.sig[32:])
}

// triples draws n, with repetitions among them.
func (f *forge) triples(n int) []triple {
	var out []triple
	for len(out) < n {
		if len(out) > 0 && f.r.IntN(10) == 0 {
			tr := out[f.r.IntN(len(out))]
			out = append(out, tr)
			continue
		}
		out = append(out, f.triple(out))
	}
	return out
}

// TestAgainstOracle compares verdicts, single and in groups, with btcec's.
func TestAgainstOracle(t *testing.T) {
	n := 3000
	if testing.Short() {
		n = 400
	}
	all := newForge(1).triples(n)
	want := make([]bool, n)
	good := 0
	for i := range all {
		want[i] = oracleVerdict(&all[i])
		if want[i] {
			good++
		}
		if all[i].what == "good" && !want[i] {
			t.Fatalf("the forge's own signature is bad: %+v", all[i])
		}
	}
	if good < n/2 || good > n*9/10 {
		t.Fatalf("%d of %d are good: the forge is off balance", good, n)
	}
	eachPath(t, func(t *testing.T) {
		v := NewVerifier(50 * tableCost)
		for i := range all {
			tr := &all[i]
			if got := v.Verify(&tr.pub, tr.msg[:], &tr.sig); got != want[i] {
				t.Fatalf("%s: verdict %v: pub %x msg %x sig %x", tr.what, got, tr.pub, tr.msg, tr.sig)
			}
		}
		var g group
		for i := range all {
			g.add(&all[i].pub, &all[i].msg, &all[i].sig)
		}
		g.check(t, v, want)
	})
}

func FuzzVerify(f *testing.F) {
	for _, tr := range newForge(2).triples(60) {
		f.Add(tr.pub[:], tr.msg[:], tr.sig[:])
	}
	v := NewVerifier(0)
	f.Fuzz(func(t *testing.T, pub, msg, sig []byte) {
		var tr triple
		copy(tr.pub[:], pub)
		copy(tr.msg[:], msg)
		copy(tr.sig[:], sig)
		want := oracleVerdict(&tr)
		eachPath(t, func(t *testing.T) {
			if got := v.Verify(&tr.pub, tr.msg[:], &tr.sig); got != want {
				t.Fatalf("verdict %v: pub %x msg %x sig %x", got, tr.pub, tr.msg, tr.sig)
			}
		})
	})
}

// FuzzSigned signs with fuzzed key, nonce and message, so that good signatures
// with chosen numbers are met, and changes one byte of them.
func FuzzSigned(f *testing.F) {
	for i := range uint64(20) {
		f.Add(i, uint8(i), uint8(0))
	}
	v := NewVerifier(0)
	f.Fuzz(func(t *testing.T, seed uint64, at, flip uint8) {
		tr := newForge(seed).triple(nil)
		tr.sig[at%64] ^= flip
		want := oracleVerdict(&tr)
		eachPath(t, func(t *testing.T) {
			if got := v.Verify(&tr.pub, tr.msg[:], &tr.sig); got != want {
				t.Fatalf("verdict %v: pub %x msg %x sig %x", got, tr.pub, tr.msg, tr.sig)
			}
		})
	})
}
