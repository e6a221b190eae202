package nostr

import (
	"reflect"
	"strings"
	"testing"
)

func TestNIP19Examples(t *testing.T) {
	for _, c := range []struct{ npub, key string }{
		{"npub180cvv07tjdrrgpa0j7j7tmnyl2yr6yr7l8j4s3evf6u64th6gkwsyjh6w6", "3bf0c63fcb93463407af97a5e5ee64fa883d107ef9e558472c4eb9aaaefa459d"},
		{"npub10elfcs4fr0l0r8af98jlmgdh9c8tcxjvz9qkw038js35mp4dma8qzvjptg", "7e7e9c42a91bfef19fa929e5fda1b72e0ebc1a4c1141673e2794234d86addf4e"},
	} {
		k, err := ParsePubKey(c.npub)
		if err != nil || k.String() != c.key || EncodeNpub(k) != c.npub {
			t.Errorf("%s: %s, %v", c.npub, k, err)
		}
	}
	const nsec = "nsec1vl029mgpspedva04g90vltkh6fvh240zqtv9k0t9af8935ke9laqsnlfe5"
	k, err := ParseSecretKey(nsec)
	if err != nil || k != key32(t, "67dea2ed018072d675f5415ecfaed7d2597555e202d85b3d65ea4e58d2d92ffa") || EncodeNsec(k) != nsec {
		t.Errorf("%s: %v", nsec, err)
	}
	const nprofile = "nprofile1qqsrhuxx8l9ex335q7he0f09aej04zpazpl0ne2cgukyawd24mayt8gpp4mhxue69uhhytnc9e3k7mgpz4mhxue69uhkg6nzv9ejuumpv34kytnrdaksjlyr9p"
	e, err := DecodeNIP19(nprofile)
	if err != nil || e.PubKey.String() != "3bf0c63fcb93463407af97a5e5ee64fa883d107ef9e558472c4eb9aaaefa459d" ||
		!reflect.DeepEqual(e.Relays, []string{"wss://r.x.com", "wss://djbas.sadkb.com"}) {
		t.Errorf("%s: %+v, %v", nprofile, e, err)
	}
	if got := EncodeNprofile(e.PubKey, e.Relays...); got != nprofile {
		t.Errorf("written as %s", got)
	}
}

func TestNIP19RoundTrip(t *testing.T) {
	relays := []string{"wss://a.test", "wss://b.test/x"}
	long := strings.Repeat("x", 256)
	for s, want := range map[string]Entity{
		EncodeNote(ID{1}): {Prefix: "note", ID: ID{1}},
		EncodeNevent(ID{1}, PubKey{2}, 65535, relays...):                                       {Prefix: "nevent", ID: ID{1}, PubKey: PubKey{2}, HasPubKey: true, Kind: 65535, HasKind: true, Relays: relays},
		EncodeNevent(ID{1}, PubKey{2}, 0, long):                                                {Prefix: "nevent", ID: ID{1}, PubKey: PubKey{2}, HasPubKey: true, HasKind: true},
		strings.ToUpper(EncodeNpub(PubKey{3})):                                                 {Prefix: "npub", PubKey: PubKey{3}, HasPubKey: true},
		encodeBech32("nevent", appendTLV(nil, 0, make([]byte, 32))):                            {Prefix: "nevent"},
		encodeBech32("nprofile", append(appendTLV(nil, 0, make([]byte, 32)), 2, 1, 9, 200, 0)): {Prefix: "nprofile", HasPubKey: true},
	} {
		got, err := DecodeNIP19(s)
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %+v, %v", s, got, err)
		}
	}
	s, err := EncodeNaddr(Address{Kind: 30023, PubKey: PubKey{2}, D: "a:b é"}, relays...)
	if err != nil {
		t.Fatal(err)
	}
	got, err := DecodeNIP19(s)
	if want := (Entity{Prefix: "naddr", D: "a:b é", Kind: 30023, HasKind: true, PubKey: PubKey{2}, HasPubKey: true, Relays: relays}); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%s: %+v, %v", s, got, err)
	}
	if _, err := EncodeNaddr(Address{D: long}); err == nil {
		t.Error("a d tag of 256 bytes was written")
	}
}

func TestNIP19Refuses(t *testing.T) {
	npub := EncodeNpub(PubKey{1})
	id := appendTLV(nil, 0, make([]byte, 32))
	for name, s := range map[string]string{
		"empty": "", "no 1": "npub", "checksum": npub[:len(npub)-1] + "q", "mixed case": "N" + npub[1:], "alphabet": strings.Replace(npub, "q", "b", 1),
		"short": encodeBech32("npub", make([]byte, 31)), "long": encodeBech32("npub", make([]byte, 33)), "prefix": encodeBech32("lnbc", make([]byte, 32)),
		"too long": strings.Repeat("q", 5001), "empty list": encodeBech32("nevent", nil), "cut item": encodeBech32("nevent", id[:20]),
		"cut head": encodeBech32("nevent", append(id, 1)), "naddr without author": encodeBech32("naddr", []byte{0, 0, 3, 4, 0, 0, 0, 1}),
		"kind of 3 bytes": encodeBech32("nevent", append(id, 3, 3, 0, 0, 1)), "kind 65536": encodeBech32("nevent", append(id, 3, 4, 0, 1, 0, 0)),
		"relay not UTF-8": encodeBech32("nevent", append(id, 1, 1, 0xff)), "id of 31": encodeBech32("nevent", appendTLV(nil, 0, make([]byte, 31))),
	} {
		if e, err := DecodeNIP19(s); err == nil {
			t.Errorf("%s: %+v", name, e)
		}
	}
	if _, err := ParsePubKey(EncodeNote(ID{1})); err == nil {
		t.Error("a note was read as a public key")
	}
	for _, s := range []string{"", EncodeNsec(SecretKey{}), strings.Repeat("0", 64), strings.Repeat("f", 64), strings.ToUpper(keyA), npub} {
		if _, err := ParseSecretKey(s); err == nil {
			t.Errorf("%q was read as a secret key", s)
		} else if s != "" && strings.Contains(err.Error(), s) {
			t.Errorf("the error quotes the input: %v", err)
		}
	}
}
