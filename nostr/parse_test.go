package nostr

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"testing"
)

// The author of the relay cases: the secret key 3.
const keyA = "f9308a019258c31049344f85f89d5229b531c845836f99b08601f113bce036f9"

const caseTime = 1700000000

func secret(n byte) SecretKey { return SecretKey{31: n} }

// naiveEscape is NIP-01's escaping written a second time, one character at a
// time.
func naiveEscape(s string) string {
	var b strings.Builder
	for _, r := range s {
		switch r {
		case 0x0a:
			b.WriteString(`\n`)
		case 0x22:
			b.WriteString(`\"`)
		case 0x5c:
			b.WriteString(`\\`)
		case 0x0d:
			b.WriteString(`\r`)
		case 0x09:
			b.WriteString(`\t`)
		case 0x08:
			b.WriteString(`\b`)
		case 0x0c:
			b.WriteString(`\f`)
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}

// naiveID is the independent way to an id, for valid UTF-8 only.
func naiveID(pubkey string, createdAt int64, kind int, tags [][]string, content string) string {
	var ts []string
	for _, t := range tags {
		var vs []string
		for _, v := range t {
			vs = append(vs, `"`+naiveEscape(v)+`"`)
		}
		ts = append(ts, "["+strings.Join(vs, ",")+"]")
	}
	text := fmt.Sprintf(`[0,"%s",%d,%d,[%s],"%s"]`, pubkey, createdAt, kind, strings.Join(ts, ","), naiveEscape(content))
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}

// wire is the text of an event from the JSON text of its parts. The signature
// is a well-formed one that fits nothing.
func wire(id, createdAt, kind, tags, content string) string {
	return fmt.Sprintf(`{"id":"%s","pubkey":"%s","created_at":%s,"kind":%s,"tags":%s,"content":%s,"sig":"%s"}`,
		id, keyA, createdAt, kind, tags, content, strings.Repeat("0", 128))
}

// parseBoth parses a text and what is kept of it, and checks that both are one
// event.
func parseBoth(t *testing.T, s string) *Event {
	t.Helper()
	e, err := ParseEvent([]byte(s))
	if err != nil {
		t.Fatalf("%.300s: %v", s, err)
	}
	if bytes.ContainsAny(e.JSON(), "\n\r") {
		t.Errorf("kept text has a line break: %q", e.JSON())
	}
	again, err := ParseEvent(e.JSON())
	if err != nil {
		t.Fatalf("kept text %q: %v", e.JSON(), err)
	}
	if !sameEvent(e, again) {
		t.Errorf("kept text is another event: %+v, %+v", e, again)
	}
	kept, err := ParseKept(bytes.Clone(e.JSON()))
	if err != nil || !sameEvent(e, kept) || !bytes.Equal(kept.JSON(), e.JSON()) {
		t.Errorf("kept text is read as %+v, %v", kept, err)
	}
	if e.ComputeID() != e.ID {
		t.Errorf("ComputeID is not the id for %q", s)
	}
	return e
}

func sameEvent(a, b *Event) bool {
	return a.ID == b.ID && a.Sig == b.Sig && bytes.Equal(a.AppendCanonical(nil), b.AppendCanonical(nil))
}

func TestCase1IDOverVerbatimText(t *testing.T) {
	const content = "a<b>&c 'q' /e\u2028\u0085\u00e9"
	const id = "f08ce62d644b15171e17b195eda1939d9512e510346bc63dc0023862eeae74c2"
	e := &Event{CreatedAt: caseTime, Kind: 1, Tags: []Tag{}, Content: content}
	if err := e.Sign(secret(3)); err != nil {
		t.Fatal(err)
	}
	if e.PubKey.String() != keyA || e.ID.String() != id {
		t.Fatalf("signed as %s with id %s", e.PubKey, e.ID)
	}
	for _, text := range []string{content, `a<b>&c 'q' \/e\u2028\u0085\u00E9`, `\u0061\u003cb\u003e\u0026c 'q' /e` + "\u2028\u0085é"} {
		got := parseBoth(t, wire(id, "1700000000", "1", "[]", `"`+text+`"`))
		if got.Content != content {
			t.Errorf("read back as %q", got.Content)
		}
		if text == content && string(got.JSON()) != wire(id, "1700000000", "1", "[]", `"`+text+`"`) {
			t.Error("canonical text was not kept as it came")
		}
	}
	_, err := ParseEvent([]byte(wire("d71dff78f2648eef1ae959f4e9fb1150b873658695f99cf3a3b37c31c470555a", "1700000000", "1", "[]", `"`+content+`"`)))
	if !errors.Is(err, ErrID) {
		t.Errorf("the id of the HTML-escaped text gave %v", err)
	}
}

func TestCase3ZeroCharacter(t *testing.T) {
	for _, c := range []struct{ id, text, want string }{
		{"65e65d575bce795bc1a6c1fcce11faf2a395da90311137d34ebe2b1949634c93", `x\u0000y`, "x\x00y"},
		{"e05d56fbd448c6b866616db2b9ced322e6032493a41d603b7fba4747762559e1", `x`, "x"},
	} {
		e := parseBoth(t, wire(c.id, "1700000000", "1", "[]", `"`+c.text+`"`))
		if e.Content != c.want {
			t.Errorf("content is %q", e.Content)
		}
	}
	id := naiveID(keyA, caseTime, 1, [][]string{{"t", "a\x00b"}}, "")
	e := parseBoth(t, wire(id, "1700000000", "1", `[["t","a\u0000b"]]`, `""`))
	for text, want := range map[string]bool{`{"#t":["a"]}`: false, `{"#t":["a\u0000b"]}`: true} {
		f, err := ParseFilter([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		if f.Matches(e) != want {
			t.Errorf("%s: not %v", text, want)
		}
	}
}

func TestCase5TagsWithFewElements(t *testing.T) {
	for _, tags := range []string{`[[]]`, `[["a"],[]]`, `[[[]]]`, `[{}]`, `["a"]`, `[[1]]`, `[[null]]`, `[["a",null]]`, `[["a",]]`, `[["a"],]`, `{}`, `null`, `[`, `[["a"]`} {
		if _, err := ParseEvent([]byte(wire(strings.Repeat("0", 64), "1", "1", tags, `""`))); !errors.Is(err, ErrSyntax) {
			t.Errorf("tags %s gave %v", tags, err)
		}
	}
	e := parseBoth(t, wire(naiveID(keyA, caseTime, 1, [][]string{{"t"}}, ""), "1700000000", "1", `[["t"]]`, `""`))
	f := Filter{Tags: []TagFilter{{Letter: 't', Values: []string{""}}}}
	if f.Matches(e) {
		t.Error("a tag without value matches the empty value")
	}
}

func TestCase7Kinds(t *testing.T) {
	parseBoth(t, wire(naiveID(keyA, caseTime, 65535, nil, ""), "1700000000", "65535", "[]", `""`))
	id := naiveID(keyA, caseTime, 1, nil, "")
	for _, kind := range []string{"65536", "-1", `"1"`, "true", "null", "1.5", "1.0", "1e0", "1E0", "01", "+1", "0x1", "1 1", "[1]", "", "99999999999999999999", "-0"} {
		if _, err := ParseEvent([]byte(wire(id, "1700000000", kind, "[]", `""`))); !errors.Is(err, ErrSyntax) {
			t.Errorf("kind %s gave %v", kind, err)
		}
	}
}

func TestCreatedAt(t *testing.T) {
	for _, v := range []int64{0, 1, caseTime, MaxCreatedAt} {
		e := parseBoth(t, wire(naiveID(keyA, v, 1, nil, ""), fmt.Sprint(v), "1", "[]", `""`))
		if e.CreatedAt != v {
			t.Errorf("%d was read as %d", v, e.CreatedAt)
		}
	}
	for _, v := range []string{"-1", "9007199254740992", "9223372036854775808", "1.0", `"1"`, "null", "00"} {
		if _, err := ParseEvent([]byte(wire(strings.Repeat("0", 64), v, "1", "[]", `""`))); !errors.Is(err, ErrSyntax) {
			t.Errorf("created_at %s gave %v", v, err)
		}
	}
}

func TestCase11HexOfEvents(t *testing.T) {
	e := &Event{CreatedAt: caseTime, Kind: 1, Tags: []Tag{}, Content: "hex"}
	if err := e.Sign(secret(3)); err != nil {
		t.Fatal(err)
	}
	good := string(e.JSON())
	parseBoth(t, good)
	sig := e.Sig.String()
	for name, bad := range map[string]string{
		"id in upper case":     strings.Replace(good, e.ID.String(), strings.ToUpper(e.ID.String()), 1),
		"pubkey in upper case": strings.Replace(good, keyA, strings.ToUpper(keyA), 1),
		"sig in upper case":    strings.Replace(good, sig, strings.ToUpper(sig), 1),
		"sig of 127":           strings.Replace(good, sig, sig[:127], 1),
		"sig of 129":           strings.Replace(good, sig, sig+"0", 1),
		"sig with g":           strings.Replace(good, sig, sig[:50]+"g"+sig[51:], 1),
		"id with space":        strings.Replace(good, e.ID.String(), " "+e.ID.String()[1:], 1),
		"id of 63":             strings.Replace(good, e.ID.String(), e.ID.String()[:63], 1),
		"id null":              strings.Replace(good, `"`+e.ID.String()+`"`, "null", 1),
	} {
		if _, err := ParseEvent([]byte(bad)); !errors.Is(err, ErrSyntax) {
			t.Errorf("%s gave %v", name, err)
		}
	}
}

func TestParseEventSlowPath(t *testing.T) {
	tags := [][]string{{"e", "x\n\"\\/"}, {"t"}, {"emoji", "😀", ""}}
	content := "\b\f\n\r\t\"\\/\x01\x1f\x7f\u0080é😀\ufffd\U0010ffff"
	id := naiveID(keyA, caseTime, 1, tags, content)
	escaped := `"\b\f\n\r\t\"\\\/\u0001\u001f\u007F\u0080\u00e9\ud83d\ude00\ufffd\uDBFF\uDFFF"`
	tagText := `[["e","x\n\"\\\/"],["t"],["emoji","\uD83D\uDE00",""]]`
	texts := map[string]string{
		"escapes":     wire(id, "1700000000", "1", tagText, escaped),
		"white space": strings.NewReplacer(`,"`, ",\r\n\t \"", `":`, "\" :\n", `[[`, `[ [ `, `]]`, ` ] ]`).Replace(wire(id, "1700000000", "1", tagText, escaped)),
		"around":      " \n\t" + wire(id, "1700000000", "1", tagText, escaped) + "\r\n ",
		"unknown":     strings.Replace(wire(id, "1700000000", "1", tagText, escaped), "{", `{"seen_on":[{"a":[1.5e+3,-0,true,false,null,"\ud83d\ude00"]},[]],"":{},"x":"id",`, 1),
		"name escape": strings.Replace(wire(id, "1700000000", "1", tagText, escaped), `"id"`, `"\u0069d"`, 1),
		"hex escape":  strings.Replace(wire(id, "1700000000", "1", tagText, escaped), `"f9308a`, `"\u00669308a`, 1),
	}
	for name, text := range texts {
		t.Run(name, func(t *testing.T) {
			e := parseBoth(t, text)
			if e.Content != content || e.Tags[0][1] != tags[0][1] || e.Tags[2][1] != "😀" {
				t.Errorf("read as %q, %q", e.Content, e.Tags)
			}
			if want := string(e.appendJSON(nil)); string(e.JSON()) != want {
				t.Errorf("kept %s, want %s", e.JSON(), want)
			}
		})
	}
}

func TestParseEventOrderOfMembers(t *testing.T) {
	id := naiveID(keyA, caseTime, 1, [][]string{{"a", "b"}}, "c")
	members := strings.Split(strings.Trim(strings.Replace(wire(id, "1700000000", "1", "TAGS", `"c"`), "TAGS", `[["a"|"b"]]`, 1), "{}"), ",")
	for i := range members {
		for j := range members {
			m := append([]string(nil), members...)
			m[i], m[j] = m[j], m[i]
			text := "{" + strings.ReplaceAll(strings.Join(m, ","), "|", ",") + "}"
			if e := parseBoth(t, text); string(e.JSON()) != text {
				t.Errorf("%s was not kept as it came", text)
			}
		}
	}
	for i := range members {
		m := append(append([]string(nil), members[:i]...), members[i+1:]...)
		text := "{" + strings.ReplaceAll(strings.Join(m, ","), "|", ",") + "}"
		if _, err := ParseEvent([]byte(text)); !errors.Is(err, ErrSyntax) {
			t.Errorf("%s gave %v", text, err)
		}
		m = append(append([]string(nil), members...), members[i])
		text = "{" + strings.ReplaceAll(strings.Join(m, ","), "|", ",") + "}"
		if _, err := ParseEvent([]byte(text)); !errors.Is(err, ErrSyntax) || !strings.Contains(err.Error(), "two members") {
			t.Errorf("%s gave %v", text, err)
		}
	}
}

func TestParseEventRefuses(t *testing.T) {
	id := strings.Repeat("0", 64)
	good := wire(id, "1", "1", "[]", `""`)
	texts := []string{
		"", " ", "{", "{}", "[]", "null", "1", `"`, good[:len(good)-1], good + "x", good + good, good + ",",
		strings.Replace(good, ",", ",,", 1), strings.Replace(good, ":", "", 1), strings.Replace(good, "{", "{,", 1),
		strings.Replace(good, "}", ",}", 1), strings.Replace(good, `"tags"`, `tags`, 1),
		strings.Replace(good, `"tags"`, `'tags'`, 1),
		strings.Replace(good, "{", `{"\u0069d":"`+id+`",`, 1),
		strings.Replace(good, "{", "{\ufeff", 1), "\ufeff" + good, strings.Replace(good, "{", "{\v", 1), strings.Replace(good, "{", "{\u00a0", 1),
		strings.Replace(good, "{", `{"x":`+strings.Repeat("[", 1<<20)+",", 1),
		strings.Replace(good, "{", `{"x":`+strings.Repeat(`{"a":`, 1<<18), 1),
	}
	for _, v := range []string{"01", "-", ".5", "1.", "1e", "1e+", "tru", "nul", "--1", "+1", "NaN", "[1,]", "[,1]", `{"a"}`, `{"a":}`, `{"a":1,}`, `{1:1}`, "1 2", `"\x"`, `"\u12"`, `"\ud800"`} {
		texts = append(texts, strings.Replace(good, "{", `{"x":`+v+`,`, 1))
	}
	for _, v := range []string{
		`"`, `"\"`, `"\`, "\"\x00\"", "\"\n\"", "\"\x1f\"", "\"\xff\"", "\"\xc3\"", "\"\xed\xa0\x80\"", "\"\xc0\x80\"", "\"\xf4\x90\x80\x80\"",
		`"\ud800"`, `"\udc00"`, `"\ud800\ud800"`, `"\ud800x"`, `"\ud800\n"`, `"\udc00\ud800"`, `"\ud83d\u00e9"`, `"\u"`, `"\u00"`, `"\u00g0"`, `"\x41"`, `"\'"`, `"\a"`, `"\U0041"`,
		`null`, `1`, `[]`, `{}`, `true`,
	} {
		texts = append(texts, wire(id, "1", "1", "[]", v), wire(id, "1", "1", `[["a",`+v+`],[]]`, `""`))
	}
	for _, text := range texts {
		if e, err := ParseEvent([]byte(text)); !errors.Is(err, ErrSyntax) || e != nil {
			t.Errorf("%.300q gave %v, %v", text, e, err)
		}
	}
}

func TestParseEventCopies(t *testing.T) {
	text := []byte(wire(naiveID(keyA, 1, 1, [][]string{{"t", "tag"}}, "content"), "1", "1", `[["t","tag"]]`, `"content"`))
	e, err := ParseEvent(text)
	if err != nil {
		t.Fatal(err)
	}
	want := string(e.JSON())
	clear(text)
	if string(e.JSON()) != want || e.Content != "content" || e.Tags[0][1] != "tag" {
		t.Error("the event changed with the bytes it was read from")
	}
}

func TestParseRumor(t *testing.T) {
	signed := wire(naiveID(keyA, 1, 1, nil, "x"), "1", "1", "[]", `"x"`)
	if _, err := ParseRumor([]byte(signed)); !errors.Is(err, ErrSyntax) {
		t.Errorf("a signed rumor gave %v", err)
	}
	unsigned := signed[:strings.Index(signed, `,"sig"`)] + "}"
	e, err := ParseRumor([]byte(unsigned))
	if err != nil || e.Content != "x" || string(e.RumorJSON()) != unsigned {
		t.Errorf("got %+v, %v", e, err)
	}
	noID := "{" + unsigned[strings.Index(unsigned, `"pubkey"`):]
	if e, err := ParseRumor([]byte(noID)); err != nil || e.ID != e.ComputeID() {
		t.Errorf("without id: %+v, %v", e, err)
	}
	if _, err := ParseRumor([]byte(strings.Replace(unsigned, `"x"`, `"y"`, 1))); !errors.Is(err, ErrID) {
		t.Errorf("with a wrong id: %v", err)
	}
}

func TestParseKeptTrusts(t *testing.T) {
	text := wire(strings.Repeat("0", 64), "1", "1", "[]", `"x"`)
	if e, err := ParseKept([]byte(text)); err != nil || e.ID != (ID{}) || string(e.JSON()) != text {
		t.Errorf("%+v, %v", e, err)
	}
	for _, bad := range []string{"", text[:90], strings.Replace(text, `"kind":1`, `"kind":"1"`, 1), strings.Replace(text, `"id"`, `"x"`, 1)} {
		if _, err := ParseKept([]byte(bad)); !errors.Is(err, ErrSyntax) {
			t.Errorf("%q gave %v", bad, err)
		}
	}
}

func TestPeekID(t *testing.T) {
	for text, want := range map[string]string{
		``:                                     "",
		`{"id":"abc"`:                          "abc",
		`{"id" : "abc", broken`:                "abc",
		`{"x":"id","id":"q"}`:                  "q",
		`{"id":5}`:                             "",
		`{"id":"` + strings.Repeat("a", 200):   "",
		`{"id":"a\"b"}`:                        `a"b`,
		`{"id":"\ud800"}`:                      "",
		`"id""id":"late"`:                      "late",
		`{"content":"\"id\":\"no\"","id":"y"}`: "y",
	} {
		if got := PeekID([]byte(text)); got != want {
			t.Errorf("%s: %q, want %q", text, got, want)
		}
	}
}
