package didcomm

import (
	"bytes"
	"crypto"
	"encoding/hex"
	"encoding/json"
	"errors"
	"os"
	"regexp"
	"strings"
	"testing"

	"fleetmesh.org/fleetmesh/internal/vectors"
)

// book is the documents and secrets of the specification's appendix.
type book struct {
	keys   Keys
	agree  map[string][]PublicKey // by DID
	verify map[string]crypto.PublicKey
	blocks []json.RawMessage
}

func (b *book) AgreementKeys(id string) ([]PublicKey, error) {
	if DIDOf(id) == id {
		return b.agree[id], nil
	}
	for _, k := range b.agree[DIDOf(id)] {
		if k.KID == id {
			return []PublicKey{k}, nil
		}
	}
	return nil, errors.New("no such key")
}

func (b *book) VerificationKey(kid string) (crypto.PublicKey, error) {
	k, ok := b.verify[kid]
	if !ok {
		return nil, errors.New("no such key")
	}
	return k, nil
}

// readBook reads vectors/didcomm/appendix.md. The secrets of the recipient have
// the member name "kid " with a space: that is the published file's slip.
func readBook(t testing.TB) *book {
	t.Helper()
	text, err := os.ReadFile(vectors.Path(t, "didcomm", "appendix.md"))
	if err != nil {
		t.Fatal(err)
	}
	text = bytes.ReplaceAll(text, []byte(`"kid "`), []byte(`"kid"`))
	b := &book{keys: Keys{}, agree: map[string][]PublicKey{}, verify: map[string]crypto.PublicKey{}}
	for _, m := range regexp.MustCompile("(?s)```json\n(.*?)```").FindAllSubmatch(text, -1) {
		b.blocks = append(b.blocks, m[1])
	}
	if len(b.blocks) != 14 {
		t.Fatalf("the appendix has %d JSON blocks, wanted 14", len(b.blocks))
	}
	for _, block := range b.blocks[:2] {
		var keys []JWK
		if err := json.Unmarshal(block, &keys); err != nil {
			t.Fatal(err)
		}
		for _, j := range keys {
			if j.Crv == "Ed25519" || j.Crv == "secp256k1" {
				continue
			}
			k, err := j.AgreementPrivate()
			if err != nil {
				t.Fatalf("%s: %v", j.KID, err)
			}
			b.keys[j.KID] = k
		}
	}
	for _, block := range b.blocks[2:4] {
		b.readDoc(t, block)
	}
	return b
}

func (b *book) readDoc(t testing.TB, block []byte) {
	t.Helper()
	type method struct {
		ID  string `json:"id"`
		JWK JWK    `json:"publicKeyJwk"`
	}
	var doc struct {
		ID             string   `json:"id"`
		Authentication []method `json:"authentication"`
		KeyAgreement   []method `json:"keyAgreement"`
	}
	if err := json.Unmarshal(block, &doc); err != nil {
		t.Fatal(err)
	}
	for _, m := range doc.Authentication {
		k, err := m.JWK.VerificationPublic()
		if err != nil {
			t.Fatalf("%s: %v", m.ID, err)
		}
		b.verify[m.ID] = k
	}
	for _, m := range doc.KeyAgreement {
		k, err := m.JWK.AgreementPublic()
		if err != nil {
			t.Fatalf("%s: %v", m.ID, err)
		}
		b.agree[doc.ID] = append(b.agree[doc.ID], PublicKey{m.ID, k})
	}
}

