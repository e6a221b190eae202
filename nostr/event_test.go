package nostr

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
)

func TestKindClasses(t *testing.T) {
	for k := range 65536 {
		kind := Kind(k)
		got := fmt.Sprint(kind.IsReplaceable(), kind.IsEphemeral(), kind.IsAddressable(), kind.IsRegular())
		want := "false false false true"
		switch {
		case k == 0, k == 3, 10000 <= k && k < 20000:
			want = "true false false false"
		case 20000 <= k && k < 30000:
			want = "false true false false"
		case 30000 <= k && k < 40000:
			want = "false false true false"
		}
		if got != want {
			t.Fatalf("kind %d: %s", k, got)
		}
	}
}

func TestCase23TieBetweenReplaceableEvents(t *testing.T) {
	a := &Event{PubKey: secret(3).PubKey(), CreatedAt: caseTime, Kind: 10002, Tags: []Tag{{"r", "wss://a.test/"}}}
	b := &Event{PubKey: secret(3).PubKey(), CreatedAt: caseTime, Kind: 10002, Tags: []Tag{{"r", "wss://b.test/"}}}
	a.ID, b.ID = a.ComputeID(), b.ComputeID()
	if a.ID.String() != "754c3da23dd8d858685e10ba613968fefd60607abf5150a07c1f56dfd44d37d6" ||
		b.ID.String() != "55364c78e515eb9074d7a45dc15af149fe934a80afbd7aee5445e2e671982cdb" {
		t.Fatalf("ids %s, %s", a.ID, b.ID)
	}
	older := &Event{CreatedAt: caseTime - 1}
	if !Supersedes(b, a) || Supersedes(a, b) || Supersedes(a, a) || Supersedes(older, a) || !Supersedes(a, older) {
		t.Error("wrong winner")
	}
}

func TestCase25Order(t *testing.T) {
	var events []*Event
	for c := range 5 {
		e := &Event{PubKey: secret(3).PubKey(), CreatedAt: caseTime, Kind: 1, Tags: []Tag{}, Content: fmt.Sprint(c)}
		e.ID = e.ComputeID()
		events = append(events, e)
	}
	slices.SortFunc(events, func(a, b *Event) int {
		if Supersedes(a, b) {
			return -1
		}
		return 1
	})
	var order string
	for _, e := range events {
		order += e.Content
	}
	if order != "31204" || !strings.HasPrefix(events[0].ID.String(), "0c464151") {
		t.Errorf("order %s, first %s", order, events[0].ID)
	}
}

func TestAddresses(t *testing.T) {
	for s, want := range map[string]Address{
		"30023:" + keyA + ":x":                  {30023, secret(3).PubKey(), "x"},
		"30023:" + keyA + ":wss://h.test:443/p": {30023, secret(3).PubKey(), "wss://h.test:443/p"},
		"30023:" + keyA + ":":                   {30023, secret(3).PubKey(), ""},
		"0:" + keyA + ":":                       {0, secret(3).PubKey(), ""},
		"10002:" + keyA:                         {10002, secret(3).PubKey(), ""},
	} {
		got, err := ParseAddress(s)
		if err != nil || got != want {
			t.Errorf("%s: %+v, %v", s, got, err)
		}
		if text := got.String(); text != s && text != s+":" {
			t.Errorf("%s was written as %s", s, text)
		}
	}
	for _, s := range []string{"", "x", "30023", "30023:", "30023:abc:x", "1:" + keyA + ":", "0:" + keyA + ":x", "65536:" + keyA + ":", "-1:" + keyA + ":",
		"030023:" + keyA + ":x", ":" + keyA + ":x", "30023:" + strings.ToUpper(keyA) + ":x", " 30023:" + keyA + ":x", "20000:" + keyA + ":x"} {
		if a, err := ParseAddress(s); err == nil {
			t.Errorf("%q: %+v", s, a)
		}
	}
	for _, c := range []struct {
		e    Event
		want string
	}{
		{Event{Kind: 1, Tags: []Tag{{"d", "x"}}}, ""},
		{Event{Kind: 20000, Tags: []Tag{{"d", "x"}}}, ""},
		{Event{Kind: 3, Tags: []Tag{{"d", "x"}}}, "3::"},
		{Event{Kind: 30000, Tags: []Tag{{"e", "y"}, {"d", "x"}, {"d", "z"}}}, "30000::x"},
		{Event{Kind: 30000, Tags: []Tag{{"d"}, {"d", "z"}}}, "30000::"},
		{Event{Kind: 30000}, "30000::"},
	} {
		a, ok := c.e.Address()
		if got := strings.Replace(a.String(), strings.Repeat("0", 64), "", 1); ok != (c.want != "") || ok && got != c.want {
			t.Errorf("%+v: %s, %v", c.e, got, ok)
		}
	}
}

