package nostr

import (
	"encoding/json"
	"testing"
)

func TestTextForms(t *testing.T) {
	type all struct {
		ID     ID
		PubKey PubKey
		Filter Filter
	}
	in := all{Filter: Filter{Kinds: []Kind{1}, Tags: []TagFilter{{'t', []string{"x"}}}}}
	in.ID[0], in.PubKey = 0xab, PubKey{31: 1}
	text, err := json.Marshal(in)
	if err != nil {
		t.Fatal(err)
	}
	var out all
	if err := json.Unmarshal(text, &out); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	if out.ID != in.ID || out.PubKey != in.PubKey || string(out.Filter.AppendJSON(nil)) != string(in.Filter.AppendJSON(nil)) {
		t.Errorf("%s became %+v", text, out)
	}
	for _, bad := range []string{`{"ID":"ab"}`, `{"PubKey":"npub1"}`, `{"Filter":{"kinds":"x"}}`} {
		if json.Unmarshal([]byte(bad), &out) == nil {
			t.Errorf("%s was read", bad)
		}
	}
}
