package nostr

import (
	"crypto/hkdf"
	"crypto/sha256"
	"encoding/csv"
	"encoding/hex"
	"encoding/json"
	"math/rand/v2"
	"os"
	"strings"
	"testing"

	"fleetmesh.org/fleetmesh/internal/vectors"
)

// Every real event parses, keeps its text, has the right id in all three ways and
// a good signature; the signature of its neighbour is bad.
func TestRealEvents(t *testing.T) {
	var events, mixed []*Event
	for _, line := range realEvents(t) {
		e := parseBoth(t, string(line))
		var tags [][]string
		for _, tag := range e.Tags {
			tags = append(tags, tag)
		}
		if id := naiveID(e.PubKey.String(), e.CreatedAt, int(e.Kind), tags, e.Content); id != e.ID.String() {
			t.Errorf("independent id of %s is %s", e.ID, id)
		}
		wrong := *e
		if len(events) > 0 {
			wrong.Sig = events[len(events)-1].Sig
		} else {
			wrong.Sig[40] ^= 1
		}
		events, mixed = append(events, e), append(mixed, e, &wrong)
	}
	if len(events) < 1000 {
		t.Fatalf("only %d events", len(events))
	}
	for i, ok := range NewVerifier().Verify(mixed) {
		if ok != (i%2 == 0) {
			t.Errorf("event %s, wrong signature %v: verdict %v", mixed[i].ID, i%2 == 1, ok)
		}
	}
}

// 10,000 random strings, rich in what encoders trip over, get the id of the
// independent implementation: as content, as tag value, and through the text.
func TestRandomStringsHaveTheIndependentID(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	alphabet := []rune("<>&'\"\\/\n\r\t\b\f\x00\x01\x1f\x7f\u0080\u0085\u2028\u2029\ufeff\ufffd\uffff😀\U0010ffffé漢ab{}[]:, ")
	for range 10000 {
		var b strings.Builder
		for range rng.IntN(40) {
			if rng.IntN(8) == 0 {
				r := rune(rng.IntN(0x110000))
				if r >= 0xd800 && r < 0xe000 {
					r = ' '
				}
				b.WriteRune(r)
			} else {
				b.WriteRune(alphabet[rng.IntN(len(alphabet))])
			}
		}
		s := b.String()
		e := &Event{PubKey: secret(3).PubKey(), CreatedAt: caseTime, Kind: 1, Tags: []Tag{{"t", s}}, Content: s}
		e.ID = e.ComputeID()
		if want := naiveID(keyA, caseTime, 1, [][]string{{"t", s}}, s); e.ID.String() != want {
			t.Fatalf("%q: id %s, independent id %s", s, e.ID, want)
		}
		if got := parseBoth(t, string(e.JSON())); got.Content != s || got.Tags[0][1] != s {
			t.Fatalf("%q came back as %q", s, got.Content)
		}
	}
}

