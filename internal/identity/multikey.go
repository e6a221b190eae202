package identity

import (
	"encoding/hex"
	"strings"

	"github.com/btcsuite/btcd/btcec/v2"

	"fleetmesh.org/fleetmesh/nostr"
)

// Curve is the curve of a multikey.
type Curve string

// The three curves a node uses.
const (
	Secp256k1 Curve = "secp256k1"
	X25519    Curve = "X25519"
	Ed25519   Curve = "Ed25519"
)

// codecs are the multicodec prefixes, as unsigned varints.
var codecs = map[Curve][2]byte{Secp256k1: {0xe7, 0x01}, X25519: {0xec, 0x01}, Ed25519: {0xed, 0x01}}

// Multikey is a public key and the curve it is on.
type Multikey struct {
	Curve Curve
	Key   []byte // 33 bytes compressed for secp256k1, else 32
}

// NodeMultikey is the multikey of a node key: base16, even parity (did:nostr).
func NodeMultikey(k nostr.PubKey) string { return "fe70102" + k.String() }

// Multikey returns the base16 multikey of an agreement key.
func (k AgreementKey) Multikey() string { return "fec01" + hex.EncodeToString(k[:]) }

// Multikey returns the base16 multikey of a transport key.
func (k TransportKey) Multikey() string { return "fed01" + hex.EncodeToString(k[:]) }

// Base16 returns the multikey under multibase f, the only base of a descriptor.
func (m Multikey) Base16() string { return "f" + hex.EncodeToString(m.raw()) }

// Base58 returns the multikey under multibase z, as did:key and did:peer write it.
func (m Multikey) Base58() string { return "z" + encodeBase58(m.raw()) }

func (m Multikey) raw() []byte {
	c := codecs[m.Curve]
	return append(c[:], m.Key...)
}

// Agreement returns the key if it is of X25519.
func (m Multikey) Agreement() (AgreementKey, bool) {
	if m.Curve != X25519 {
		return AgreementKey{}, false
	}
	return AgreementKey(m.Key), true
}

// Transport returns the key if it is of Ed25519.
func (m Multikey) Transport() (TransportKey, bool) {
	if m.Curve != Ed25519 {
		return TransportKey{}, false
	}
	return TransportKey(m.Key), true
}

// Node returns the x-only key if it is of secp256k1, whatever its parity.
func (m Multikey) Node() (nostr.PubKey, bool) {
	if m.Curve != Secp256k1 {
		return nostr.PubKey{}, false
	}
	return nostr.PubKey(m.Key[1:]), true
}

// ParseMultikey reads a multikey of one of the three curves, under multibase f or
// z, and checks that the key is a usable point of its curve.
func ParseMultikey(s string) (Multikey, error) {
	if s == "" {
		return Multikey{}, fault(BadMultikey, "empty")
	}
	var raw []byte
	var err error
	switch s[0] {
	case 'f':
		if s != strings.ToLower(s) {
			return Multikey{}, fault(BadMultikey, "upper-case digits under multibase f")
		}
		raw, err = hex.DecodeString(s[1:])
	case 'z':
		raw, err = decodeBase58(s[1:], maxBase58Key)
	default:
		return Multikey{}, fault(BadMultikey, "multibase is neither f nor z")
	}
	if err != nil {
		return Multikey{}, fault(BadMultikey, err.Error())
	}
	return decodeMultikey(raw)
}

func decodeMultikey(raw []byte) (Multikey, error) {
	if len(raw) < 2 {
		return Multikey{}, fault(BadMultikey, "no multicodec")
	}
	m := Multikey{Key: raw[2:]}
	want := 32
	switch [2]byte(raw[:2]) {
	case codecs[Secp256k1]:
		m.Curve, want = Secp256k1, 33
	case codecs[X25519]:
		m.Curve = X25519
	case codecs[Ed25519]:
		m.Curve = Ed25519
	default:
		return Multikey{}, fault(BadMultikey, "unknown multicodec")
	}
	if len(m.Key) != want {
		return Multikey{}, fault(BadMultikey, "wrong key length")
	}
	ok := false
	switch m.Curve {
	case Secp256k1:
		_, err := btcec.ParsePubKey(m.Key)
		ok = err == nil
	case X25519:
		ok = x25519OK([32]byte(m.Key))
	case Ed25519:
		ok = ed25519OK([32]byte(m.Key))
	}
	if !ok {
		return Multikey{}, fault(OffCurve, string(m.Curve))
	}
	return m, nil
}

// ParseNodeMultikey reads the multikey of a node key as did:nostr writes it: base16
// and even parity, the one form BIP-340 knows.
func ParseNodeMultikey(s string) (nostr.PubKey, error) {
	if !strings.HasPrefix(s, "f") {
		return nostr.PubKey{}, fault(BadMultikey, "multibase is not f")
	}
	m, err := ParseMultikey(s)
	if err != nil {
		return nostr.PubKey{}, err
	}
	k, ok := m.Node()
	if !ok {
		return nostr.PubKey{}, fault(BadMultikey, "not a secp256k1 key")
	}
	if m.Key[0] != 2 {
		return nostr.PubKey{}, fault(BadMultikey, "odd parity")
	}
	return k, nil
}
