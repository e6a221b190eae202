package spec

import (
	"bytes"
	"crypto/hkdf"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io/fs"
	"math"
	"os"
	"path"
	"slices"
	"strings"
	"testing"
)

// vector is one file of spec/vectors.
type vector struct {
	About    string          `json:"about"`
	Layer    string          `json:"layer"`
	Function string          `json:"function"`
	Refuse   string          `json:"refuse,omitempty"`
	Input    json.RawMessage `json:"input"`
	Output   json.RawMessage `json:"output,omitempty"`
}

const notCanonical = "not-canonical"

// own are the layers this package generates; the other folders belong to others.
var own = []string{"canonical", "ratio", "digest", "blinding"}

func raw(t testing.TB, v any) json.RawMessage {
	t.Helper()
	b := new(bytes.Buffer)
	e := json.NewEncoder(b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		t.Fatal(err)
	}
	return bytes.TrimSpace(b.Bytes())
}

type m = map[string]any

// canonicalCases are texts and what becomes of them: "" is refused.
var canonicalCases = []struct{ name, about, text, want string }{
	{"empty-object", "An empty object.", ` { } `, `{}`},
	{"white-space", "White space between tokens is dropped, inside strings it stays.", "{ \"a\" :\t[ 1 ,\r\n 2 ] , \"b\" : \" x \" }", `{"a":[1,2],"b":" x "}`},
	{"keys-sorted", "Names are sorted; arrays keep their order.", `{"b":1,"a":2,"B":3,"_":4,"":5,"a1":6,"aa":7}`, `{"":5,"B":3,"_":4,"a":2,"a1":6,"aa":7,"b":1}`},
	{"keys-by-code-point", "U+FF5E sorts before U+1F30A by code point; by UTF-16 unit it would not.", `{"🌊":1,"～":2,"é":3,"e":4}`, `{"e":4,"é":3,"～":2,"🌊":1}`},
	{"keys-nested", "Every object is sorted, however deep.", `[{"z":{"b":[{"d":1,"c":2}],"a":0}}]`, `[{"z":{"a":0,"b":[{"c":2,"d":1}]}}]`},
	{"escapes-shortest", "Escapes are undone unless they are needed, and then the shortest is used.", `"\u0041\u00e9\/\"\\\b\f\n\r\t\u0000\u001f\u007f\u2028"`, "\"Aé/\\\"\\\\\\b\\f\\n\\r\\t\\u0000\\u001f\u007f\u2028\""},
	{"surrogate-pair", "A pair of surrogate escapes is one character.", `"\ud83c\udf0a"`, `"🌊"`},
	{"names-escaped", "A name is the same name however it is escaped.", `{"\u0062":1,"a":2}`, `{"a":2,"b":1}`},
	{"html-left-alone", "Nothing is escaped for the sake of a browser.", `"<a href=\"x\">&</a>"`, `"<a href=\"x\">&</a>"`},
	{"literals", "The literals.", `[true,false,null]`, `[true,false,null]`},
	{"integers", "The largest integers.", `[0,-1,9007199254740991,-9007199254740991]`, `[0,-1,9007199254740991,-9007199254740991]`},
	{"receipt", "A receipt's body as it is hashed.", `{"grant":"00","window":496389,"seq":0,"prev":"00","counters":{"req":141,"conn_open":2},"forwarded_for":[],"at":1787003600}`,
		`{"at":1787003600,"counters":{"conn_open":2,"req":141},"forwarded_for":[],"grant":"00","prev":"00","seq":0,"window":496389}`},
	{"depth-64", "Sixty-four levels are allowed.", strings.Repeat("[", 64) + "0" + strings.Repeat("]", 64), strings.Repeat("[", 64) + "0" + strings.Repeat("]", 64)},
	{"refuse-depth-65", "Sixty-five levels are not.", strings.Repeat("[", 65) + "0" + strings.Repeat("]", 65), ""},
	{"refuse-fraction", "A fraction, even one that is whole.", `[1.0]`, ""},
	{"refuse-exponent", "An exponent.", `[1e3]`, ""},
	{"refuse-minus-zero", "Zero has no sign.", `[-0]`, ""},
	{"refuse-too-large", "An integer that not every reader holds exactly.", `[9007199254740992]`, ""},
	{"refuse-too-small", "The same below zero.", `[-9007199254740992]`, ""},
	{"refuse-leading-zero", "A leading zero.", `[01]`, ""},
	{"refuse-plus", "A plus sign.", `[+1]`, ""},
	{"refuse-duplicate-name", "A name that occurs twice.", `{"a":1,"a":1}`, ""},
	{"refuse-duplicate-escaped", "A name that occurs twice, once escaped.", `{"a":1,"\u0061":2}`, ""},
	{"refuse-lone-surrogate", "Half a surrogate pair.", `"\ud83c"`, ""},
	{"refuse-two-values", "Two values.", `{} {}`, ""},
	{"refuse-empty", "No value.", ``, ""},
	{"refuse-cut-short", "The text ends inside an object.", `{"a":[1,2`, ""},
	{"refuse-trailing-comma", "A trailing comma.", `[1,]`, ""},
	{"refuse-comment", "A comment.", `[1/*one*/]`, ""},
	{"refuse-nan", "Not a number.", `[NaN]`, ""},
	{"refuse-control-character", "A control character that is not escaped.", "\"\x01\"", ""},
}

