package mesh

import (
	"testing"

	"pgregory.net/rapid"

	"fleetmesh.org/fleetmesh/internal/ledger"
	"fleetmesh.org/fleetmesh/nostr"
)

func filter(t testing.TB, s string) nostr.Filter {
	t.Helper()
	f, err := nostr.ParseFilter([]byte(s))
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func TestCovers(t *testing.T) {
	for _, c := range []struct {
		scope, filter string
		want          bool
	}{
		{`{}`, `{}`, true},
		{`{}`, `{"kinds":[1]}`, true},
		{`{"kinds":[1]}`, `{}`, false},
		{`{"kinds":[1,7]}`, `{"kinds":[7]}`, true},
		{`{"kinds":[1,7]}`, `{"kinds":[7,9]}`, false},
		{`{"#t":["a"]}`, `{"kinds":[1]}`, false},
		{`{"#t":["a","b"]}`, `{"#t":["b"],"kinds":[1]}`, true},
		{`{"since":10}`, `{"since":9}`, false},
		{`{"since":10,"until":20}`, `{"since":10,"until":20}`, true},
		{`{"since":10,"until":20}`, `{"since":12}`, false},
		{`{"kinds":[1]}`, `{"kinds":[]}`, true},
	} {
		f := filter(t, c.filter)
		if got := covers([]ledger.Scope{{Direction: ledger.Pull, Filter: filter(t, c.scope)}}, ledger.Pull, &f); got != c.want {
			t.Errorf("%s covers %s: %v, want %v", c.scope, c.filter, got, c.want)
		}
		if covers([]ledger.Scope{{Direction: ledger.Push, Filter: filter(t, c.scope)}}, ledger.Pull, &f) {
			t.Errorf("%s covers %s in the other direction", c.scope, c.filter)
		}
	}
}

// TestCoveredFiltersMatchNoMore draws scopes, filters and events: what a covered filter matches, its scope matches too.
func TestCoveredFiltersMatchNoMore(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		draw := func(name string) nostr.Filter {
			var f nostr.Filter
			if rapid.Bool().Draw(t, name+" has kinds") {
				f.Kinds = rapid.SliceOfN(rapid.Custom(func(t *rapid.T) nostr.Kind { return nostr.Kind(rapid.IntRange(0, 3).Draw(t, "kind")) }), 0, 3).Draw(t, name+" kinds")
			}
			if rapid.Bool().Draw(t, name+" has tags") {
				f.Tags = []nostr.TagFilter{{Letter: 't', Values: rapid.SliceOfN(rapid.SampledFrom([]string{"a", "b", "c"}), 0, 3).Draw(t, name+" values")}}
			}
			if rapid.Bool().Draw(t, name+" has since") {
				since := rapid.Int64Range(0, 4).Draw(t, name+" since")
				f.Since = &since
			}
			return f
		}
		scope, f := draw("scope"), draw("filter")
		e := &nostr.Event{Kind: nostr.Kind(rapid.IntRange(0, 3).Draw(t, "event kind")), CreatedAt: rapid.Int64Range(0, 4).Draw(t, "at"),
			Tags: []nostr.Tag{{"t", rapid.SampledFrom([]string{"a", "b", "c", "d"}).Draw(t, "tag")}}}
		if within(&f, &scope) && f.Matches(e) && !scope.Matches(e) {
			t.Fatalf("%s lies within %s and matches more", f.AppendJSON(nil), scope.AppendJSON(nil))
		}
	})
}
