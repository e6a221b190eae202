package didcomm

import (
	"bytes"
	"crypto"
	"crypto/ecdh"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/decred/dcrd/dcrec/secp256k1/v4"
)

const (
	alice = "did:example:a"
	bob   = "did:example:b"
	mia   = "did:example:m"
	noa   = "did:example:n"
)

// town is some DIDs with a key each, and knows all of them.
type town struct {
	keys Keys
	sign map[string]ed25519.PrivateKey
	hide map[string]bool // what the resolver pretends not to know
}

func newTown(t testing.TB) *town {
	t.Helper()
	w := &town{keys: Keys{}, sign: map[string]ed25519.PrivateKey{}, hide: map[string]bool{}}
	for _, did := range []string{alice, bob, mia, noa} {
		seed := sha256.Sum256([]byte(did)) // the same in every process that fuzzes
		k, err := ecdh.X25519().NewPrivateKey(seed[:])
		if err != nil {
			t.Fatal(err)
		}
		w.keys[did+"#agree"] = k
		w.sign[did+"#auth"] = ed25519.NewKeyFromSeed(seed[:])
	}
	return w
}

func (w *town) AgreementKeys(id string) ([]PublicKey, error) {
	kid := DIDOf(id) + "#agree"
	k, ok := w.keys[kid]
	if !ok || w.hide[id] || id != DIDOf(id) && id != kid {
		return nil, errors.New("unknown " + id)
	}
	return []PublicKey{{kid, k.PublicKey()}}, nil
}

func (w *town) VerificationKey(kid string) (crypto.PublicKey, error) {
	if k, ok := w.sign[kid]; ok && !w.hide[kid] {
		return k.Public(), nil
	}
	return nil, errors.New("unknown " + kid)
}

func (w *town) of(did string) Keys { return Keys{did + "#agree": w.keys[did+"#agree"]} }
func (w *town) public(did string) PublicKey {
	return PublicKey{did + "#agree", w.keys[did+"#agree"].PublicKey()}
}
func (w *town) sender(did string) *Sender { return &Sender{did + "#agree", w.keys[did+"#agree"]} }
func (w *town) signer(did string) *Signer {
	s := Ed25519Signer(did+"#auth", w.sign[did+"#auth"])
	return &s
}

func letter() *Message {
	return &Message{ID: "1", Type: "https://example.org/letter/1.0/letter", From: alice, To: []string{bob},
		CreatedTime: 1_800_000_000, Body: json.RawMessage(`{"text":"grüß dich","n":9007199254740993}`),
		Extra: map[string]RawAny{"x-own": RawAny(`[1,2]`)}}
}

