package nostr

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"unicode/utf8"
)

func eventSeeds(f *testing.F) {
	id := naiveID(keyA, caseTime, 1, [][]string{{"t", "a\x00b\n"}, {"e"}}, "x\"é😀")
	good := wire(id, "1700000000", "1", `[["t","a\u0000b\n"],["e"]]`, `"x\"é😀"`)
	for _, s := range []string{
		good, " " + good, strings.ReplaceAll(good, ",", " , "), strings.Replace(good, "{", `{"x":[{}],`, 1),
		strings.Replace(good, "é😀", `\u00e9\ud83d\ude00`, 1), strings.Replace(good, "é", `\ud800`, 1),
		strings.Replace(good, `"kind":1`, `"kind":1.0`, 1), strings.Replace(good, `"t"`, "", 1), good[:50], `{}`, ``,
	} {
		f.Add([]byte(s))
	}
}

// stdEvent is an event for encoding/json, by pointers so that what is missing
// shows.
type stdEvent struct {
	ID        *string      `json:"id"`
	PubKey    *string      `json:"pubkey"`
	CreatedAt *json.Number `json:"created_at"`
	Kind      *json.Number `json:"kind"`
	Tags      *[][]*string `json:"tags"`
	Content   *string      `json:"content"`
	Sig       *string      `json:"sig"`
}

// FuzzParseEvent compares with encoding/json: what ParseEvent accepts,
// encoding/json reads to the same values; and the id is that of the independent
// serialiser.
func FuzzParseEvent(f *testing.F) {
	eventSeeds(f)
	f.Fuzz(func(t *testing.T, b []byte) {
		e, err := ParseEvent(b)
		if err != nil {
			if !errors.Is(err, ErrSyntax) && !errors.Is(err, ErrID) {
				t.Fatalf("an error of no kind: %v", err)
			}
			PeekID(b)
			return
		}
		if !utf8.Valid(b) {
			t.Fatal("accepted text that is not UTF-8")
		}
		compareWithStd(t, b, e)
		again, err := ParseEvent(e.JSON())
		if err != nil || !sameEvent(e, again) || !bytes.Equal(e.JSON(), again.JSON()) {
			t.Fatalf("kept text %q: %v", e.JSON(), err)
		}
		if bytes.ContainsAny(e.JSON(), "\n\r") || len(e.JSON()) > len(b) {
			t.Fatalf("kept text %q", e.JSON())
		}
		var tags [][]string
		for _, tag := range e.Tags {
			tags = append(tags, tag)
		}
		if id := naiveID(e.PubKey.String(), e.CreatedAt, int(e.Kind), tags, e.Content); id != e.ID.String() {
			t.Fatalf("id %s, independent id %s", e.ID, id)
		}
	})
}

func compareWithStd(t *testing.T, b []byte, e *Event) {
	t.Helper()
	// encoding/json matches names in any case and takes the last of several,
	// so read into a map first.
	var members map[string]json.RawMessage
	if err := json.Unmarshal(b, &members); err != nil {
		t.Fatalf("encoding/json refuses %q: %v", b, err)
	}
	for name := range members {
		switch name {
		case "id", "pubkey", "created_at", "kind", "tags", "content", "sig":
		default:
			delete(members, name)
		}
	}
	known, err := json.Marshal(members)
	if err != nil {
		t.Fatal(err)
	}
	var std stdEvent
	if err := json.Unmarshal(known, &std); err != nil {
		t.Fatalf("encoding/json refuses the members of %q: %v", b, err)
	}
	if std.ID == nil { // a rumor
		std.ID, std.Sig = new(string), new(string)
		*std.ID, *std.Sig = e.ID.String(), e.Sig.String()
	}
	created, _ := std.CreatedAt.Int64()
	kind, _ := std.Kind.Int64()
	if *std.ID != e.ID.String() || *std.PubKey != e.PubKey.String() || *std.Sig != e.Sig.String() ||
		created != e.CreatedAt || kind != int64(e.Kind) || *std.Content != e.Content || len(*std.Tags) != len(e.Tags) {
		t.Fatalf("%q: encoding/json reads %+v, we %+v", b, std, e)
	}
	for i, tag := range *std.Tags {
		if len(tag) != len(e.Tags[i]) || len(tag) == 0 {
			t.Fatalf("tag %d differs", i)
		}
		for j, v := range tag {
			if *v != e.Tags[i][j] {
				t.Fatalf("tag %d, value %d: %q, %q", i, j, *v, e.Tags[i][j])
			}
		}
	}
}

// FuzzParseRumor is FuzzParseEvent where no hash has to be met: it gets further.
func FuzzParseRumor(f *testing.F) {
	rumor := `{"pubkey":"` + keyA + `","created_at":1700000000,"kind":1,"tags":[["t","a\u0000b\n"],["e"]],"content":"x\"é\ud83d\ude00"}`
	f.Add([]byte(rumor))
	f.Add([]byte(strings.Replace(rumor, "{", ` {"\u0078":[-1.5e+7,{"":null}], `, 1)))
	f.Fuzz(func(t *testing.T, b []byte) {
		e, err := ParseRumor(b)
		if err != nil {
			return
		}
		if !utf8.Valid(b) {
			t.Fatal("accepted text that is not UTF-8")
		}
		compareWithStd(t, b, e)
		again, err := ParseRumor(e.RumorJSON())
		if err != nil || !sameEvent(e, again) {
			t.Fatalf("%q: %v", e.RumorJSON(), err)
		}
	})
}

