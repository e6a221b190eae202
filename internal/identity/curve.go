package identity

import (
	"bytes"
	"crypto/ecdh"
	"errors"
	"math/big"

	"github.com/btcsuite/btcd/btcec/v2"
	"github.com/btcsuite/btcd/btcec/v2/schnorr"

	"fleetmesh.org/fleetmesh/nostr"
)

// OnCurve reports whether k is the x coordinate of a point of secp256k1, as
// did:nostr requires of every subject.
func OnCurve(k nostr.PubKey) bool {
	_, err := schnorr.ParsePubKey(k[:])
	return err == nil
}

// Verify reports whether sig is a BIP-340 signature by k over the 32-byte digest.
func Verify(k nostr.PubKey, digest [32]byte, sig nostr.Sig) bool {
	return verifier.Verify([]*nostr.Event{{ID: digest, PubKey: k, Sig: sig}})[0]
}

// verifier remembers keys: a node's receipts and hops come from a few.
var verifier = nostr.NewVerifier()

// sharedX is the x coordinate of k·P, the unhashed ECDH value that NIP-44 and the
// blinded tags start from. Both ends compute the same.
func sharedX(k nostr.SecretKey, p nostr.PubKey) ([32]byte, error) {
	priv, err := secret(k)
	if err != nil {
		return [32]byte{}, err
	}
	pub, err := schnorr.ParsePubKey(p[:])
	if err != nil {
		return [32]byte{}, fault(OffCurve, "secp256k1 "+p.String())
	}
	return [32]byte(btcec.GenerateSharedSecret(priv, pub)), nil
}

func secret(k nostr.SecretKey) (*btcec.PrivateKey, error) {
	var s btcec.ModNScalar
	if s.SetByteSlice(k[:]) || s.IsZero() {
		return nil, errors.New("secret key is zero or not below the group order")
	}
	return btcec.PrivKeyFromScalar(&s), nil
}

// probe is a fixed X25519 scalar: clamping makes it a multiple of eight, so that
// every point of small order comes out as zero, which crypto/ecdh refuses.
var probe = bytes.Repeat([]byte{0x42}, 32)

// x25519OK reports whether k is a usable X25519 key: any 32 bytes but a point of small order.
func x25519OK(k [32]byte) bool {
	priv, err := ecdh.X25519().NewPrivateKey(probe)
	if err != nil {
		return false
	}
	pub, err := ecdh.X25519().NewPublicKey(k[:])
	if err != nil {
		return false
	}
	_, err = priv.ECDH(pub)
	return err == nil
}

var (
	edP = new(big.Int).Sub(new(big.Int).Lsh(big.NewInt(1), 255), big.NewInt(19))
	edD = func() *big.Int { // -121665/121666
		d := new(big.Int).ModInverse(big.NewInt(121666), edP)
		d.Mul(d, big.NewInt(-121665))
		return d.Mod(d, edP)
	}()
)

// ed25519OK reports whether k is the canonical encoding of a point of edwards25519
// that is not of small order. Such a point would verify signatures nobody made.
func ed25519OK(k [32]byte) bool {
	le := k
	sign := uint(le[31] >> 7)
	le[31] &= 0x7f
	for i, j := 0, 31; i < j; i, j = i+1, j-1 {
		le[i], le[j] = le[j], le[i]
	}
	y := new(big.Int).SetBytes(le[:])
	if y.Cmp(edP) >= 0 {
		return false
	}
	one := big.NewInt(1)
	yy := new(big.Int).Mul(y, y)
	u := new(big.Int).Sub(yy, one)
	v := new(big.Int).Mul(edD, yy)
	v.Add(v, one)
	xx := u.Mul(u, new(big.Int).ModInverse(v.Mod(v, edP), edP))
	x := new(big.Int).ModSqrt(xx.Mod(xx, edP), edP)
	if x == nil || (x.Sign() == 0 && sign == 1) {
		return false
	}
	for range 3 {
		x, y = edDouble(x, y)
	}
	return x.Sign() != 0 || y.Cmp(one) != 0
}

// edDouble doubles an affine point. The law is complete, so no case is special.
func edDouble(x, y *big.Int) (*big.Int, *big.Int) {
	one := big.NewInt(1)
	xx, yy := new(big.Int).Mul(x, x), new(big.Int).Mul(y, y)
	t := new(big.Int).Mul(xx, yy)
	t.Mul(t, edD).Mod(t, edP)
	num := new(big.Int).Mul(x, y)
	num.Lsh(num, 1)
	den := new(big.Int).Add(one, t)
	x3 := num.Mul(num, den.ModInverse(den.Mod(den, edP), edP))
	num2 := new(big.Int).Add(yy, xx)
	den2 := new(big.Int).Sub(one, t)
	y3 := num2.Mul(num2, den2.ModInverse(den2.Mod(den2, edP), edP))
	return x3.Mod(x3, edP), y3.Mod(y3, edP)
}
