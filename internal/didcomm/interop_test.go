package didcomm

import (
	"bytes"
	"crypto"
	"crypto/ecdh"
	"crypto/ed25519"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/decred/dcrd/dcrec/secp256k1/v4"
)

// The foreign implementation: didcomm-rust as WebAssembly.
const foreignPeer = "didcomm-node@0.4.1"

type foreignPack struct {
	Message       json.RawMessage `json:"message"`
	From          string          `json:"from,omitempty"`
	To            string          `json:"to,omitempty"`
	SignBy        string          `json:"sign_by,omitempty"`
	SignedOnly    bool            `json:"signed_only,omitempty"`
	Forward       bool            `json:"forward,omitempty"`
	ProtectSender bool            `json:"protect_sender,omitempty"`
	Enc           string          `json:"enc,omitempty"`
	Prior         map[string]any  `json:"prior,omitempty"`
}

type foreignJob struct {
	Docs    []any         `json:"docs"`
	Secrets []any         `json:"secrets"`
	Pack    []foreignPack `json:"pack"`
	Unpack  []string      `json:"unpack"`
}

type foreignAnswer struct {
	Packed []struct {
		Packed, Error string
	} `json:"packed"`
	Unpacked []struct {
		Message json.RawMessage
		Next    string
		Error   string
		Meta    struct {
			Encrypted       bool   `json:"encrypted"`
			Authenticated   bool   `json:"authenticated"`
			NonRepudiation  bool   `json:"non_repudiation"`
			AnonymousSender bool   `json:"anonymous_sender"`
			EncryptedFrom   string `json:"encrypted_from_kid"`
			SignFrom        string `json:"sign_from"`
			PriorIssuer     string `json:"from_prior_issuer_kid"`
		}
	} `json:"unpacked"`
}

// foreign runs the peer on a job. It is skipped where npm is absent or cannot
// fetch it, but fails there when CI=true.
func foreign(t *testing.T, job foreignJob) foreignAnswer {
	t.Helper()
	absent := func(format string, args ...any) {
		t.Helper()
		if os.Getenv("CI") == "true" {
			t.Fatalf(format, args...)
		}
		t.Skipf(format, args...)
	}
	for _, tool := range []string{"npm", "node"} {
		if _, err := exec.LookPath(tool); err != nil {
			absent("the foreign DIDComm peer needs %s, which is not here", tool)
		}
	}
	dir := t.TempDir()
	install := exec.Command("npm", "install", "--no-audit", "--no-fund", "--ignore-scripts", "--prefix", dir, foreignPeer)
	install.Dir = dir
	if out, err := install.CombinedOutput(); err != nil {
		absent("npm cannot install the foreign DIDComm peer %s: %v\n%s", foreignPeer, err, out)
	}
	script, err := os.ReadFile(filepath.Join("testdata", "interop", "peer.js"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "peer.js"), script, 0o600); err != nil {
		t.Fatal(err)
	}
	in, err := json.Marshal(job)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "node", "peer.js")
	cmd.Dir, cmd.Stdin = dir, bytes.NewReader(in)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("the foreign peer: %v\n%s", err, stderr.Bytes())
	}
	var a foreignAnswer
	if err := json.Unmarshal(out, &a); err != nil {
		t.Fatalf("the foreign peer says %.400s: %v", out, err)
	}
	return a
}

// abroad is a town whose keys the foreign peer knows: each DID has X25519 and P-256
// agreement keys and Ed25519 and secp256k1 signature keys.
type abroad struct {
	*town
	k1 map[string]*secp256k1.PrivateKey
}

func (a *abroad) VerificationKey(kid string) (crypto.PublicKey, error) {
	if k, ok := a.k1[kid]; ok {
		return k.PubKey(), nil
	}
	return a.town.VerificationKey(kid)
}

func (a *abroad) AgreementKeys(id string) ([]PublicKey, error) {
	if strings.HasSuffix(id, "#p256") {
		return []PublicKey{{id, a.keys[id].PublicKey()}}, nil
	}
	return a.town.AgreementKeys(id)
}

