package spec

import (
	"bytes"
	"encoding/json"
	"errors"
	"math"
	"math/big"
	"strconv"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
	"pgregory.net/rapid"
)

func itoa(n int64) string { return strconv.FormatInt(n, 10) }

func TestCanonicalOfGoValues(t *testing.T) {
	type inner struct {
		B []string       `json:"b"`
		A map[string]int `json:"a,omitempty"`
	}
	for _, x := range []struct {
		v    any
		want string
	}{
		{inner{B: []string{"<&>"}}, `{"b":["<&>"]}`},
		{&inner{A: map[string]int{"z": 1, "y": 2}}, `{"a":{"y":2,"z":1},"b":null}`}, // as encoding/json writes it
		{map[string]any{"n": int64(7), "s": S2}, `{"n":7,"s":"S2"}`},
		{json.RawMessage(`{"b":1, "a":2}`), `{"a":2,"b":1}`},
		{jsontext.Value(` [ ] `), `[]`},
		{[]byte(`"x"`), `"x"`},
		{"x", `"x"`},
		{nil, `null`},
		{R(3, 20), `{"den":20,"num":3}`},
		{[][]string{{"b", "a"}}, `[["b","a"]]`},
	} {
		got, err := Canonical(x.v)
		if err != nil || string(got) != x.want {
			t.Errorf("Canonical(%v) = %s, %v; want %s", x.v, got, err, x.want)
		}
	}
	for _, bad := range []any{0.5, math.NaN(), "\xff", map[string]string{"\xff": ""}, func() {}, make(chan int), int64(1) << 53, uint64(math.MaxUint64)} {
		if got, err := Canonical(bad); !errors.Is(err, ErrNotCanonical) {
			t.Errorf("Canonical(%T) = %s, %v; want a refusal", bad, got, err)
		}
	}
	kept := []byte("kept")
	if got, err := AppendCanonical(kept, []byte("{")); err == nil || string(got) != "kept" {
		t.Errorf("a refused value was appended: %q, %v", got, err)
	}
}

func TestCanonicalErrorNamesThePlace(t *testing.T) {
	for text, want := range map[string]string{
		`{"a":[1,{"b":1.5}]}`: "/a/1/b",
		`{"a":{"b":1,"b":2}}`: "/a",
		`[0,-0]`:              "/1",
	} {
		if _, err := Canonical([]byte(text)); err == nil || !strings.Contains(err.Error(), "at "+want) {
			t.Errorf("Canonical(%s): %v; want it to name %s", text, err, want)
		}
	}
}

// Whatever has a canonical form has one, keeps it, and means the same.
func checkCanonical(t interface{ Errorf(string, ...any) }, text []byte) {
	once, err := Canonical(text)
	if err != nil {
		return
	}
	twice, err := Canonical(once)
	if err != nil || !bytes.Equal(once, twice) {
		t.Errorf("%q has the form %q, which has the form %q (%v)", text, once, twice, err)
	}
	a, err1 := unmarshalAny(text)
	b, err2 := unmarshalAny(once)
	if err1 != nil || err2 != nil {
		t.Errorf("%q: encoding/json reads one of the two not: %v, %v", text, err1, err2)
		return
	}
	x, _ := json.Marshal(a)
	y, _ := json.Marshal(b)
	if !bytes.Equal(x, y) {
		t.Errorf("%q and its form %q differ", text, once)
	}
}

func FuzzCanonical(f *testing.F) {
	for _, c := range canonicalCases {
		f.Add([]byte(c.text))
	}
	f.Add(constantsJSON)
	f.Fuzz(func(t *testing.T, text []byte) { checkCanonical(t, text) })
}

func FuzzValidate(f *testing.F) {
	valid, invalid := loadSamples(f)
	for _, s := range append(valid, invalid...) {
		f.Add(s.Subject, s.Bytes())
	}
	f.Fuzz(func(t *testing.T, subject string, text []byte) {
		s := Sample{Subject: subject, Instance: text}
		_ = s.Check() // refuses or accepts; never panics
	})
}

func FuzzProtocols(f *testing.F) {
	f.Add(protocolsFile)
	f.Add([]byte("# x\na 00\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		held, err := parseProtocols(text)
		for id, sum := range held {
			if err == nil && (id == "" || len(sum) != 64) {
				t.Errorf("read %q as %q %q", text, id, sum)
			}
		}
	})
}

func TestRatioAgainstBigRationals(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := R(rapid.Int64Range(0, math.MaxInt64).Draw(t, "num"), rapid.Int64Range(1, math.MaxInt64).Draw(t, "den"))
		n := rapid.Int64().Draw(t, "n")
		want := new(big.Int).Mul(big.NewInt(max(0, n)), big.NewInt(r.Num))
		want.Quo(want, big.NewInt(r.Den))
		if !want.IsInt64() {
			want.SetInt64(math.MaxInt64)
		}
		if got := r.Floor(n); got != want.Int64() {
			t.Errorf("%v.Floor(%d) = %d, want %s", r, n, got, want)
		}
		num, den := rapid.Int64Range(0, math.MaxInt64).Draw(t, "a"), rapid.Int64Range(1, math.MaxInt64).Draw(t, "b")
		if got, want := r.CmpFraction(num, den), new(big.Rat).SetFrac64(num, den).Cmp(new(big.Rat).SetFrac64(r.Num, r.Den)); got != want {
			t.Errorf("%d/%d against %v: %d, want %d", num, den, r, got, want)
		}
		if r.check() != nil {
			t.Errorf("R gives %v, which its own check refuses", r)
		}
	})
}

func TestRatioRefusesNonsense(t *testing.T) {
	for _, bad := range [][2]int64{{-1, 1}, {1, 0}, {1, -1}} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("R(%d, %d) is a ratio", bad[0], bad[1])
				}
			}()
			R(bad[0], bad[1])
		}()
	}
	for _, r := range []Ratio{{2, 4}, {-1, 2}, {1, 0}, {0, 2}} {
		if r.check() == nil {
			t.Errorf("%v passes as a ratio in lowest terms", r)
		}
	}
}

func TestSeverity(t *testing.T) {
	for s := S0; s <= S4; s++ {
		got, err := ParseSeverity(s.String())
		if err != nil || got != s {
			t.Errorf("%v reads back as %v, %v", s, got, err)
		}
	}
	for _, bad := range []string{"", "S", "S5", "s1", "S10", "2"} {
		if _, err := ParseSeverity(bad); err == nil {
			t.Errorf("%q is read as a severity", bad)
		}
	}
	if S1.Worse(S3) != S3 || S3.Worse(S1) != S3 {
		t.Error("the worse of S1 and S3 is S3")
	}
	if _, err := Severity(9).MarshalText(); err == nil {
		t.Error("a severity beyond S4 is written")
	}
}

func BenchmarkCanonicalReceipt(b *testing.B) {
	text := []byte(canonicalCases[11].text)
	b.ReportAllocs()
	var out []byte
	for b.Loop() {
		out, _ = AppendCanonical(out[:0], text)
	}
}

func BenchmarkValidateEvent(b *testing.B) {
	valid, _ := loadSamples(b)
	for b.Loop() {
		if err := valid[0].Check(); err != nil {
			b.Fatal(err)
		}
	}
}
