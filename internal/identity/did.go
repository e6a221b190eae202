package identity

import (
	"encoding/hex"
	"strings"

	"fleetmesh.org/fleetmesh/nostr"
)

const didNostr = "did:nostr:"

// FormatDID returns the DID of a node key.
func FormatDID(k nostr.PubKey) string { return didNostr + k.String() }

// ParseDID reads a did:nostr without a fragment. The identifier is 64 lower-case hex
// digits and the x coordinate of a point of the curve.
func ParseDID(s string) (nostr.PubKey, error) {
	k, fragment, err := ParseDIDURL(s)
	if err == nil && fragment != "" {
		return nostr.PubKey{}, fault(BadDID, "has a fragment")
	}
	return k, err
}

// ParseDIDURL reads a did:nostr and the fragment after "#", "" if there is none:
// did:nostr:<hex>#agree is how a DIDComm envelope names a key.
func ParseDIDURL(s string) (k nostr.PubKey, fragment string, err error) {
	rest, ok := strings.CutPrefix(s, didNostr)
	if !ok {
		return k, "", fault(BadDID, "not of the method nostr")
	}
	id, fragment, has := strings.Cut(rest, "#")
	if has && fragment == "" {
		return k, "", fault(BadDID, "empty fragment")
	}
	k, err = parseKey(id)
	if err != nil {
		return nostr.PubKey{}, "", err
	}
	return k, fragment, nil
}

// ParseSignerDID reads a did:nostr whose key the caller is about to verify a signature with. That step lifts the
// point anyway, and finds every key that is off the curve, so the costly check is not made twice.
func ParseSignerDID(s string) (nostr.PubKey, error) {
	id, ok := strings.CutPrefix(s, didNostr)
	if !ok {
		return nostr.PubKey{}, fault(BadDID, "not of the method nostr")
	}
	k, ok := parseHex32(id)
	if !ok {
		return nostr.PubKey{}, fault(BadDID, "key is not 64 lower-case hex digits")
	}
	return k, nil
}

// parseKey reads a node or operator key: lower-case hex, on the curve.
func parseKey(s string) (nostr.PubKey, error) {
	b, ok := parseHex32(s)
	if !ok {
		return nostr.PubKey{}, fault(BadDID, "key is not 64 lower-case hex digits")
	}
	k := nostr.PubKey(b)
	if !OnCurve(k) {
		return nostr.PubKey{}, fault(OffCurve, "secp256k1 "+s)
	}
	return k, nil
}

// parseHex32 reads exactly 64 lower-case hex digits.
func parseHex32(s string) (out [32]byte, ok bool) {
	if len(s) != 64 || s != strings.ToLower(s) {
		return out, false
	}
	_, err := hex.Decode(out[:], []byte(s))
	return out, err == nil
}

// FormatDIDKey returns the did:key of a multikey, base58btc as that method writes it.
func FormatDIDKey(m Multikey) string { return "did:key:" + m.Base58() }

// ParseDIDKey reads a did:key of secp256k1, X25519 or Ed25519, under multibase z or f.
// A trailing fragment must repeat the identifier.
func ParseDIDKey(s string) (Multikey, error) {
	id, ok := strings.CutPrefix(s, "did:key:")
	if !ok {
		return Multikey{}, fault(BadDID, "not of the method key")
	}
	id, fragment, has := strings.Cut(id, "#")
	if has && fragment != id {
		return Multikey{}, fault(BadDID, "fragment is not the key")
	}
	return ParseMultikey(id)
}