func newAbroad(t *testing.T) (*abroad, foreignJob) {
	t.Helper()
	a := &abroad{newTown(t), map[string]*secp256k1.PrivateKey{}}
	var job foreignJob
	for _, did := range []string{alice, bob, mia, noa} {
		p, err := ecdh.P256().NewPrivateKey(a.keys[did+"#agree"].Bytes())
		if err != nil {
			t.Fatal(err)
		}
		a.keys[did+"#p256"] = p
		a.k1[did+"#k1"] = secp256k1.PrivKeyFromBytes(p.Bytes())
		var methods []any
		add := func(kid string, public JWK, d []byte) {
			methods = append(methods, map[string]any{"id": kid, "type": "JsonWebKey2020", "controller": did, "publicKeyJwk": public})
			public.D = b64.EncodeToString(d)
			job.Secrets = append(job.Secrets, map[string]any{"id": kid, "type": "JsonWebKey2020", "privateKeyJwk": public})
		}
		for _, kid := range []string{did + "#agree", did + "#p256"} {
			j, err := AgreementJWK(a.keys[kid].PublicKey())
			if err != nil {
				t.Fatal(err)
			}
			add(kid, j, a.keys[kid].Bytes())
		}
		ed := a.sign[did+"#auth"]
		add(did+"#auth", JWK{Kty: "OKP", Crv: "Ed25519", X: b64.EncodeToString(ed.Public().(ed25519.PublicKey))}, ed.Seed())
		point := a.k1[did+"#k1"].PubKey().SerializeUncompressed()[1:]
		add(did+"#k1", JWK{Kty: "EC", Crv: "secp256k1", X: b64.EncodeToString(point[:32]), Y: b64.EncodeToString(point[32:])}, p.Bytes())
		doc := map[string]any{"id": did, "keyAgreement": []string{did + "#agree", did + "#p256"},
			"authentication": []string{did + "#auth", did + "#k1"}, "verificationMethod": methods, "service": []any{}}
		if did == bob {
			doc["service"] = []any{map[string]any{"id": bob + "#didcomm", "type": "DIDCommMessaging", "serviceEndpoint": map[string]any{
				"uri": "https://example.org", "accept": []string{"didcomm/v2"}, "routingKeys": []string{mia + "#agree", noa + "#agree"}}}}
		}
		job.Docs = append(job.Docs, doc)
	}
	return a, job
}

// foreignLetter is a message in the form that the peer takes.
const foreignLetter = `{"id":"77","typ":"application/didcomm-plain+json","type":"https://example.org/letter/1.0/letter",
	"from":"did:example:a","to":["did:example:b"],"created_time":1800000000,"expires_time":1800000600,"thid":"t","body":{"text":"grüß dich"},
	"attachments":[{"id":"1","media_type":"application/json","data":{"json":{"x":[1,2]}}},{"id":"2","data":{"base64":"aGVsbG8"}}]}`