func TestExpiration(t *testing.T) {
	tags := func(values ...string) *Event {
		e := &Event{}
		for _, v := range values {
			e.Tags = append(e.Tags, Tag{"expiration", v})
		}
		return e
	}
	for _, c := range []struct {
		e    *Event
		at   int64
		want bool
	}{
		{tags(), 0, false},
		{tags("100"), 100, true},
		{tags("", "x", "-5", "1.5", "+7", "100", "200"), 100, true},
		{tags("1700000000000"), 1700000000000, true},
		{tags("99999999999999999999999999"), 1<<63 - 1, true},
		{&Event{Tags: []Tag{{"expiration"}}}, 0, false},
	} {
		at, ok := c.e.Expiration()
		if ok != c.want || ok && at != c.at {
			t.Errorf("%v: %d, %v", c.e.Tags, at, ok)
		}
	}
	e := tags("100")
	if e.ExpiredAt(99) || !e.ExpiredAt(100) || !e.ExpiredAt(101) || tags().ExpiredAt(1<<62) {
		t.Error("expired at the wrong second")
	}
}

func TestProtectedAndTagValues(t *testing.T) {
	e := &Event{Tags: []Tag{{"t", "a", "z"}, {"t"}, {"e", "x"}, {"t", ""}, {"t", "b"}}}
	if got := slices.Collect(e.TagValues("t")); !slices.Equal(got, []string{"a", "", "b"}) {
		t.Errorf("%q", got)
	}
	for range e.TagValues("t") {
		break
	}
	if e.Protected() || !(&Event{Tags: []Tag{{"-"}}}).Protected() || !(&Event{Tags: []Tag{{"-", "x"}}}).Protected() {
		t.Error("wrong verdict on the protected tag")
	}
}

func TestNIP13Example(t *testing.T) {
	e := parseBoth(t, `{"id":"000006d8c378af1779d2feebc7603a125d99eca0ccf1085959b307f64e5dd358","pubkey":"a48380f4cfcc1ad5378294fcac36439770f9c878dd880ffa94bb74ea54a6f243","created_at":1651794653,"kind":1,"tags":[["nonce","776797","20"]],"content":"It's just me mining my own business","sig":"284622fc0a3f4f1303455d5175f7ba962a3300d136085b9566801bc2e0699de0c7e31e44c81fb40ad9049173742e904713c3594a1da0fc5d2382a25c11aba977"}`)
	if d := PoWDifficulty(e.ID); d != 21 || !NewVerifier().Verify([]*Event{e})[0] {
		t.Errorf("difficulty %d, or a bad signature", d)
	}
	for first, want := range map[ID]int{{}: 256, {0x80}: 0, {0x7f}: 1, {0, 0x2f}: 10, {31: 1}: 255} {
		if got := PoWDifficulty(first); got != want {
			t.Errorf("%s: %d", first, got)
		}
	}
}