// TestAppendix opens every message of the specification's appendix C with each
// recipient key that it is for. The captions of the last three blocks are wrong
// in the published file; what is expected here is what the blocks hold.
func TestAppendix(t *testing.T) {
	b := readBook(t)
	// Another slip: the block prints the type with https, all the others hold http.
	plain, err := ParseMessage(bytes.Replace(b.blocks[4], []byte("https://example.com"), []byte("http://example.com"), 1))
	if err != nil {
		t.Fatal(err)
	}
	type want struct {
		name, sender, signer string
		hidden               bool
	}
	const alice = "did:example:alice#key-"
	wants := []want{
		{name: "JWS EdDSA", signer: alice + "1"},
		{name: "JWS ES256", signer: alice + "2"},
		{name: "JWS ES256K", signer: alice + "3"},
		{name: "anoncrypt X25519 XC20P", hidden: true},
		{name: "anoncrypt P-384 A256CBC-HS512", hidden: true},
		{name: "anoncrypt P-521 A256GCM", hidden: true},
		{name: "authcrypt X25519", sender: alice + "x25519-1"},
		{name: "authcrypt P-256 over JWS", sender: alice + "p256-1", signer: alice + "1"},
		{name: "anoncrypt P-521 XC20P over authcrypt P-521", sender: alice + "p521-1", signer: alice + "1", hidden: true},
	}
	for i, w := range wants {
		t.Run(w.name, func(t *testing.T) {
			block := b.blocks[5+i]
			if strings.HasPrefix(w.name, "JWS") {
				checkUnpacked(t, b, b.keys, block, plain, w.sender, w.signer, w.hidden)
				return
			}
			h, err := Peek(block)
			if err != nil {
				t.Fatal(err)
			}
			for _, kid := range h.Recipients {
				checkUnpacked(t, b, Keys{kid: b.keys[kid]}, block, plain, w.sender, w.signer, w.hidden)
			}
		})
	}
}

// TestAppendixPack seals the appendix's message with the appendix's keys, on every
// curve that they have, and opens it with each recipient key.
func TestAppendixPack(t *testing.T) {
	b := readBook(t)
	plain, err := ParseMessage(b.blocks[4])
	if err != nil {
		t.Fatal(err)
	}
	for _, curve := range []string{"x25519", "p256", "p384", "p521"} {
		var to []PublicKey
		for _, k := range b.agree["did:example:bob"] {
			if strings.Contains(k.KID, curve) {
				to = append(to, k)
			}
		}
		senders := []*Sender{nil}
		if kid := "did:example:alice#key-" + curve + "-1"; b.keys[kid] != nil {
			senders = append(senders, &Sender{kid, b.keys[kid]})
		}
		for _, from := range senders {
			packed, err := Pack(plain, PackOptions{From: from, To: to, ShowSender: true})
			if err != nil {
				t.Fatalf("%s: %v", curve, err)
			}
			sender := ""
			if from != nil {
				sender = from.KID
			}
			for _, k := range to {
				checkUnpacked(t, b, Keys{k.KID: b.keys[k.KID]}, packed, plain, sender, "", from == nil)
			}
		}
	}
}

func checkUnpacked(t *testing.T, b *book, keys Keys, block []byte, plain *Message, sender, signer string, hidden bool) {
	t.Helper()
	u, err := Unpack(block, keys, b)
	if err != nil {
		t.Fatalf("unpack: %v", err)
	}
	if u.SenderKID != sender || u.SignerKID != signer || u.SenderHidden != hidden {
		t.Errorf("sender %q signer %q hidden %v, wanted %q %q %v", u.SenderKID, u.SignerKID, u.SenderHidden, sender, signer, hidden)
	}
	got, _ := u.Message.JSON()
	want, _ := plain.JSON()
	if !bytes.Equal(got, want) {
		t.Errorf("message is\n%s\nwanted\n%s", got, want)
	}
}

type appendixKeys struct {
	Alice   JWK `json:"alice_static_key"`
	Bob     JWK `json:"bob_static_key"`
	Charlie JWK `json:"charlie_static_key"`
	Eph     JWK `json:"alice_ephemeral_key"`
	CEK     string
	IV      string
	Payload string
	Head    json.RawMessage `json:"protected"`
}

func checkHex(t *testing.T, what string, got []byte, want string) {
	t.Helper()
	if hex.EncodeToString(got) != want && b64.EncodeToString(got) != want || want == "" {
		t.Errorf("%s is %x, wanted %s", what, got, want)
	}
}

func agreeKeys(t *testing.T, ours, theirs JWK) []byte {
	t.Helper()
	k, err := ours.AgreementPrivate()
	if err != nil {
		t.Fatal(err)
	}
	p, err := theirs.AgreementPublic()
	if err != nil {
		t.Fatal(err)
	}
	z, err := k.ECDH(p)
	if err != nil {
		t.Fatal(err)
	}
	return z
}