// TestForeign packs here what the foreign peer unpacks and unpacks what it packs.
func TestForeign(t *testing.T) {
	a, job := newAbroad(t)
	ours := foreignOurs(t, a)
	for _, c := range ours {
		job.Unpack = append(job.Unpack, string(c.packed))
	}
	theirs := foreignTheirs()
	for _, c := range theirs {
		c.pack.Message = json.RawMessage(foreignLetter)
		job.Pack = append(job.Pack, c.pack)
	}
	answer := foreign(t, job)
	if len(answer.Packed) != len(theirs) || len(answer.Unpacked) != len(ours) {
		t.Fatalf("%d packed, %d unpacked, wanted %d and %d", len(answer.Packed), len(answer.Unpacked), len(theirs), len(ours))
	}
	want, _ := foreignMessage(t).JSON()
	for i, c := range ours {
		t.Run("they unpack/"+c.name, func(t *testing.T) {
			got := answer.Unpacked[i]
			if got.Error != "" {
				t.Fatal(got.Error)
			}
			m := got.Meta
			if m.EncryptedFrom != c.want.SenderKID || m.SignFrom != c.want.SignerKID || m.AnonymousSender != c.want.SenderHidden ||
				m.Encrypted != c.want.Encrypted || c.next != got.Next || (m.PriorIssuer != "") != (c.want.Prior != nil) {
				t.Errorf("they see %+v next %q, wanted %+v next %q", m, got.Next, c.want, c.next)
			}
			sameJSON(t, got.Message, want)
		})
	}
	for i, c := range theirs {
		t.Run("we unpack/"+c.name, func(t *testing.T) {
			got := answer.Packed[i]
			if got.Error != "" {
				t.Fatal(got.Error)
			}
			packed := []byte(got.Packed)
			for _, hop := range c.via {
				u, err := Unpack(packed, a.of(hop), a)
				if err != nil {
					t.Fatalf("at %s: %v", hop, err)
				}
				f, err := ParseForward(u.Message)
				if err != nil {
					t.Fatalf("at %s: %v", hop, err)
				}
				packed = f.Envelope
			}
			u, err := Unpack(packed, a.keys, a)
			if err != nil {
				t.Fatal(err)
			}
			if u.SenderKID != c.want.SenderKID || u.SignerKID != c.want.SignerKID || u.SenderHidden != c.want.SenderHidden || u.Encrypted != c.want.Encrypted {
				t.Errorf("we see %+v, wanted %+v", u, c.want)
			}
			if (u.Prior != nil) != (c.want.Prior != nil) || u.Prior != nil && (u.Prior.Issuer != mia || u.Prior.IssuedAt != 1_700_000_000) {
				t.Errorf("prior %+v, wanted %+v", u.Prior, c.want.Prior)
			}
			b, _ := u.Message.JSON()
			sameJSON(t, b, want)
		})
	}
}

func foreignMessage(t *testing.T) *Message {
	t.Helper()
	m, err := ParseMessage([]byte(foreignLetter))
	if err != nil {
		t.Fatal(err)
	}
	return m
}

type ourCase struct {
	name   string
	packed []byte
	next   string
	want   Unpacked
}

// foreignOurs is what we pack.
func foreignOurs(t *testing.T, a *abroad) []ourCase {
	t.Helper()
	k1 := Secp256k1Signer(alice+"#k1", a.k1[alice+"#k1"])
	to := []PublicKey{a.public(bob)}
	n := 0
	id := func() string { n++; return fmt.Sprint("f", n) }
	var cases []ourCase
	add := func(name string, o PackOptions, next string, want Unpacked) {
		m := foreignMessage(t)
		if want.Prior != nil {
			jwt, err := NewFromPrior(*want.Prior, *a.signer(mia))
			if err != nil {
				t.Fatal(err)
			}
			m.FromPrior = jwt
		}
		want.Encrypted = true
		cases = append(cases, ourCase{name, mustPack(t, m, o), next, want})
	}
	sent, auth := alice+"#agree", alice+"#auth"
	add("anoncrypt", PackOptions{To: to}, "", Unpacked{SenderHidden: true})
	add("authcrypt", PackOptions{To: to, From: a.sender(alice), ShowSender: true}, "", Unpacked{SenderKID: sent})
	add("hidden authcrypt", PackOptions{To: to, From: a.sender(alice)}, "", Unpacked{SenderKID: sent, SenderHidden: true})
	add("several keys", PackOptions{To: []PublicKey{a.public(bob), {bob + "#again", a.public(mia).Key}}, From: a.sender(alice), ShowSender: true}, "",
		Unpacked{SenderKID: sent})
	add("authcrypt over EdDSA", PackOptions{To: to, From: a.sender(alice), Sign: a.signer(alice), ShowSender: true}, "",
		Unpacked{SenderKID: sent, SignerKID: auth})
	add("anoncrypt over ES256K", PackOptions{To: to, Sign: &k1}, "", Unpacked{SignerKID: alice + "#k1", SenderHidden: true})
	add("authcrypt P-256", PackOptions{To: []PublicKey{{bob + "#p256", a.keys[bob+"#p256"].PublicKey()}},
		From: &Sender{alice + "#p256", a.keys[alice+"#p256"]}, ShowSender: true}, "", Unpacked{SenderKID: alice + "#p256"})
	add("from_prior", PackOptions{To: to, From: a.sender(alice), ShowSender: true}, "",
		Unpacked{SenderKID: sent, Prior: &Prior{Issuer: mia, Subject: alice, IssuedAt: 1_700_000_000}})
	add("forward", PackOptions{To: to, From: a.sender(alice), ShowSender: true, Via: []PublicKey{a.public(mia)}, ForwardID: id}, bob, Unpacked{SenderKID: sent})
	add("forward twice, hidden", PackOptions{To: to, From: a.sender(alice), Via: []PublicKey{a.public(mia), a.public(noa)}, ForwardID: id}, bob,
		Unpacked{SenderKID: sent, SenderHidden: true})
	return cases
}

