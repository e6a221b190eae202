package didcomm

import (
	"crypto/ecdh"
	"fmt"
)

// opened is what one encryption layer turned out to hold.
type opened struct {
	plain     []byte
	kid       string // our key that opened it
	senderKID string // authcrypt only
}

// open decrypts an envelope with whichever of our keys it is for. Its only error
// is ErrOpen.
func (e *envelope) open(keys Keyring, resolve Resolver) (opened, error) {
	var sender *ecdh.PublicKey
	if e.head.Alg == AlgAuthcrypt {
		var ok bool
		if sender, ok = senderKey(resolve, e.head.SKID); !ok {
			return opened{}, ErrOpen
		}
	}
	for i, kid := range e.kids {
		key, ok := keys.Key(kid)
		if !ok {
			continue
		}
		if plain, err := e.openWith(key, sender, e.wrapped[i]); err == nil {
			return opened{plain: plain, kid: kid, senderKID: e.head.SKID}, nil
		}
	}
	return opened{}, ErrOpen
}

// senderKey asks for the one key that skid names and holds the resolver to it.
func senderKey(resolve Resolver, skid string) (*ecdh.PublicKey, bool) {
	if resolve == nil {
		return nil, false
	}
	found, err := resolve.AgreementKeys(skid)
	if err != nil {
		return nil, false
	}
	for _, k := range found {
		if k.KID == skid && k.Key != nil {
			return k.Key, true
		}
	}
	return nil, false
}

// openWith undoes sealWith with one private key.
func (e *envelope) openWith(key ecdh.KeyExchanger, sender *ecdh.PublicKey, wrapped []byte) ([]byte, error) {
	if key.Curve() != e.epk.Curve() {
		return nil, errCrypto
	}
	z, err := key.ECDH(e.epk) // refuses the all-zero result of a low-order point
	if err != nil {
		return nil, errCrypto
	}
	c := contents[e.head.Enc]
	var kek []byte
	if sender != nil {
		if sender.Curve() != key.Curve() {
			return nil, errCrypto
		}
		zs, err := key.ECDH(sender)
		if err != nil {
			return nil, errCrypto
		}
		kek = concatKDF(append(z, zs...), e.head.Alg, e.apu, e.apv, e.tag, 256)
	} else {
		kek = concatKDF(z, e.head.Alg, e.apu, e.apv, nil, 256)
	}
	cek, err := unwrapKey(kek, wrapped)
	if err != nil || len(cek) != c.keySize {
		return nil, errCrypto
	}
	aead, err := c.aead(cek)
	if err != nil || len(e.iv) != aead.NonceSize() || len(e.tag) != c.tagSize {
		return nil, errCrypto
	}
	sealed := make([]byte, 0, len(e.body)+len(e.tag))
	sealed = append(append(sealed, e.body...), e.tag...)
	plain, err := aead.Open(nil, e.iv, sealed, e.aad)
	if err != nil {
		return nil, errCrypto
	}
	if e.head.Zip == "" {
		return plain, nil
	}
	if plain, err = inflate(plain); err != nil {
		return nil, fmt.Errorf("%w: %w", errCrypto, err)
	}
	return plain, nil
}
