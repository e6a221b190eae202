package nostr

import (
	"errors"
	"strings"
	"testing"
)

func filterOf(t testing.TB, s string) Filter {
	t.Helper()
	f, err := ParseFilter([]byte(s))
	if err != nil {
		t.Fatalf("%s: %v", s, err)
	}
	return f
}

// matching returns which of the events match, as letters from a on.
func matching(f Filter, events ...*Event) string {
	var out []byte
	for i, e := range events {
		if f.Matches(e) {
			out = append(out, 'a'+byte(i))
		}
	}
	return string(out)
}

func TestCase11HexOfFilters(t *testing.T) {
	upper := strings.ToUpper(keyA)
	for _, s := range []string{
		`{"ids":["` + upper + `"]}`, `{"authors":["` + upper + `"]}`, `{"#p":["` + upper + `"]}`, `{"#e":["` + upper + `"]}`,
		`{"ids":["` + keyA[1:] + `"]}`, `{"ids":["` + keyA + `0"]}`, `{"authors":["abcd"]}`, `{"#e":[""]}`, `{"ids":["` + keyA[1:] + `g"]}`,
	} {
		if _, err := ParseFilter([]byte(s)); !errors.Is(err, ErrSyntax) {
			t.Errorf("%s gave %v", s, err)
		}
	}
	// Letters other than e and p take any text; P is not p.
	filterOf(t, `{"#P":["`+upper+`"],"#t":["x"]}`)
}

func TestCase13TagValuesThatBeginAlike(t *testing.T) {
	tag := func(values ...string) *Event {
		e := &Event{Kind: 1}
		for _, v := range values {
			e.Tags = append(e.Tags, Tag{"t", v})
		}
		return e
	}
	x, y, z, w := tag("bit"), tag("bitcoin"), tag("bit", "bitcoin"), tag("bi")
	for s, want := range map[string]string{
		`{"#t":["bit","bitcoin"]}`: "abc",
		`{"#t":["bitcoin","bit"]}`: "abc",
		`{"#t":["bit"]}`:           "ac",
		`{"#T":["bit"]}`:           "",
	} {
		if got := matching(filterOf(t, s), x, y, z, w); got != want {
			t.Errorf("%s: %s, want %s", s, got, want)
		}
	}
	// Only the first value of a tag counts, and only names of that one letter.
	odd := &Event{Tags: []Tag{{"t", "x", "bit"}, {"tt", "bit"}, {"", "bit"}, {"t"}}}
	if f := filterOf(t, `{"#t":["bit"]}`); f.Matches(odd) {
		t.Error("a later value or another name matches")
	}
	both := filterOf(t, `{"#t":["bit"],"#x":["1"]}`)
	if both.Matches(x) || !both.Matches(&Event{Tags: []Tag{{"x", "1"}, {"t", "bit"}}}) {
		t.Error("two tag conditions are not both needed")
	}
}

func TestCase15LimitZero(t *testing.T) {
	f := filterOf(t, `{"kinds":[1],"limit":0}`)
	if f.Limit == nil || *f.Limit != 0 || f.MatchesNothing() || !f.Matches(&Event{Kind: 1}) {
		t.Errorf("limit 0 was read as %+v", f)
	}
}

func TestCase17SinceAndUntil(t *testing.T) {
	before, at, after := &Event{CreatedAt: caseTime - 1}, &Event{CreatedAt: caseTime}, &Event{CreatedAt: caseTime + 1}
	for s, want := range map[string]string{
		`{"since":1700000000,"until":1700000000}`: "b",
		`{"since":1700000001}`:                    "c",
		`{"until":1700000000}`:                    "ab",
		`{"since":0}`:                             "abc",
		`{"until":0}`:                             "",
	} {
		f := filterOf(t, s)
		if got := matching(f, before, at, after); got != want || f.MatchesNothing() {
			t.Errorf("%s: %s, want %s", s, got, want)
		}
	}
	f := filterOf(t, `{"since":1700000001,"until":1700000000}`)
	if matching(f, before, at, after) != "" || !f.MatchesNothing() {
		t.Error("since after until matches something")
	}
}

