package schnorr

import (
	"crypto/sha256"
	"encoding/binary"
)

// Signer makes BIP-340 signatures by one key. It is safe for concurrent use. The time that a signature takes depends on how many non-zero
// digits its nonce has, and on nothing else that is secret; whoever can measure that finely is on the machine that holds the key.
type Signer struct {
	d   scalar // of the point with even y
	pub [32]byte
}

// NewSigner takes a secret key; false for one that is none, 0 or n and above.
func NewSigner(secret *[32]byte) (*Signer, bool) {
	s := new(Signer)
	if !s.d.setBytes(secret) || s.d.isZero() {
		return nil, false
	}
	x, odd := timesGenerator(&s.d)
	if odd {
		negScalar(&s.d, &s.d)
	}
	s.pub = x
	return s, true
}

// PubKey is the signer's public key.
func (s *Signer) PubKey() [32]byte { return s.pub }

// Sign is BIP-340's default signing of a message of 32 bytes. aux may be random, or always the same: the nonce never depends on it alone.
func (s *Signer) Sign(msg, aux *[32]byte) (sig [64]byte) {
	t := taggedHash(&auxTag, aux[:])
	d := s.d.bytes()
	for i := range t {
		t[i] ^= d[i]
	}
	nonce := taggedHash(&nonceTag, t[:], s.pub[:], msg[:])
	var k, e scalar
	k.setBytes(&nonce)
	if k.isZero() {
		panic("schnorr: a hash is 0 or the order of the group, which nobody has ever seen")
	}
	x, odd := timesGenerator(&k)
	if odd {
		negScalar(&k, &k)
	}
	challenge := taggedHash(&challengeTag, x[:], s.pub[:], msg[:])
	e.setBytes(&challenge)
	mulScalar(&e, &e, &s.d)
	addScalar(&e, &e, &k)
	copy(sig[:32], x[:])
	half := e.bytes()
	copy(sig[32:], half[:])
	return sig
}

var (
	auxTag   = tagOf("BIP0340/aux")
	nonceTag = tagOf("BIP0340/nonce")
)

func tagOf(name string) (tag [64]byte) {
	h := sha256.Sum256([]byte(name))
	copy(tag[:32], h[:])
	copy(tag[32:], h[:])
	return tag
}

// taggedHash hashes three parts of 32 bytes at most.
func taggedHash(tag *[64]byte, parts ...[]byte) [32]byte {
	var buf [160]byte
	b := append(buf[:0], tag[:]...)
	for _, p := range parts {
		b = append(b, p...)
	}
	return sha256.Sum256(b)
}

// timesGenerator is k·G, k not 0: its x, and whether its y is odd.
func timesGenerator(k *scalar) (x [32]byte, odd bool) {
	var l ladder
	l.addGenerator(k)
	p := l.sum()
	var zi, zi2, ax fe
	inverse(&zi, &p.z)
	sqrN(&zi2, &zi, 1)
	mul(&ax, &p.x, &zi2)
	ax.norm()
	for i := range 4 {
		binary.BigEndian.PutUint64(x[8*i:], ax[3-i])
	}
	return x, !evenY(&p, &zi)
}

// bytes is z, big endian.
func (z *scalar) bytes() (b [32]byte) {
	for i := range 4 {
		binary.BigEndian.PutUint64(b[8*i:], z[3-i])
	}
	return b
}