func unhex(t testing.TB, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(s)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// The rows of BIP-340 whose message is 32 bytes long, as all event ids are.
func TestBIP340(t *testing.T) {
	f, err := os.Open(vectors.Path(t, "bip340", "test-vectors.csv"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	rows, err := csv.NewReader(f).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	tried := 0
	for _, row := range rows[1:] {
		if len(row[4]) != 64 {
			continue
		}
		tried++
		e := &Event{PubKey: PubKey(unhex(t, row[2])), ID: ID(unhex(t, row[4])), Sig: Sig(unhex(t, row[5]))}
		if got := NewVerifier().Verify([]*Event{e})[0]; got != (row[6] == "TRUE") {
			t.Errorf("row %s (%s): verdict %v", row[0], row[7], got)
		}
		if row[1] == "" {
			continue
		}
		if k := SecretKey(unhex(t, row[1])); k.PubKey() != e.PubKey {
			t.Errorf("row %s: public key %s", row[0], k.PubKey())
		}
	}
	if tried < 15 {
		t.Errorf("only %d rows", tried)
	}
}

type nip44Vectors struct {
	V2 struct {
		Valid struct {
			ConversationKey []struct{ Sec1, Pub2, Conversation_key string } `json:"get_conversation_key"`
			MessageKeys     struct {
				Key  string `json:"conversation_key"`
				Keys []struct{ Nonce, Chacha_key, Chacha_nonce, Hmac_key string }
			} `json:"get_message_keys"`
			PaddedLen [][2]int `json:"calc_padded_len"`
			Encrypt   []struct {
				Sec1, Sec2, Conversation_key, Nonce, Plaintext, Payload string
			} `json:"encrypt_decrypt"`
			Long []struct {
				Conversation_key, Nonce, Pattern string
				Repeat                           int
				Plaintext_sha256, Payload_sha256 string
			} `json:"encrypt_decrypt_long_msg"`
		}
		Invalid struct {
			Lengths         []int                               `json:"encrypt_msg_lengths"`
			ConversationKey []struct{ Sec1, Pub2, Note string } `json:"get_conversation_key"`
			Decrypt         []struct{ Conversation_key, Payload, Note string }
		}
	}
}

func loadNIP44(t *testing.T) *nip44Vectors {
	b, err := os.ReadFile(vectors.Path(t, "nip44", "nip44.vectors.json"))
	if err != nil {
		t.Fatal(err)
	}
	v := new(nip44Vectors)
	if err := json.Unmarshal(b, v); err != nil {
		t.Fatal(err)
	}
	if len(v.V2.Valid.Encrypt) == 0 || len(v.V2.Invalid.Decrypt) == 0 || len(v.V2.Valid.MessageKeys.Keys) == 0 {
		t.Fatal("the vectors were not read")
	}
	return v
}

func key32(t testing.TB, s string) [32]byte { return [32]byte(unhex(t, s)) }

func TestNIP44Keys(t *testing.T) {
	v := loadNIP44(t).V2
	for _, c := range v.Valid.ConversationKey {
		got, err := ConversationKey(key32(t, c.Sec1), key32(t, c.Pub2))
		if err != nil || got != key32(t, c.Conversation_key) {
			t.Errorf("%s, %s: %x, %v", c.Sec1, c.Pub2, got, err)
		}
	}
	for _, c := range v.Invalid.ConversationKey {
		if got, err := ConversationKey(key32(t, c.Sec1), key32(t, c.Pub2)); err == nil {
			t.Errorf("%s: %x", c.Note, got)
		}
	}
	for _, c := range v.Valid.MessageKeys.Keys {
		got, err := deriveMessageKeys(key32(t, v.Valid.MessageKeys.Key), unhex(t, c.Nonce))
		if err != nil || hex.EncodeToString(got) != c.Chacha_key+c.Chacha_nonce+c.Hmac_key {
			t.Errorf("%s: %x, %v", c.Nonce, got, err)
		}
	}
	for _, c := range v.Valid.PaddedLen {
		if got := paddedLength(c[0]); got != c[1] {
			t.Errorf("%d is padded to %d, want %d", c[0], got, c[1])
		}
	}
}

func TestNIP44Messages(t *testing.T) {
	v := loadNIP44(t).V2
	for _, c := range v.Valid.Encrypt {
		key := key32(t, c.Conversation_key)
		a, b := SecretKey(key32(t, c.Sec1)), SecretKey(key32(t, c.Sec2))
		for _, pair := range [][2]SecretKey{{a, b}, {b, a}} {
			if got, err := ConversationKey(pair[0], pair[1].PubKey()); err != nil || got != key {
				t.Errorf("conversation key %x, %v", got, err)
			}
		}
		if got, err := encryptWithNonce(c.Plaintext, key, key32(t, c.Nonce)); err != nil || got != c.Payload {
			t.Errorf("%q: %s, %v", c.Plaintext, got, err)
		}
		if got, err := Decrypt(c.Payload, key); err != nil || got != c.Plaintext {
			t.Errorf("%q: %q, %v", c.Plaintext, got, err)
		}
	}
	for _, c := range v.Valid.Long {
		checkLong(t, c.Conversation_key, c.Nonce, strings.Repeat(c.Pattern, c.Repeat), c.Plaintext_sha256, c.Payload_sha256)
	}
	for _, c := range v.Invalid.Decrypt {
		if got, err := Decrypt(c.Payload, key32(t, c.Conversation_key)); err == nil {
			t.Errorf("%s: %q", c.Note, got)
		}
	}
	for _, n := range v.Invalid.Lengths {
		// Since these vectors were made NIP-44 has given lengths from 65536 on a longer prefix.
		if n >= nip44Long {
			continue
		}
		if _, err := Encrypt(strings.Repeat("x", n), [32]byte{}); err == nil {
			t.Errorf("%d bytes were encrypted", n)
		}
	}
}

// The vectors of the text of NIP-44 for the longer prefix.
func TestNIP44LongPrefix(t *testing.T) {
	const key = "c41c775356fd92eadc63ff5a0dc1da211b268cbea22316767095b2871ea1412d"
	const nonce = "0000000000000000000000000000000000000000000000000000000000000001"
	checkLong(t, key, nonce, strings.Repeat("a", 65535), "6e1bebca6a8229364a162a72ef064826c4cd7457bf54f190ef782bd9deff3e42", "6d8c2810d1e870fbaa1f0a0937126cca837a15f9260e27060c331d70a3c0bc84")
	checkLong(t, key, nonce, strings.Repeat("a", 65536), "bf718b6f653bebc184e1479f1935b8da974d701b893afcf49e701f3e2f9f9c5a", "b7b4edb36ba92e267d322d56d9aebc22e7fa96ff52e3c12adc07f07a43cbc616")
	checkLong(t, key, nonce, strings.Repeat("a", 65537), "008ffc88d3c96a9f307524eb361e47c5222a887fc45fa0c1fb8d429c5c23b430", "eeb7c7c5373894ea2c1547cfd3ccb15d5a0b2d619da852e5c79df792dcc9e435")
}

func checkLong(t *testing.T, key, nonce, plain, plainSum, payloadSum string) {
	t.Helper()
	sum := func(s string) string {
		h := sha256.Sum256([]byte(s))
		return hex.EncodeToString(h[:])
	}
	payload, err := encryptWithNonce(plain, key32(t, key), key32(t, nonce))
	if err != nil || sum(plain) != plainSum || sum(payload) != payloadSum {
		t.Errorf("%d bytes: plaintext %s, payload %s, %v", len(plain), sum(plain), sum(payload), err)
	}
	if got, err := Decrypt(payload, key32(t, key)); err != nil || got != plain {
		t.Errorf("%d bytes: %d bytes, %v", len(plain), len(got), err)
	}
}

func TestDecryptRefuses(t *testing.T) {
	var key [32]byte
	good, err := encryptWithNonce("hello", key, [32]byte{1})
	if err != nil {
		t.Fatal(err)
	}
	for name, bad := range map[string]string{
		"empty": "", "other encoding": "#" + good, "short": good[:100], "line break": good[:40] + "\n" + good[40:],
		"cut": good[:len(good)-4], "changed": good[:60] + "AAAA" + good[64:], "version": "A" + "Q" + good[2:], "url": strings.Repeat("-", len(good)),
	} {
		if got, err := Decrypt(bad, key); err == nil {
			t.Errorf("%s: %q", name, got)
		}
	}
}

// HKDF-SHA256 comes from the standard library; the edge cases of Wycheproof
// are run against it in the form that NIP-44 uses it in: extract, then expand.
func TestHKDFWycheproof(t *testing.T) {
	b, err := os.ReadFile(vectors.Path(t, "wycheproof", "hkdf_sha256_test.json"))
	if err != nil {
		t.Fatal(err)
	}
	var v struct {
		TestGroups []struct {
			Tests []struct {
				TcID                         int
				Ikm, Salt, Info, Okm, Result string
				Size                         int
			}
		}
	}
	if err := json.Unmarshal(b, &v); err != nil {
		t.Fatal(err)
	}
	tried := 0
	for _, g := range v.TestGroups {
		for _, c := range g.Tests {
			tried++
			prk, err := hkdf.Extract(sha256.New, unhex(t, c.Ikm), unhex(t, c.Salt))
			if err != nil {
				t.Fatal(err)
			}
			okm, err := hkdf.Expand(sha256.New, prk, string(unhex(t, c.Info)), c.Size)
			if (err == nil) != (c.Result == "valid") || err == nil && hex.EncodeToString(okm) != c.Okm {
				t.Errorf("test %d (%s): %x, %v", c.TcID, c.Result, okm, err)
			}
		}
	}
	if tried < 50 {
		t.Errorf("only %d tests", tried)
	}
}