func canonicalVectors(t testing.TB) map[string]vector {
	out := map[string]vector{}
	for _, c := range canonicalCases {
		v := vector{About: c.about, Layer: "canonical", Function: "canonical", Input: raw(t, m{"text": c.text})}
		if c.want == "" {
			v.Refuse = notCanonical
		} else {
			sum := sha256.Sum256([]byte(c.want))
			v.Output = raw(t, m{"text": c.want, "sha256": hex.EncodeToString(sum[:])})
		}
		out[c.name] = v
	}
	out["refuse-invalid-utf-8"] = vector{About: "An octet that is no UTF-8.", Layer: "canonical", Function: "canonical", Refuse: notCanonical, Input: raw(t, m{"hex": "22ff22"})}
	return out
}

func ratioVectors(t testing.TB) map[string]vector {
	out := map[string]vector{}
	floor := func(name, about string, n int64, r Ratio, want int64) {
		out[name] = vector{About: about, Layer: "ratio", Function: "floor", Input: raw(t, m{"n": json.Number(itoa(n)), "ratio": r}), Output: raw(t, json.Number(itoa(want)))}
	}
	floor("floor-quarter", "A quarter of the probation ceiling of events_in, rounded down.", 750, R(1, 4), 187)
	floor("floor-half", "Half of an odd limit.", 3001, R(1, 2), 1500)
	floor("floor-decay", "Nine tenths.", 11, R(9, 10), 9)
	floor("floor-of-zero", "Nothing of nothing.", 0, R(9, 10), 0)
	floor("floor-by-zero", "A factor of zero.", 48000, R(0, 1), 0)
	floor("floor-above-one", "A ratio above one.", 3000, R(11, 10), 3300)
	floor("floor-wide", "The product needs more than 64 bits, the answer does not.", math.MaxInt64, R(9, 10), 8301034833169298226)
	floor("floor-saturates", "An answer beyond 2^63-1 is 2^63-1.", math.MaxInt64, R(5, 1), math.MaxInt64)
	compare := func(name, about string, num, den int64, r Ratio, want int) {
		out[name] = vector{About: about, Layer: "ratio", Function: "compare", Input: raw(t, m{"num": json.Number(itoa(num)), "den": json.Number(itoa(den)), "ratio": r}), Output: raw(t, want)}
	}
	compare("compare-below", "3299 of 3000 is not yet 110 %.", 3299, 3000, R(11, 10), -1)
	compare("compare-at", "3300 of 3000 is 110 % exactly.", 3300, 3000, R(11, 10), 0)
	compare("compare-above", "3301 of 3000 is above 110 %.", 3301, 3000, R(11, 10), 1)
	compare("compare-float-trap", "A tenth of three is not what binary floating point makes of it.", 3, 30, R(1, 10), 0)
	compare("compare-limit-of-zero", "Anything against a limit of zero is above every ratio.", 1, 0, R(5, 1), 1)
	compare("compare-nothing-of-zero", "Nothing against a limit of zero is nothing.", 0, 0, R(1, 10), -1)
	compare("compare-wide", "The products need more than 64 bits.", math.MaxInt64, math.MaxInt64-1, R(1, 1), 1)
	return out
}

func digestVectors(t testing.TB) map[string]vector {
	k, ms, c := sourceFiles(t.(*testing.T))
	in := m{}
	for name, text := range map[string][]byte{"kinds_sha256": k, "messages_sha256": ms, "constants_sha256": c} {
		sum := sha256.Sum256(mustCanonical(text))
		in[name] = hex.EncodeToString(sum[:])
	}
	d := digestOf(k, ms, c)
	return map[string]vector{"current": {About: "The digest that a node built from these files declares, and the SHA-256 of each file's canonical form.",
		Layer: "digest", Function: "digest", Input: raw(t, in), Output: raw(t, hex.EncodeToString(d[:]))}}
}

func blindingVectors(t testing.TB) map[string]vector {
	out := map[string]vector{}
	for _, x := range []string{"0000000000000000000000000000000000000000000000000000000000000001",
		"c6047f9441ed7d6d3045406e95c07cd85c778e4b8cef3ca7abac09b95c709ee5"} {
		for what, labels := range map[string]Labels{"grant": C().Blinding.Grant, "job": C().Blinding.Job} {
			secret, _ := hex.DecodeString(x)
			tag, err := hkdf.Key(sha256.New, secret, []byte(labels.Salt), labels.Info, C().Blinding.Length)
			if err != nil {
				t.Fatal(err)
			}
			out["tag-"+what+"-"+x[:4]] = vector{About: "The d tag of a " + what + " between two keys whose ECDH point has this x coordinate.", Layer: "blinding", Function: "tag",
				Input: raw(t, m{"shared_x": x, "salt": labels.Salt, "info": labels.Info}), Output: raw(t, hex.EncodeToString(tag))}
		}
	}
	blind := strings.Repeat("07", 32)
	text := `{"tags":[["tier","member"]]}`
	b, _ := hex.DecodeString(blind)
	sum := sha256.Sum256(append(b, text...))
	out["commit"] = vector{About: "The commitment hashes the raw blinding and then the canonical text.", Layer: "blinding", Function: "commit",
		Input: raw(t, m{"blinding": blind, "text": text}), Output: raw(t, hex.EncodeToString(sum[:]))}
	return out
}

