package nostr

import (
	"encoding/hex"
	"errors"
	"strings"
	"testing"
)

const (
	nip49Text = "ncryptsec1qgg9947rlpvqu76pj5ecreduf9jxhselq2nae2kghhvd5g7dgjtcxfqtd67p9m0w57lspw8gsq6yphnm8623nsl8xn9j4jdzz84zm3frztj3z7s35vpzmqf6ksu8r89qk5z2zxfmu5gv8th8wclt0h4p"
	nip49Key  = "3501454135014541350145413501453fefb02227e449e57cf4d3a3ce05378683"
)

func TestNIP49Official(t *testing.T) {
	k, _, err := DecryptSecretKey(nip49Text, "nostr")
	if err != nil || hex.EncodeToString(k[:]) != nip49Key {
		t.Fatalf("%x, %v", k, err)
	}
	if _, _, err := DecryptSecretKey(nip49Text, "Nostr"); !errors.Is(err, ErrPassphrase) {
		t.Errorf("a wrong passphrase: %v", err)
	}
	for _, bad := range []string{"", "nsec1", nip49Text[:60], strings.Replace(nip49Text, "qgg9", "qgg8", 1)} {
		if _, _, err := DecryptSecretKey(bad, "nostr"); err == nil || errors.Is(err, ErrPassphrase) {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

func TestNIP49RoundTrip(t *testing.T) {
	k, err := GenerateKey()
	if err != nil {
		t.Fatal(err)
	}
	text, err := EncryptSecretKey(k, "\u212b\u2126\u1e9b\u0323", 4, KeySecurityGood)
	if err != nil {
		t.Fatal(err)
	}
	// The passphrase in another Unicode form is the same passphrase.
	got, how, err := DecryptSecretKey(text, "\u00c5\u03a9\u1e69")
	if err != nil || got != k || how != KeySecurityGood {
		t.Fatalf("%v, %d, %v", got == k, how, err)
	}
	if _, err := EncryptSecretKey(k, "x", 40, KeySecurityGood); err == nil {
		t.Error("a cost of 2^50 octets was accepted")
	}
	if _, err := EncryptSecretKey(SecretKey{}, "x", 4, KeySecurityGood); err == nil {
		t.Error("the zero key was encrypted")
	}
}

func FuzzDecryptSecretKey(f *testing.F) {
	f.Add(nip49Text, "nostr")
	f.Add("ncryptsec1qqqq", "")
	f.Fuzz(func(t *testing.T, text, passphrase string) {
		if _, data, err := decodeBech32(text); err == nil && len(data) > 1 && data[1] > 10 {
			t.Skip("too costly to try")
		}
		if k, _, err := DecryptSecretKey(text, passphrase); err == nil && !k.valid() {
			t.Error("a key that is none")
		}
	})
}