// TestECDH1PUAppendix pins the draft-04 key agreement: Z, the fixed information
// with the content tag, the derived keys and the wrapped key.
func TestECDH1PUAppendix(t *testing.T) {
	raw, err := os.ReadFile(vectors.Path(t, "jose", "ecdh-1pu-04-appendix.json"))
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Cases map[string]struct {
			Constants appendixKeys
			Expected  map[string]string
		}
	}
	if err := json.Unmarshal(raw, &file); err != nil {
		t.Fatal(err)
	}
	if len(file.Cases) != 2 {
		t.Fatalf("%d cases, wanted 2", len(file.Cases))
	}
	a := file.Cases["test_ecdh_1pu_key_agreement_computation_appx_a"]
	k, e := a.Constants, a.Expected
	z := append(agreeKeys(t, k.Eph, k.Bob), agreeKeys(t, k.Alice, k.Bob)...)
	checkHex(t, "A: Z", z, e["_shared_key_at_alice"])
	checkHex(t, "A: fixed info", fixedInfo("A256GCM", []byte("Alice"), []byte("Bob"), nil, 256), e["_fixed_info_at_alice"])
	checkHex(t, "A: key", concatKDF(z, "A256GCM", []byte("Alice"), []byte("Bob"), nil, 256), e["_dk_at_alice"])

	b := file.Cases["test_ecdh_1pu_key_agreement_computation_appx_b"]
	checkAppendixB(t, b.Constants, b.Expected)
}

// checkAppendixB pins key wrapping for two recipients.
func checkAppendixB(t *testing.T, k appendixKeys, e map[string]string) {
	t.Helper()
	tag, err := unb64(e["urlsafe_b64encode(tag)"])
	if err != nil {
		t.Fatal(err)
	}
	cek, _ := hex.DecodeString(k.CEK)
	apu, apv := []byte("Alice"), []byte("Bob and Charlie")
	const alg = "ECDH-1PU+A128KW"
	checkHex(t, "B: fixed info", fixedInfo(alg, apu, apv, tag, 128), e["_fixed_info_at_alice_for_bob"])
	for name, jwk := range map[string]JWK{"bob": k.Bob, "charlie": k.Charlie} {
		z := append(agreeKeys(t, k.Eph, jwk), agreeKeys(t, k.Alice, jwk)...)
		checkHex(t, "B: Z of "+name, z, e["_shared_key_at_alice_for_"+name])
		kek := concatKDF(z, alg, apu, apv, tag, 128)
		checkHex(t, "B: key of "+name, kek, e["_dk_at_alice_for_"+name])
		w, err := wrapKey(kek, cek)
		if err != nil {
			t.Fatal(err)
		}
		checkHex(t, "B: wrapped key of "+name, w, e["urlsafe_b64encode(ek_for_"+name+")"])
		back, err := unwrapKey(kek, w)
		if err != nil || !bytes.Equal(back, cek) {
			t.Errorf("B: unwrap for %s: %v", name, err)
		}
		if _, err := unwrapKey(concatKDF(z, alg, apu, apv, nil, 128), w); err == nil {
			t.Errorf("B: the draft-03 key, without the tag, unwraps for %s", name)
		}
	}
	checkAppendixContent(t, k.Head, cek, k.IV, k.Payload, e)
}

// checkAppendixContent encrypts appendix B's payload; the header text must be
// the one of the draft, so it is rebuilt member by member in its order.
func checkAppendixContent(t *testing.T, head json.RawMessage, cek []byte, ivHex, payloadHex string, e map[string]string) {
	t.Helper()
	iv, _ := hex.DecodeString(ivHex)
	payload, _ := hex.DecodeString(payloadHex)
	var compact bytes.Buffer
	if err := json.Compact(&compact, head); err != nil {
		t.Fatal(err)
	}
	aead, err := contents[EncCBC].aead(cek)
	if err != nil {
		t.Fatal(err)
	}
	sealed := aead.Seal(nil, iv, payload, []byte(b64.EncodeToString(compact.Bytes())))
	body, tag := sealed[:len(sealed)-32], sealed[len(sealed)-32:]
	if got := b64.EncodeToString(body); got != e["urlsafe_b64encode(ciphertext)"] {
		t.Errorf("B: ciphertext is %s", got)
	}
	if got := b64.EncodeToString(tag); got != e["urlsafe_b64encode(tag)"] {
		t.Errorf("B: tag is %s, wanted %s", got, e["urlsafe_b64encode(tag)"])
	}
}