func mustPack(t testing.TB, m *Message, o PackOptions) []byte {
	t.Helper()
	b, err := Pack(m, o)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestPackUnpack(t *testing.T) {
	w := newTown(t)
	for _, c := range []struct {
		name string
		o    PackOptions
		want Unpacked
	}{
		{"authcrypt", PackOptions{From: w.sender(alice), ShowSender: true}, Unpacked{SenderKID: alice + "#agree"}},
		{"hidden authcrypt", PackOptions{From: w.sender(alice)}, Unpacked{SenderKID: alice + "#agree", SenderHidden: true}},
		{"anoncrypt", PackOptions{}, Unpacked{SenderHidden: true}},
		{"signed authcrypt", PackOptions{From: w.sender(alice), Sign: w.signer(alice), ShowSender: true},
			Unpacked{SenderKID: alice + "#agree", SignerKID: alice + "#auth"}},
		{"hidden signed authcrypt", PackOptions{From: w.sender(alice), Sign: w.signer(alice)},
			Unpacked{SenderKID: alice + "#agree", SignerKID: alice + "#auth", SenderHidden: true}},
		{"signed anoncrypt", PackOptions{Sign: w.signer(alice)}, Unpacked{SignerKID: alice + "#auth", SenderHidden: true}},
	} {
		c.o.To = []PublicKey{w.public(bob)}
		m := letter()
		b := mustPack(t, m, c.o)
		if hidden := !bytes.Contains(mustHeader(t, b), []byte(alice)); hidden != c.want.SenderHidden {
			t.Errorf("%s: sender hidden is %v", c.name, hidden)
		}
		u, err := Unpack(b, w.of(bob), w)
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		if u.SenderKID != c.want.SenderKID || u.SignerKID != c.want.SignerKID || u.SenderHidden != c.want.SenderHidden ||
			!u.Encrypted || u.RecipientKID != bob+"#agree" || u.Authenticated() != (c.want.SenderKID+c.want.SignerKID != "") {
			t.Errorf("%s: %+v", c.name, u)
		}
		got, _ := u.Message.JSON()
		want, _ := m.JSON()
		if !bytes.Equal(got, want) {
			t.Errorf("%s: message is %s, wanted %s", c.name, got, want)
		}
		for _, other := range []string{alice, mia} {
			if _, err := Unpack(b, w.of(other), w); err != ErrOpen {
				t.Errorf("%s: opened by %s: %v, wanted ErrOpen", c.name, other, err)
			}
		}
	}
}

// mustHeader is everything of an envelope that can be read without a key.
func mustHeader(t *testing.T, b []byte) []byte {
	t.Helper()
	e, err := parseJWE(b)
	if err != nil {
		t.Fatal(err)
	}
	raw, _ := unb64(string(e.aad))
	return append(raw, b...)
}

func TestSeveralRecipients(t *testing.T) {
	w := newTown(t)
	m := letter()
	m.To = []string{bob, mia, noa}
	b := mustPack(t, m, PackOptions{From: w.sender(alice), To: []PublicKey{w.public(bob), w.public(mia), w.public(noa)}})
	for _, did := range m.To {
		if u, err := Unpack(b, w.of(did), w); err != nil || u.RecipientKID != did+"#agree" {
			t.Errorf("%s: %+v, %v", did, u, err)
		}
	}
	many := make([]PublicKey, MaxRecipients+1)
	for i := range many {
		many[i] = PublicKey{fmt.Sprintf("%s#%d", bob, i), w.public(bob).Key}
	}
	if _, err := Anoncrypt([]byte("{}"), many); err == nil {
		t.Error("sealed to too many recipients")
	}
	if _, err := Anoncrypt([]byte("{}"), []PublicKey{w.public(bob), w.public(bob)}); err == nil {
		t.Error("sealed to the same key id twice")
	}
}

func TestOtherCurves(t *testing.T) {
	for _, curve := range []ecdh.Curve{ecdh.P256(), ecdh.P384(), ecdh.P521()} {
		a, _ := curve.GenerateKey(rand.Reader)
		b, _ := curve.GenerateKey(rand.Reader)
		sealed, err := Authcrypt([]byte("hello"), Sender{alice + "#p", a}, []PublicKey{{bob + "#p", b.PublicKey()}})
		if err != nil {
			t.Fatal(err)
		}
		e, err := parseJWE(sealed)
		if err != nil {
			t.Fatal(err)
		}
		if plain, err := e.openWith(b, a.PublicKey(), e.wrapped[0]); err != nil || string(plain) != "hello" {
			t.Errorf("%v: %q, %v", curve, plain, err)
		}
	}
}

func TestForwardNesting(t *testing.T) {
	w := newTown(t)
	n := 0
	m := letter()
	m.ExpiresTime = 1_800_000_600
	b := mustPack(t, m, PackOptions{From: w.sender(alice), To: []PublicKey{w.public(bob)},
		Via: []PublicKey{w.public(noa), w.public(mia)}, ForwardID: func() string { n++; return fmt.Sprint("f", n) }})
	for _, hop := range []struct{ did, next string }{{noa, mia + "#agree"}, {mia, bob}} {
		u, err := Unpack(b, w.of(hop.did), w)
		if err != nil {
			t.Fatalf("%s: %v", hop.did, err)
		}
		if plain, _ := u.Message.JSON(); bytes.Contains(plain, []byte(alice)) || u.Authenticated() {
			t.Errorf("%s learns the sender", hop.did)
		}
		f, err := ParseForward(u.Message)
		if err != nil || f.Next != hop.next || f.ExpiresTime != m.ExpiresTime {
			t.Fatalf("%s: %+v, %v", hop.did, f, err)
		}
		b = f.Envelope
	}
	if u, err := Unpack(b, w.of(bob), w); err != nil || u.Message.ID != "1" {
		t.Fatalf("recipient: %v", err)
	}
}

func TestParseForwardRefuses(t *testing.T) {
	w := newTown(t)
	inner := mustPack(t, letter(), PackOptions{From: w.sender(alice), To: []PublicKey{w.public(bob)}})
	plain, _ := letter().JSON()
	good := func() *Message {
		return &Message{ID: "f", Type: TypeForward, Body: json.RawMessage(`{"next":"did:example:b"}`),
			Attachments: []Attachment{JSONAttachment("0", inner)}}
	}
	for name, change := range map[string]func(*Message){
		"other type":       func(m *Message) { m.Type = TypePing },
		"no next":          func(m *Message) { m.Body = json.RawMessage(`{}`) },
		"no attachment":    func(m *Message) { m.Attachments = nil },
		"two attachments":  func(m *Message) { m.Attachments = append(m.Attachments, m.Attachments[0]) },
		"plaintext inside": func(m *Message) { m.Attachments[0] = JSONAttachment("0", plain) },
		"link":             func(m *Message) { m.Attachments[0].Data = AttachmentData{Links: []string{"https://x"}} },
		"not base64url":    func(m *Message) { m.Attachments[0].Data = AttachmentData{Base64: "%%"} },
	} {
		m := good()
		change(m)
		if f, err := ParseForward(m); !errors.Is(err, ErrSyntax) {
			t.Errorf("%s: %+v, %v, wanted ErrSyntax", name, f, err)
		}
	}
	m := good()
	m.Attachments[0] = BytesAttachment("0", TypEncrypted, inner)
	if f, err := ParseForward(m); err != nil || !bytes.Equal(f.Envelope, inner) {
		t.Errorf("base64 attachment: %v", err)
	}
}

// TestOpaque changes every part of an envelope: whatever a key protects fails with
// the one error.
func TestOpaque(t *testing.T) {
	w := newTown(t)
	b := mustPack(t, letter(), PackOptions{From: w.sender(alice), To: []PublicKey{w.public(bob)}, ShowSender: true})
	flip := func(field string, at int) []byte {
		i := bytes.Index(b, []byte(`"`+field+`":"`)) + len(field) + 4 + at
		c := bytes.Clone(b)
		if c[i] == 'A' {
			c[i] = 'B'
		} else {
			c[i] = 'A'
		}
		return c
	}
	for _, field := range []string{"iv", "ciphertext", "tag", "encrypted_key"} {
		for _, at := range []int{0, 5, 12} {
			if _, err := Unpack(flip(field, at), w.of(bob), w); err != ErrOpen {
				t.Errorf("%s changed at %d: %v, wanted exactly ErrOpen", field, at, err)
			}
		}
	}
	w.hide[alice+"#agree"] = true
	if _, err := Unpack(b, w.of(bob), w); err != ErrOpen {
		t.Errorf("unknown sender: %v", err)
	}
	if _, err := Unpack(b, Keys{}, w); err != ErrOpen {
		t.Errorf("no key: %v", err)
	}
	w.hide = nil
	other, _ := ecdh.X25519().GenerateKey(rand.Reader)
	if _, err := Unpack(b, Keys{bob + "#agree": other}, w); err != ErrOpen {
		t.Errorf("wrong key: %v", err)
	}
	if _, err := Unpack(b, w.of(bob), nil); err != ErrOpen {
		t.Errorf("no resolver: %v", err)
	}
}

// TestAddressing seals what an honest Pack refuses.
func TestAddressing(t *testing.T) {
	w := newTown(t)
	seal := func(m *Message, sign *Signer, from string, to string) []byte {
		t.Helper()
		b, err := m.JSON()
		if err != nil {
			t.Fatal(err)
		}
		if sign != nil {
			if b, err = Sign(b, *sign); err != nil {
				t.Fatal(err)
			}
		}
		if from == "" {
			b, err = Anoncrypt(b, []PublicKey{w.public(to)})
		} else {
			b, err = Authcrypt(b, *w.sender(from), []PublicKey{w.public(to)})
		}
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	noFrom, noTo := letter(), letter()
	noFrom.From, noTo.To = "", nil
	for _, c := range []struct {
		name   string
		packed []byte
		at     string
	}{
		{"another's from", seal(letter(), nil, mia, bob), bob},
		{"no from under authcrypt", seal(noFrom, nil, alice, bob), bob},
		{"not addressed to us", seal(letter(), nil, alice, mia), mia},
		{"signed by another", seal(letter(), w.signer(mia), alice, bob), bob},
		{"signed letter passed on", seal(noTo, w.signer(alice), "", mia), mia},
	} {
		if u, err := Unpack(c.packed, w.of(c.at), w); !errors.Is(err, ErrAddressing) || u != nil {
			t.Errorf("%s: %v, wanted ErrAddressing", c.name, err)
		}
	}
	for name, o := range map[string]PackOptions{
		"from of another": {From: w.sender(mia), To: []PublicKey{w.public(bob)}},
		"to another":      {From: w.sender(alice), To: []PublicKey{w.public(mia)}},
		"sign as another": {Sign: w.signer(mia), To: []PublicKey{w.public(bob)}},
	} {
		if _, err := Pack(letter(), o); !errors.Is(err, ErrAddressing) {
			t.Errorf("pack %s: %v, wanted ErrAddressing", name, err)
		}
	}
}

// TestLayerOrder: combinations that DIDComm does not have.
func TestLayerOrder(t *testing.T) {
	w := newTown(t)
	plain, _ := letter().JSON()
	to := []PublicKey{w.public(bob)}
	auth := func(b []byte) []byte { return must(t)(Authcrypt(b, *w.sender(alice), to)) }
	anon := func(b []byte) []byte { return must(t)(Anoncrypt(b, to)) }
	sign := func(b []byte) []byte { return must(t)(Sign(b, *w.signer(alice))) }
	for name, b := range map[string][]byte{
		"auth of auth":               auth(auth(plain)),
		"auth of anon":               auth(anon(plain)),
		"anon of anon":               anon(anon(plain)),
		"sign of auth":               sign(auth(plain)),
		"sign of sign":               sign(sign(plain)),
		"anon of anon of auth":       anon(anon(auth(plain))),
		"neither":                    []byte(`{"x":1}`),
		"array":                      []byte(`[]`),
		"empty":                      nil,
		"anon of what is no message": anon([]byte("hello")),
	} {
		if _, err := Unpack(b, w.of(bob), w); !errors.Is(err, ErrSyntax) {
			t.Errorf("%s: %v, wanted ErrSyntax", name, err)
		}
	}
	if u, err := Unpack(sign(plain), nil, w); err != nil || u.Encrypted || !u.Authenticated() {
		t.Errorf("signed only: %+v, %v", u, err)
	}
	if u, err := Unpack(plain, nil, nil); err != nil || u.Encrypted || u.Authenticated() {
		t.Errorf("plain: %+v, %v", u, err)
	}
}

func must(t testing.TB) func([]byte, error) []byte {
	return func(b []byte, err error) []byte {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
}

// TestEnvelopeRefuses: forms that are refused before a key is used.
func TestEnvelopeRefuses(t *testing.T) {
	w := newTown(t)
	good := string(mustPack(t, letter(), PackOptions{From: w.sender(alice), To: []PublicKey{w.public(bob)}, ShowSender: true}))
	e, _ := parseJWE([]byte(good))
	head, _ := unb64(string(e.aad))
	rehead := func(old, new string) string {
		h := strings.Replace(string(head), old, new, 1)
		if h == string(head) {
			t.Fatalf("%s is not in the header", old)
		}
		return strings.Replace(good, string(e.aad), b64.EncodeToString([]byte(h)), 1)
	}
	kid := `{"header":{"kid":"` + bob + `#agree"},"encrypted_key":"` + b64.EncodeToString(e.wrapped[0]) + `"}`
	for name, text := range map[string]string{
		"duplicate member":    strings.Replace(good, `"iv":`, `"iv":"AA","iv":`, 1),
		"unprotected":         strings.Replace(good, `"iv":`, `"unprotected":{},"iv":`, 1),
		"aad":                 strings.Replace(good, `"iv":`, `"aad":"AA","iv":`, 1),
		"no recipient":        strings.Replace(good, kid, ``, 1),
		"recipient twice":     strings.Replace(good, kid, kid+","+kid, 1),
		"recipient added":     strings.Replace(good, kid, kid+`,{"header":{"kid":"did:example:x#k"},"encrypted_key":"AA"}`, 1),
		"line break":          strings.Replace(good, `"tag":"`, `"tag":"\n`, 1),
		"padding":             strings.Replace(good, `"}`, `="}`, 1),
		"trailing":            good + "{}",
		"crit":                rehead(`"alg"`, `"crit":["x"],"alg"`),
		"zip":                 rehead(`"alg"`, `"zip":"GZIP","alg"`),
		"header twice":        rehead(`"alg"`, `"enc":"A256GCM","alg"`),
		"alg":                 rehead(AlgAuthcrypt, "ECDH-1PU+A128KW"),
		"enc":                 rehead(EncCBC, "A128GCM"),
		"authcrypt with GCM":  rehead(EncCBC, EncGCM),
		"authcrypt with XC20": rehead(EncCBC, EncXC20P),
		"anoncrypt with skid": rehead(AlgAuthcrypt, AlgAnoncrypt),
		"skid and apu differ": rehead(alice+"#agree", alice+"#other"),
		"curve":               rehead("X25519", "X448"),
		"typ":                 rehead("didcomm-encrypted", "jose"),
	} {
		if _, err := Unpack([]byte(text), w.of(bob), w); !errors.Is(err, ErrSyntax) {
			t.Errorf("%s: %v, wanted ErrSyntax", name, err)
		}
	}
	if _, err := Unpack(make([]byte, MaxEnvelope+1), w.of(bob), w); err != ErrTooLarge {
		t.Errorf("too large: %v", err)
	}
	huge := letter()
	huge.Attachments = []Attachment{BytesAttachment("0", "", make([]byte, MaxEnvelope*3/4-1000))}
	if _, err := Pack(huge, PackOptions{From: w.sender(alice), To: []PublicKey{w.public(bob)}}); !errors.Is(err, ErrTooLarge) {
		t.Errorf("packing too much: %v", err)
	}
}

// TestLowOrderKeys: an ephemeral or static key that contributes nothing is refused.
func TestLowOrderKeys(t *testing.T) {
	zero, err := ecdh.X25519().NewPublicKey(make([]byte, 32))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Anoncrypt([]byte("{}"), []PublicKey{{bob + "#agree", zero}}); err == nil {
		t.Error("sealed to a key of low order")
	}
}

func TestMessageRefuses(t *testing.T) {
	long := strings.Repeat("x", MaxIDLength+1)
	for name, text := range map[string]string{
		"no id":               `{"type":"a/b","body":{}}`,
		"no type":             `{"id":"1","body":{}}`,
		"type no URI":         `{"id":"1","type":"x","body":{}}`,
		"duplicate":           `{"id":"1","id":"2","type":"a/b","body":{}}`,
		"duplicate inside":    `{"id":"1","type":"a/b","body":{"x":1,"x":2}}`,
		"wrong typ":           `{"id":"1","typ":"application/json","type":"a/b","body":{}}`,
		"body no object":      `{"id":"1","type":"a/b","body":[1]}`,
		"from no DID":         `{"id":"1","type":"a/b","from":"alice","body":{}}`,
		"to no DID":           `{"id":"1","type":"a/b","to":["did:x"],"body":{}}`,
		"to a string":         `{"id":"1","type":"a/b","to":"did:x:y","body":{}}`,
		"time a string":       `{"id":"1","type":"a/b","created_time":"1","body":{}}`,
		"time a fraction":     `{"id":"1","type":"a/b","created_time":1.5,"body":{}}`,
		"time negative":       `{"id":"1","type":"a/b","created_time":-1,"body":{}}`,
		"time too large":      `{"id":"1","type":"a/b","created_time":9223372036854775808,"body":{}}`,
		"expires first":       `{"id":"1","type":"a/b","created_time":5,"expires_time":4,"body":{}}`,
		"long id":             `{"id":"` + long + `","type":"a/b","body":{}}`,
		"bad UTF-8":           "{\"id\":\"\xff\",\"type\":\"a/b\",\"body\":{}}",
		"trailing":            `{"id":"1","type":"a/b","body":{}}x`,
		"cut":                 `{"id":"1","type":"a/b","body":{`,
		"case of names":       `{"ID":"1","type":"a/b","body":{}}`,
		"deep":                `{"id":"1","type":"a/b","body":{"a":` + strings.Repeat("[", 20000) + strings.Repeat("]", 20000) + `}}`,
		"too many addressees": `{"id":"1","type":"a/b","body":{},"to":[` + strings.Repeat(`"did:x:y",`, MaxTo) + `"did:x:y"]}`,
	} {
		if m, err := ParseMessage([]byte(text)); !errors.Is(err, ErrSyntax) {
			t.Errorf("%s: %+v, %v, wanted ErrSyntax", name, m, err)
		}
	}
	m, err := ParseMessage([]byte(`{"id":"1","type":"a/b","body":{"n":12345678901234567890},"x":{"y":1}}`))
	if err != nil {
		t.Fatal(err)
	}
	if b, _ := m.JSON(); !bytes.Contains(b, []byte(`"n":12345678901234567890`)) || !bytes.Contains(b, []byte(`"x":{"y":1}`)) {
		t.Errorf("unknown headers or large numbers are lost: %s", b)
	}
}

func TestThreadAndExpiry(t *testing.T) {
	m := letter()
	if m.Thread() != "1" {
		t.Error("a message without thid starts its own thread")
	}
	m.ThreadID = "t"
	if m.Thread() != "t" {
		t.Error("thid is the thread")
	}
	now := time.Unix(1_800_000_100, 0)
	if m.ExpiredAt(now) {
		t.Error("no expires_time, yet expired")
	}
	m.ExpiresTime = now.Unix()
	if !m.ExpiredAt(now) || m.ExpiredAt(now.Add(-time.Second)) {
		t.Error("expires_time is the first second of being expired")
	}
	if p, n := SplitType("https://fleetmesh.org/peering/1.0/propose"); p != "https://fleetmesh.org/peering/1.0" || n != "propose" {
		t.Errorf("type splits into %q and %q", p, n)
	}
}

func TestRotation(t *testing.T) {
	w := newTown(t)
	pack := func(jwt string) []byte {
		m := letter()
		m.FromPrior = jwt
		return mustPack(t, m, PackOptions{From: w.sender(alice), To: []PublicKey{w.public(bob)}})
	}
	jwt := func(p Prior, as *Signer) string {
		s, err := NewFromPrior(p, *as)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	good := jwt(Prior{Issuer: mia, Subject: alice, IssuedAt: 100}, w.signer(mia))
	u, err := Unpack(pack(good), w.of(bob), w)
	if err != nil || u.Prior == nil || *u.Prior != (Prior{mia, alice, 100, mia + "#auth"}) {
		t.Fatalf("rotation: %+v, %v", u, err)
	}
	k1, err := secp256k1.GeneratePrivateKey()
	if err != nil {
		t.Fatal(err)
	}
	k1Signer := Secp256k1Signer(mia+"#auth", k1)
	forms := map[string]string{
		"signed by another": jwt(Prior{Issuer: mia, Subject: alice, IssuedAt: 100}, w.signer(noa)),
		"for another":       jwt(Prior{Issuer: mia, Subject: noa, IssuedAt: 100}, w.signer(mia)),
		"to itself":         jwt(Prior{Issuer: alice, Subject: alice, IssuedAt: 100}, w.signer(alice)),
		"no time":           jwt(Prior{Issuer: mia, Subject: alice}, w.signer(mia)),
		"other algorithm":   jwt(Prior{Issuer: mia, Subject: alice, IssuedAt: 100}, &k1Signer),
		"changed":           good[:len(good)-4] + "AAAA",
		"two parts":         good[:strings.LastIndexByte(good, '.')],
		"alg none":          b64.EncodeToString([]byte(`{"alg":"none","kid":"`+mia+`#auth"}`)) + good[strings.IndexByte(good, '.'):],
		"nonsense":          "x",
	}
	for name, jwt := range forms {
		if u, err := Unpack(pack(jwt), w.of(bob), w); !errors.Is(err, ErrRotation) || u != nil {
			t.Errorf("%s: %v, wanted ErrRotation and no message", name, err)
		}
	}
}

func TestRotationFollows(t *testing.T) {
	now, skew := time.Unix(1000, 0), time.Minute
	p := Prior{Issuer: mia, Subject: alice, IssuedAt: 900}
	at := func(iat int64, subject string) Prior { return Prior{Issuer: mia, Subject: subject, IssuedAt: iat} }
	for _, c := range []struct {
		name    string
		last    Prior
		changed bool
		err     error
	}{
		{"first", Prior{}, true, nil},
		{"newer", at(899, bob), true, nil},
		{"the same again", at(900, alice), false, nil},
		{"same time, other subject", at(900, bob), false, ErrRotationReplay},
		{"older", at(901, alice), false, ErrRotationReplay},
		{"another issuer", Prior{Issuer: bob, Subject: alice, IssuedAt: 1}, false, ErrRotation},
	} {
		if changed, err := p.Follows(c.last, now, skew); changed != c.changed || !errors.Is(err, c.err) {
			t.Errorf("%s: %v, %v", c.name, changed, err)
		}
	}
	if _, err := at(1061, alice).Follows(Prior{}, now, skew); !errors.Is(err, ErrRotation) {
		t.Errorf("from the future: %v", err)
	}
}

func TestSignatures(t *testing.T) {
	k, err := secp256k1.GeneratePrivateKey()
	if err != nil {
		t.Fatal(err)
	}
	s := Secp256k1Signer(alice+"#auth", k)
	sig, err := s.Sign([]byte("x"))
	if err != nil || !verify(k.PubKey(), AlgES256K, []byte("x"), sig) {
		t.Fatalf("ES256K: %v", err)
	}
	if verify(k.PubKey(), AlgES256K, []byte("y"), sig) || verify(k.PubKey(), AlgEdDSA, []byte("x"), sig) || verify(k.PubKey(), AlgES256K, []byte("x"), sig[:63]) {
		t.Error("a wrong signature verified")
	}
	zero := make([]byte, 64)
	if verify(k.PubKey(), AlgES256K, []byte("x"), zero) || verify(nil, AlgEdDSA, []byte("x"), sig) {
		t.Error("a zero signature or no key verified")
	}
	w := newTown(t)
	plain, _ := letter().JSON()
	b := must(t)(Sign(plain, *w.signer(alice)))
	two := strings.Replace(string(b), `"signatures":[`, `"signatures":[{"protected":"e30","signature":"AA","header":{"kid":"`+alice+`#x"}},`, 1)
	if _, err := Unpack([]byte(two), nil, w); err == nil {
		t.Error("one bad signature of two was ignored")
	}
	if slices.Contains(b, '\n') {
		t.Error("written on several lines")
	}
}