func TestVectorsAreUpToDate(t *testing.T) {
	for layer, cases := range map[string]map[string]vector{"canonical": canonicalVectors(t), "ratio": ratioVectors(t),
		"digest": digestVectors(t), "blinding": blindingVectors(t)} {
		dir := path.Join("vectors", layer)
		if *update {
			if err := os.MkdirAll(dir, 0o755); err != nil {
				t.Fatal(err)
			}
		}
		for name, v := range cases {
			var text bytes.Buffer
			if err := json.Indent(&text, raw(t, v), "", "  "); err != nil {
				t.Fatal(err)
			}
			text.WriteByte('\n')
			sameFile(t, path.Join(dir, name+".json"), text.Bytes())
		}
		entries, _ := os.ReadDir(dir)
		for _, e := range entries {
			if _, ok := cases[strings.TrimSuffix(e.Name(), ".json")]; !ok {
				t.Errorf("%s/%s comes from no generator", dir, e.Name())
			}
		}
	}
}

// The cases as another program would run them: read, compute, compare.
func TestVectors(t *testing.T) {
	if *update {
		t.Skip("what is embedded here is older than what -update wrote")
	}
	ran := 0
	err := fs.WalkDir(Vectors, "vectors", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || path.Ext(name) != ".json" {
			return err
		}
		text, err := fs.ReadFile(Vectors, name)
		if err != nil {
			return err
		}
		var v vector
		if err := json.Unmarshal(text, &v); err != nil {
			t.Errorf("%s: %v", name, err)
			return nil
		}
		if !slices.Contains(own, v.Layer) {
			return nil
		}
		if v.Layer != path.Base(path.Dir(name)) || v.About == "" || (v.Refuse == "") == (v.Output == nil) {
			t.Errorf("%s: the header does not hold together", name)
		}
		ran++
		runVector(t, name, v)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if ran == 0 {
		t.Error("no vector was run")
	}
}

func runVector(t *testing.T, name string, v vector) {
	t.Helper()
	var in struct {
		Text, Hex   string
		N, Num, Den int64
		Ratio       Ratio
		SharedX     string `json:"shared_x"`
		Salt, Info  string
		Blinding    string
	}
	if err := json.Unmarshal(v.Input, &in); err != nil {
		t.Errorf("%s: %v", name, err)
		return
	}
	var got any
	switch v.Layer + " " + v.Function {
	case "canonical canonical":
		text := []byte(in.Text)
		if in.Hex != "" {
			text, _ = hex.DecodeString(in.Hex)
		}
		out, err := Canonical(text)
		if (err != nil) != (v.Refuse == notCanonical) {
			t.Errorf("%s: %s got %q, %v", name, v.About, out, err)
		}
		if err != nil {
			return
		}
		sum := sha256.Sum256(out)
		got = m{"text": string(out), "sha256": hex.EncodeToString(sum[:])}
	case "ratio floor":
		got = in.Ratio.Floor(in.N)
	case "ratio compare":
		got = in.Ratio.CmpFraction(in.Num, in.Den)
	case "digest digest":
		got = DigestHex()
	case "blinding tag":
		secret, _ := hex.DecodeString(in.SharedX)
		tag, err := hkdf.Key(sha256.New, secret, []byte(in.Salt), in.Info, C().Blinding.Length)
		if err != nil {
			t.Fatal(err)
		}
		got = hex.EncodeToString(tag)
	case "blinding commit":
		b, _ := hex.DecodeString(in.Blinding)
		sum := sha256.Sum256(append(b, in.Text...))
		got = hex.EncodeToString(sum[:])
	default:
		t.Errorf("%s: no function %s of layer %s", name, v.Function, v.Layer)
		return
	}
	var want bytes.Buffer
	if err := json.Compact(&want, v.Output); err != nil {
		t.Fatal(err)
	}
	g, w := mustCanonicalText(t, raw(t, got)), mustCanonicalText(t, want.Bytes())
	if g != w {
		t.Errorf("%s: %s got %s, want %s", name, v.About, g, w)
	}
}

// mustCanonicalText compares outputs whatever the order of their members. A ratio's
// answers may exceed what the canonical form allows, so those stay as they are.
func mustCanonicalText(t *testing.T, b []byte) string {
	t.Helper()
	if c, err := Canonical(b); err == nil {
		return string(c)
	}
	return string(b)
}
