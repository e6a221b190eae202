package didcomm

import (
	"crypto/ecdh"
	"crypto/rand"
	"fmt"
	"slices"

	jsonv2 "github.com/go-json-experiment/json"
)

// Sender is the key-agreement key that an authcrypt message comes from. Key is
// any ecdh.KeyExchanger, so the private key may live elsewhere.
type Sender struct {
	KID string
	Key ecdh.KeyExchanger
}

// Authcrypt seals plain from one sender to several recipients with ECDH-1PU
// (draft-04) + A256KW and A256CBC-HS512. All keys must be on one curve. The
// sender's key id is readable from outside; see Pack for hiding it.
func Authcrypt(plain []byte, from Sender, to []PublicKey) ([]byte, error) {
	if from.Key == nil || !isDID(from.KID) {
		return nil, fmt.Errorf("%w: authcrypt needs a sender key with a DID URL", ErrSyntax)
	}
	return seal(plain, &from, to, "")
}

// AuthcryptZipped is Authcrypt with the plaintext compressed where that makes it smaller, for recipients that said that they read it.
func AuthcryptZipped(plain []byte, from Sender, to []PublicKey) ([]byte, error) {
	if from.Key == nil || !isDID(from.KID) {
		return nil, fmt.Errorf("%w: authcrypt needs a sender key with a DID URL", ErrSyntax)
	}
	if zipped := deflate(plain); zipped != nil {
		return seal(zipped, &from, to, ZipDeflate)
	}
	return seal(plain, &from, to, "")
}

// Anoncrypt seals plain to several recipients, from nobody, with ECDH-ES + A256KW
// and A256CBC-HS512. All keys must be on one curve.
func Anoncrypt(plain []byte, to []PublicKey) ([]byte, error) {
	return seal(plain, nil, to, "")
}

func seal(plain []byte, from *Sender, to []PublicKey, zip string) ([]byte, error) {
	kids, err := checkRecipients(from, to)
	if err != nil {
		return nil, err
	}
	eph, err := to[0].Key.Curve().GenerateKey(rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("generate ephemeral key: %w", err)
	}
	cek, iv := make([]byte, contents[EncCBC].keySize), make([]byte, 16)
	rand.Read(cek)
	rand.Read(iv)
	return sealWith(plain, from, to, kids, eph, cek, iv, zip)
}

func checkRecipients(from *Sender, to []PublicKey) ([]string, error) {
	if len(to) == 0 || len(to) > MaxRecipients {
		return nil, fmt.Errorf("%w: %d recipients, wanted 1 to %d", ErrSyntax, len(to), MaxRecipients)
	}
	kids := make([]string, 0, len(to))
	for _, r := range to {
		if r.Key == nil || r.KID == "" || len(r.KID) > MaxIDLength || slices.Contains(kids, r.KID) {
			return nil, fmt.Errorf("%w: recipient %.80q has no key, no usable key id or is there twice", ErrSyntax, r.KID)
		}
		if r.Key.Curve() != to[0].Key.Curve() || from != nil && from.Key.Curve() != r.Key.Curve() {
			return nil, fmt.Errorf("%w: the keys of one envelope are on several curves", ErrSyntax)
		}
		kids = append(kids, r.KID)
	}
	return kids, nil
}

// sealWith does the work with everything random given, so that vectors can pin it. zip names what plain was compressed with.
func sealWith(plain []byte, from *Sender, to []PublicKey, kids []string, eph *ecdh.PrivateKey, cek, iv []byte, zip string) ([]byte, error) {
	epk, err := AgreementJWK(eph.PublicKey())
	if err != nil {
		return nil, err
	}
	apv := partyV(kids)
	head := protected{Typ: TypEncrypted, Alg: AlgAnoncrypt, Enc: EncCBC, APV: b64.EncodeToString(apv), EPK: epk, Zip: zip}
	var apu []byte
	if from != nil {
		apu = []byte(from.KID)
		head.Alg, head.SKID, head.APU = AlgAuthcrypt, from.KID, b64.EncodeToString(apu)
	}
	raw, err := jsonv2.Marshal(head, strict)
	if err != nil {
		return nil, fmt.Errorf("%w: write protected header: %w", ErrSyntax, err)
	}
	text := b64.AppendEncode(nil, raw)
	c := contents[EncCBC]
	aead, err := c.aead(cek)
	if err != nil {
		return nil, fmt.Errorf("content encryption: %w", err)
	}
	sealed := aead.Seal(nil, iv, plain, text)
	body, tag := sealed[:len(sealed)-c.tagSize], sealed[len(sealed)-c.tagSize:]
	wrapped := make([][]byte, len(to))
	for i, r := range to {
		if wrapped[i], err = wrapFor(r.Key, from, eph, head.Alg, apu, apv, tag, cek); err != nil {
			return nil, fmt.Errorf("seal to %s: %w", r.KID, err)
		}
	}
	return appendJWE(text, kids, wrapped, iv, body, tag)
}

// wrapFor wraps the content key for one recipient.
func wrapFor(to *ecdh.PublicKey, from *Sender, eph *ecdh.PrivateKey, alg string, apu, apv, tag, cek []byte) ([]byte, error) {
	z, err := eph.ECDH(to)
	if err != nil {
		return nil, fmt.Errorf("key agreement: %w", err)
	}
	if from == nil {
		return wrapKey(concatKDF(z, alg, nil, apv, nil, 256), cek)
	}
	zs, err := from.Key.ECDH(to)
	if err != nil {
		return nil, fmt.Errorf("key agreement: %w", err)
	}
	return wrapKey(concatKDF(append(z, zs...), alg, apu, apv, tag, 256), cek)
}