type theirCase struct {
	name string
	pack foreignPack
	via  []string
	want Unpacked
}

// foreignTheirs is what they pack.
func foreignTheirs() []theirCase {
	sent, auth := alice+"#agree", alice+"#auth"
	return []theirCase{
		{"signed EdDSA", foreignPack{SignedOnly: true, SignBy: auth}, nil, Unpacked{SignerKID: auth}},
		{"signed ES256K", foreignPack{SignedOnly: true, SignBy: alice + "#k1"}, nil, Unpacked{SignerKID: alice + "#k1"}},
		{"anoncrypt A256CBC-HS512", foreignPack{To: bob}, nil, Unpacked{Encrypted: true, SenderHidden: true}},
		{"anoncrypt A256GCM", foreignPack{To: bob, Enc: "A256gcmEcdhEsA256kw"}, nil, Unpacked{Encrypted: true, SenderHidden: true}},
		{"anoncrypt XC20P", foreignPack{To: bob, Enc: "Xc20pEcdhEsA256kw"}, nil, Unpacked{Encrypted: true, SenderHidden: true}},
		{"anoncrypt P-256", foreignPack{To: bob + "#p256"}, nil, Unpacked{Encrypted: true, SenderHidden: true}},
		{"authcrypt", foreignPack{From: alice, To: bob}, nil, Unpacked{Encrypted: true, SenderKID: sent}},
		{"authcrypt P-256", foreignPack{From: alice + "#p256", To: bob + "#p256"}, nil, Unpacked{Encrypted: true, SenderKID: alice + "#p256"}},
		{"authcrypt over EdDSA", foreignPack{From: alice, To: bob, SignBy: auth}, nil, Unpacked{Encrypted: true, SenderKID: sent, SignerKID: auth}},
		{"hidden authcrypt", foreignPack{From: alice, To: bob, ProtectSender: true}, nil, Unpacked{Encrypted: true, SenderKID: sent, SenderHidden: true}},
		{"from_prior", foreignPack{From: alice, To: bob, Prior: map[string]any{"iss": mia, "sub": alice, "iat": 1_700_000_000}}, nil,
			Unpacked{Encrypted: true, SenderKID: sent, Prior: &Prior{}}},
		{"forward through two", foreignPack{From: alice, To: bob, Forward: true}, []string{mia, noa}, Unpacked{Encrypted: true, SenderKID: sent}},
	}
}

// sameJSON compares messages but for from_prior and members that are null.
func sameJSON(t *testing.T, got, want []byte) {
	t.Helper()
	read := func(b []byte) map[string]any {
		var m map[string]any
		if err := json.Unmarshal(b, &m); err != nil {
			t.Fatalf("%s: %v", b, err)
		}
		prune(m)
		delete(m, "from_prior")
		return m
	}
	if g, w := read(got), read(want); !reflect.DeepEqual(g, w) {
		t.Errorf("message is\n%v\nwanted\n%v", g, w)
	}
}

func prune(v any) {
	switch v := v.(type) {
	case map[string]any:
		for k, e := range v {
			if e == nil {
				delete(v, k)
			}
			prune(e)
		}
	case []any:
		for _, e := range v {
			prune(e)
		}
	}
}