func TestSignAndVerify(t *testing.T) {
	k, err := GenerateKey()
	if err != nil {
		t.Fatal(err)
	}
	again, err := ParseSecretKey(EncodeNsec(k))
	if err != nil || again != k {
		t.Fatal(err)
	}
	if s := fmt.Sprintf("%v %s %x %#v %d %q %+v", k, k, k, k, k, &k, struct{ K SecretKey }{k}); strings.ReplaceAll(s, "secret key", "") != "      {K:}" {
		t.Errorf("a secret key is printed as %q", s)
	}
	if b, err := json.Marshal(k); err == nil {
		t.Errorf("a secret key is written as %s", b)
	}
	e := &Event{CreatedAt: caseTime, Kind: 1, Content: "x"}
	if err := e.Sign(k); err != nil {
		t.Fatal(err)
	}
	if got := parseBoth(t, string(e.JSON())); !NewVerifier().Verify([]*Event{got})[0] {
		t.Error("the signature is bad")
	}
	wrong := *e
	wrong.ID[0] ^= 1
	if got := NewVerifier().Verify([]*Event{e, &wrong, e}); !slices.Equal(got, []bool{true, false, true}) {
		t.Errorf("verdicts %v", got)
	}
	if got := NewVerifier().Verify(nil); len(got) != 0 {
		t.Errorf("verdicts %v on nothing", got)
	}
	if err := e.Sign(SecretKey{}); err == nil {
		t.Error("signed with the key 0")
	}
}

func TestSignRefusesTextThatIsNotUTF8(t *testing.T) {
	for _, e := range []*Event{{Content: "\xff"}, {Tags: []Tag{{"t", "a\xc3"}}}} {
		if err := e.Sign(secret(3)); !errors.Is(err, ErrSyntax) || e.Sig != (Sig{}) {
			t.Errorf("%v: %v", e, err)
		}
		if _, err := Wrap(e, secret(3), secret(5).PubKey(), KindGiftWrap, caseTime, nil); err == nil {
			t.Errorf("%v was wrapped", e)
		}
	}
}

func TestEventInsideOtherJSON(t *testing.T) {
	e := &Event{CreatedAt: 1, Kind: 1, Tags: []Tag{{"t", "<&>"}}, Content: "<\u2028>\x01"}
	if err := e.Sign(secret(3)); err != nil {
		t.Fatal(err)
	}
	b, err := json.Marshal(map[string]*Event{"e": e})
	if err != nil {
		t.Fatal(err)
	}
	var got map[string]*Event
	if err := json.Unmarshal(b, &got); err != nil || !sameEvent(got["e"], e) {
		t.Errorf("%s: %v", b, err)
	}
	if err := json.Unmarshal([]byte(`{"e":{}}`), &got); !errors.Is(err, ErrSyntax) {
		t.Errorf("an empty event gave %v", err)
	}
}

func TestCopyIsFree(t *testing.T) {
	e := parseBoth(t, wire(naiveID(keyA, 1, 1, [][]string{{"t", "a"}}, "x"), "1", "1", `[["t","a"]]`, `"x"`))
	c := e.Copy()
	if !sameEvent(c, e) || string(c.JSON()) != string(e.JSON()) {
		t.Errorf("copied as %s", c.JSON())
	}
	c.Tags[0][1], c.Content = "b", "y"
	if e.Tags[0][1] != "a" || !strings.Contains(string(c.JSON()), `[["t","b"]],"content":"y"`) {
		t.Errorf("%s, %s", e.JSON(), c.JSON())
	}
}

func TestHLL(t *testing.T) {
	for s, want := range map[string]int{
		`{}`:                                     -1,
		`{"kinds":[3]}`:                          -1,
		`{"#e":[]}`:                              -1,
		`{"#p":["` + keyA + `"]}`:                8 + 0xb, // digit 32 of the key
		`{"#a":["30023:` + keyA + `:x"]}`:        8 + 0xb,
		`{"#t":["abc"]}`:                         8 + 0xb, // SHA-256 ba7816bf8f01cfea414140de5dae2223b00361a3…
		`{"#t":["a","b"],"#e":["` + keyA + `"]}`: 8 + 0xa, // SHA-256 ca978112ca1bbdcafac231b39a23dc4da786eff8…
	} {
		got, ok := HLLOffset(filterOf(t, s))
		if ok != (want >= 0) || ok && got != want {
			t.Errorf("%s: %d, %v, want %d", s, got, ok, want)
		}
	}
	var h HLL
	key := PubKey{10: 7, 11: 0x00, 12: 0x10}
	h.Add(key, 10)
	h.Add(key, 10)
	if h[7] != 12 || h.Estimate() != 1 {
		t.Errorf("register %d, estimate %d", h[7], h.Estimate())
	}
	h.Add(PubKey{10: 7, 11: 0xff}, 10)
	var other HLL
	other.Add(PubKey{10: 7}, 10) // zeros to the end of the key: 21 bytes
	other.Add(PubKey{10: 9, 11: 0x80}, 10)
	h.Merge(&other)
	if h[7] != 21*8+1 || h[9] != 1 {
		t.Errorf("registers %d, %d", h[7], h[9])
	}
}