func TestCase19EmptyLists(t *testing.T) {
	e := &Event{Kind: 1, Tags: []Tag{{"e"}, {"t", ""}}}
	for _, s := range []string{`{"kinds":[]}`, `{"ids":[]}`, `{"authors":[]}`, `{"#e":[]}`, `{"kinds":[1],"#t":[]}`, `{"kinds":[ ]}`} {
		f := filterOf(t, s)
		if f.Matches(e) || !f.MatchesNothing() {
			t.Errorf("%s matches something", s)
		}
	}
	if f := filterOf(t, `{}`); !f.Matches(e) || f.MatchesNothing() {
		t.Error("{} does not match everything")
	}
}

func TestFilterMatchesAllConditions(t *testing.T) {
	e := &Event{ID: ID{1}, PubKey: PubKey{2}, Kind: 7, CreatedAt: 10}
	since, until := int64(10), int64(10)
	full := Filter{IDs: []ID{{9}, {1}}, Authors: []PubKey{{9}, {2}}, Kinds: []Kind{1, 7}, Since: &since, Until: &until, Search: "x"}
	if !full.Matches(e) {
		t.Fatal("does not match")
	}
	for name, change := range map[string]func(f *Filter){
		"ids": func(f *Filter) { f.IDs = f.IDs[:1] }, "authors": func(f *Filter) { f.Authors = f.Authors[:1] },
		"kinds": func(f *Filter) { f.Kinds = f.Kinds[:1] }, "tags": func(f *Filter) { f.Tags = []TagFilter{{'t', []string{"x"}}} },
	} {
		f := full
		change(&f)
		if f.Matches(e) {
			t.Errorf("%s alone do not decide", name)
		}
	}
}

func TestParseFilterRefuses(t *testing.T) {
	for s, want := range map[string]string{
		`{"#ab":["x"]}`:            "#ab",
		`{"#1":["x"]}`:             "#1",
		`{"#":["x"]}`:              "#",
		`{"author":["x"]}`:         "author",
		`{"t":["x"]}`:              "t",
		`{"Kinds":[1]}`:            "Kinds",
		`{"kinds":[1],"kinds":[]}`: `two members "kinds"`,
		`{"#t":[],"\u0023t":[]}`:   `two members "#t"`,
		`{"kinds":1}`:              "kinds",
		`{"kinds":["1"]}`:          "kinds",
		`{"kinds":[65536]}`:        "kinds",
		`{"kinds":[-1]}`:           "kinds",
		`{"kinds":[1.0]}`:          "kinds",
		`{"kinds":null}`:           "kinds",
		`{"since":"1"}`:            "since",
		`{"since":-1}`:             "since",
		`{"since":1.5}`:            "since",
		`{"until":null}`:           "until",
		`{"limit":-1}`:             "limit",
		`{"limit":"1"}`:            "limit",
		`{"search":1}`:             "search",
		`{"#t":"x"}`:               "#t",
		`{"#t":[1]}`:               "#t",
		`{"#t":["\ud800"]}`:        "#t",
		`{"ids":{}}`:               "ids",
		`{"x":`:                    "x",
		``:                         "",
		`[]`:                       "",
		`null`:                     "",
		`{},`:                      "",
		`{}{}`:                     "",
		`{"kinds":[1],}`:           "",
		`{"kinds":[1,]}`:           "",
	} {
		f, err := ParseFilter([]byte(s))
		if !errors.Is(err, ErrSyntax) || !strings.Contains(err.Error(), want) || f.Kinds != nil {
			t.Errorf("%s gave %+v, %v", s, f, err)
		}
	}
}

func TestFilterJSONRoundTrip(t *testing.T) {
	for _, s := range []string{
		`{}`,
		`{"ids":[]}`,
		`{"ids":["` + keyA + `"],"authors":["` + keyA + `"],"kinds":[0,65535],"#t":["a\u0001b","\n",""],"#a":[],"#Z":["x"],"since":0,"until":9007199254740991,"limit":0,"search":"a \"b\""}`,
	} {
		f := filterOf(t, s)
		if got := string(f.AppendJSON(nil)); got != s {
			t.Errorf("%s came back as %s", s, got)
		}
	}
	if f := filterOf(t, `{"limit":9007199254740991}`); *f.Limit < 1<<31-1 {
		t.Errorf("a huge limit was read as %d", *f.Limit)
	}
}