// FuzzEventRoundTrip builds events of any strings: text and hash must lead
// back to the same event.
func FuzzEventRoundTrip(f *testing.F) {
	f.Add("a<b>&c", "t", int64(caseTime), uint16(1), false)
	f.Add("\x00\x01\x7f\u2028😀", "\\\"\n", int64(0), uint16(65535), true)
	f.Fuzz(func(t *testing.T, content, value string, at int64, kind uint16, escape bool) {
		content, value = strings.ToValidUTF8(content, "?"), strings.ToValidUTF8(value, "?")
		e := &Event{CreatedAt: at & MaxCreatedAt, Kind: Kind(kind), Tags: []Tag{{"t", value}, {value}}, Content: content}
		e.ID = e.ComputeID()
		b := e.JSON()
		if escape {
			b = bytes.ReplaceAll(b, []byte("/"), []byte(`\/`))
		}
		got, err := ParseEvent(b)
		if err != nil || !sameEvent(e, got) {
			t.Fatalf("%q: %v", b, err)
		}
	})
}

func FuzzParseFilter(f *testing.F) {
	f.Add([]byte(`{"ids":["`+keyA+`"],"authors":[],"kinds":[0,65535],"#t":["a","\ud83d\ude00"],"since":1,"until":2,"limit":3,"search":"x"}`), []byte(`{}`))
	f.Add([]byte(`{"#ab":[]}`), []byte(`{"kinds":[1.0]}`))
	f.Fuzz(func(t *testing.T, b, event []byte) {
		filter, err := ParseFilter(b)
		if err != nil {
			if !errors.Is(err, ErrSyntax) {
				t.Fatalf("an error of no kind: %v", err)
			}
			return
		}
		if !json.Valid(b) {
			t.Fatalf("accepted %q", b)
		}
		text := filter.AppendJSON(nil)
		again, err := ParseFilter(text)
		if err != nil || !bytes.Equal(again.AppendJSON(nil), text) {
			t.Fatalf("%q came back as %q: %v", b, text, err)
		}
		e := &Event{Kind: 1, Tags: []Tag{{"t", string(event)}}, CreatedAt: caseTime}
		if filter.Matches(e) != again.Matches(e) || filter.Matches(e) && filter.MatchesNothing() {
			t.Fatalf("%q does not match as it should", b)
		}
		HLLOffset(filter)
	})
}

func messageSeeds(f *testing.F) {
	for _, s := range []string{
		`["EVENT",{"id":"x"}]`, `["REQ","s",{"kinds":[1]},{}]`, `["COUNT","q",{}]`, `["CLOSE","s"]`, `["AUTH",{}]`,
		`["NEG-OPEN","n",{},"61"]`, `["NEG-MSG","n","61"]`, `["NEG-CLOSE","n"]`, `["OK","i",true,""]`, `["EOSE","s",["finish"]]`,
		`["CLOSED","s","x: y"]`, `["NOTICE","x"]`, `["AUTH","c"]`, `["COUNT","q",{"count":1,"approximate":false}]`, `["NEG-ERR","n","blocked: x",5]`,
		`["EVENT","s",{}]`, " [ \"REQ\" , \"\\u0041\" , { } ] ", `["REQ","s",{}]["REQ","s",{}]`, `[[[[`, "\ufeff[]",
	} {
		f.Add([]byte(s))
	}
}

func FuzzParseClientMessage(f *testing.F) {
	messageSeeds(f)
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := ParseClientMessage(b)
		if err != nil {
			var me *MessageError
			if !errors.As(err, &me) || me.Reason == "" {
				t.Fatalf("an error of no kind: %v", err)
			}
			return
		}
		var out []byte
		switch m := m.(type) {
		case *EventMessage, *AuthMessage:
			return
		case *ReqMessage:
			out = AppendReq(nil, m.SubID, m.Filters...)
		case *CountMessage:
			out = AppendCountRequest(nil, m.QueryID, m.Filters...)
		case *CloseMessage:
			out = AppendClose(nil, m.SubID)
		case *NegOpenMessage:
			out = AppendNegOpen(nil, m.SubID, m.Filter, m.Message)
		case *NegMsgMessage:
			out = AppendNegMsg(nil, m.SubID, m.Message)
		case *NegCloseMessage:
			out = AppendNegClose(nil, m.SubID)
		}
		if !json.Valid(bytes.TrimPrefix(b, []byte("\ufeff"))) || !json.Valid(out) {
			t.Fatalf("%q or %q is not JSON", b, out)
		}
		if again, err := ParseClientMessage(out); err != nil || again.Label() != m.Label() {
			t.Fatalf("%q came back as %q: %v", b, out, err)
		}
	})
}