// Merging two halves gives what counting all gives, and the estimate is right.
func TestHLLMergeAndEstimate(t *testing.T) {
	for _, n := range []int{0, 1, 10, 100, 1000, 10000, 100000} {
		var all, a, b HLL
		for i := range n {
			key := PubKey((&Event{Content: fmt.Sprint(i)}).ComputeID())
			all.Add(key, 23)
			a.Add(key, 23)
			if i%3 == 0 {
				b.Add(key, 23)
				b.Add(key, 23)
			}
		}
		a.Merge(&b)
		got := float64(all.Estimate())
		if a != all || got < 0.8*float64(n) || got > 1.2*float64(n) {
			t.Errorf("%d keys are estimated as %.0f", n, got)
		}
	}
}

// The registers that NIP-45 prints beside a count of 16578 give about that.
func TestHLLExampleOfNIP45(t *testing.T) {
	const registers = "0607070505060806050508060707070706090d080b0605090607070b07090606060b0705070709050807080805080407060906080707080507070805060509040a0b06060704060405070706080607050907070b08060808080b080607090a06060805060604070908050607060805050d05060906090809080807050e0705070507060907060606070708080b0807070708080706060609080705060604060409070a0808050a0506050b0810060a0908070709080b0a07050806060508060607080606080707050806080c0a0707070a080808050608080f070506070706070a0908090c080708080806090508060606090906060d07050708080405070708"
	b := unhex(t, registers)
	if len(b) != len(HLL{}) {
		t.Fatalf("%d registers", len(b))
	}
	h := HLL(b)
	if got := h.Estimate(); got < 14000 || got > 19000 {
		t.Errorf("estimate %d", got)
	}
}

func TestCase33RelayURLs(t *testing.T) {
	const own = "wss://relay.test:7447/"
	for s, want := range map[string]bool{
		own: true, "wss://relay.test:7447": true, "WSS://Relay.Test:7447": true, "wss://relay.test:7447/?x=1": true, "wss://relay.test.:7447": true,
		"wss://relay.test/": false, "wss://evil.test:7447/": false, "wss://relay.test.evil.test:7447/": false, "": false, "relay.test:7447": false,
		"wss://relay.test:7447@evil.test/": false, "wss://evil.test/wss://relay.test:7447/": false, "wss://relay.test:7447/other": false, "ftp://relay.test:7447/": false,
	} {
		if got := SameRelay(own, s); got != want {
			t.Errorf("%q: %v", s, got)
		}
	}
	if !SameRelay("wss://relay.test/", "wss://relay.test:443") || SameRelay("wss://relay.test/", "wss://relay.test:80") || !SameRelay("ws://[::1]:80/a/", "WS://[::1]/a") {
		t.Error("default ports are wrong")
	}
	for s, want := range map[string]string{
		"WSS://Relay.Test:443//":   "wss://relay.test/",
		" http://h:81/a/#x":        "ws://h:81/a",
		"ws://[FE80::1]:7447?x=Y":  "ws://[fe80::1]:7447/?x=Y",
		"wss://relay.test/A/b%20c": "wss://relay.test/A/b%20c",
	} {
		if got, err := NormalizeRelayURL(s); err != nil || got != want {
			t.Errorf("%q: %q, %v", s, got, err)
		}
	}
}