func FuzzParseServerMessage(f *testing.F) {
	messageSeeds(f)
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := ParseServerMessage(b)
		if err != nil {
			if m != nil || !errors.Is(err, ErrSyntax) && !errors.Is(err, ErrID) {
				t.Fatalf("%v, %v", m, err)
			}
			return
		}
		if !json.Valid(bytes.TrimPrefix(b, []byte("\ufeff"))) {
			t.Fatalf("accepted %q", b)
		}
	})
}

func FuzzDecodeNIP19(f *testing.F) {
	f.Add(EncodeNpub(PubKey{1}))
	f.Add(EncodeNsec(SecretKey{1}))
	f.Add(EncodeNote(ID{1}))
	f.Add(EncodeNprofile(PubKey{1}, "wss://r.x.com"))
	f.Add(EncodeNevent(ID{1}, PubKey{2}, 1, "wss://r.x.com"))
	if s, err := EncodeNaddr(Address{Kind: 30023, D: "x"}, "wss://r.x.com"); err == nil {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		e, err := DecodeNIP19(s)
		if err != nil {
			return
		}
		var again string
		switch e.Prefix {
		case "npub":
			again = EncodeNpub(e.PubKey)
		case "nsec":
			again = EncodeNsec(e.SecretKey)
		case "note":
			again = EncodeNote(e.ID)
		default:
			return
		}
		if again != strings.ToLower(s) {
			t.Fatalf("%q came back as %q", s, again)
		}
	})
}

// FuzzNIP19Data gets past the checksum, to the lists inside.
func FuzzNIP19Data(f *testing.F) {
	f.Add("nevent", []byte("\x00\x20"+strings.Repeat("x", 32)+"\x03\x04\x00\x00\x00\x01"))
	f.Add("naddr", []byte("\x00\x00\x02\x20"+strings.Repeat("x", 32)+"\x03\x04\x00\x00\x75\x30\x09\x01x"))
	f.Fuzz(func(t *testing.T, prefix string, data []byte) {
		for _, p := range []string{"npub", "nprofile", "nevent", "naddr", "note", "nsec"} {
			if p != prefix {
				continue
			}
			s := encodeBech32(prefix, data)
			gotPrefix, got, err := decodeBech32(s)
			if err != nil || gotPrefix != prefix || !bytes.Equal(got, data) {
				t.Fatalf("%q: %q, %x, %v", s, gotPrefix, got, err)
			}
			DecodeNIP19(s)
		}
	})
}

func FuzzNIP44(f *testing.F) {
	var key [32]byte
	sealed, err := encryptWithNonce("hello", key, [32]byte{1})
	if err != nil {
		f.Fatal(err)
	}
	f.Add("a", sealed)
	f.Add(strings.Repeat("x", 257), "#"+sealed)
	f.Fuzz(func(t *testing.T, plain, payload string) {
		Decrypt(payload, key)
		plain = strings.ToValidUTF8(plain, "?")
		if plain == "" {
			return
		}
		sealed, err := encryptWithNonce(plain, key, [32]byte{2})
		if err != nil {
			t.Fatal(err)
		}
		if got, err := Decrypt(sealed, key); err != nil || got != plain {
			t.Fatalf("%q came back as %q: %v", plain, got, err)
		}
	})
}

// FuzzNIP44Unpad gets past the MAC.
func FuzzNIP44Unpad(f *testing.F) {
	f.Add([]byte("\x00\x01a" + strings.Repeat("\x00", 31)))
	f.Add([]byte("\x00\x00\x00\x01\x00\x00" + strings.Repeat("\x00", 65536)))
	f.Fuzz(func(t *testing.T, padded []byte) {
		if len(padded) < 34 { // what decodePayload leaves at least
			return
		}
		plain, err := unpad(padded)
		if err == nil && (plain == "" || len(plain) > len(padded)) {
			t.Fatalf("%x gave %q", padded, plain)
		}
	})
}

func FuzzRelayURL(f *testing.F) {
	for _, s := range []string{"wss://relay.test:7447/", "WSS://Relay.Test:443", "ws://[::1]:80/a//", "wss://u@h", "http://x?y#z", "wss://h:0/%2F", "http://0? #", "ws://a.. "} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		n, err := NormalizeRelayURL(s)
		if err != nil {
			return
		}
		if again, err := NormalizeRelayURL(n); err != nil || again != n {
			t.Fatalf("%q became %q, then %q: %v", s, n, again, err)
		}
		if !SameRelay(s, n) {
			t.Fatalf("%q is not the same as %q", s, n)
		}
	})
}

func FuzzParseAddress(f *testing.F) {
	f.Add("30023:" + keyA + ":wss://h.test:443/p")
	f.Add("0:" + keyA + ":")
	f.Add("10002:" + keyA)
	f.Fuzz(func(t *testing.T, s string) {
		a, err := ParseAddress(s)
		if err != nil {
			return
		}
		if got := a.String(); got != s && got != s+":" {
			t.Fatalf("%q came back as %q", s, got)
		}
	})
}
