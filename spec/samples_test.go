package spec

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"fleetmesh.org/fleetmesh/nostr"
)

func loadSamples(t testing.TB) (valid, invalid []Sample) {
	t.Helper()
	valid, invalid, err := Samples()
	if err != nil {
		t.Fatal(err)
	}
	return valid, invalid
}

func TestValidSamples(t *testing.T) {
	valid, _ := loadSamples(t)
	for _, s := range valid {
		if s.Layer != "" || s.Fails != "" {
			t.Errorf("%s: a valid sample fails nowhere", s.Name)
		}
		if err := s.Check(); err != nil {
			t.Errorf("%s: %v", s.Name, err)
		}
		if _, err := Canonical(s.Bytes()); err != nil {
			t.Errorf("%s: %v", s.Name, err)
		}
	}
}

func TestInvalidSamples(t *testing.T) {
	valid, invalid := loadSamples(t)
	for _, s := range invalid {
		base, _, _ := strings.Cut(s.Name, ".")
		if !slices.ContainsFunc(valid, func(v Sample) bool { return strings.HasPrefix(s.Name, v.Name+".") && v.Subject == s.Subject }) {
			t.Errorf("%s: no valid sample %s of the same subject", s.Name, base)
		}
		if s.Fails == "" {
			t.Errorf("%s: it does not say what fails", s.Name)
		}
		err := s.Check()
		if s.Layer == "canonical" {
			if err != nil {
				t.Errorf("%s: refused before its layer: %v", s.Name, err)
			}
			if _, err := Canonical(s.Bytes()); !errors.Is(err, ErrNotCanonical) {
				t.Errorf("%s: it has a canonical form (%v)", s.Name, err)
			}
			continue
		}
		var se *SchemaError
		if !errors.As(err, &se) {
			t.Errorf("%s: %s, but: %v", s.Name, s.Fails, err)
			continue
		}
		if syntax := strings.HasPrefix(se.Reason, "it is not"); syntax != (s.Layer == "syntax") {
			t.Errorf("%s: refused by another layer than %s: %v", s.Name, s.Layer, err)
		}
		if s.Layer == "schema" && se.Path != s.Path {
			t.Errorf("%s: refused at %q, want %q: %v", s.Name, se.Path, s.Path, err)
		}
	}
}

// Every kind, message, object and manifest has samples of both sorts.
func TestSamplesCoverEverything(t *testing.T) {
	valid, invalid := loadSamples(t)
	var want []string
	for _, k := range Kinds() {
		want = append(want, fmt.Sprintf("event %d", k.Kind))
	}
	for _, p := range Messages().Protocols {
		for _, m := range p.Messages {
			want = append(want, "message "+string(p.Type(m.Name)))
		}
	}
	for _, o := range Objects() {
		want = append(want, "object "+o)
	}
	for _, subject := range want {
		of := func(s Sample) bool { return s.Subject == subject }
		if !slices.ContainsFunc(valid, of) || !slices.ContainsFunc(invalid, of) {
			t.Errorf("%s: want a valid and an invalid sample", subject)
		}
	}
	for _, m := range ManifestKinds() {
		of := func(s Sample) bool { return strings.HasPrefix(s.Name, "manifest-"+m) }
		if !slices.ContainsFunc(valid, of) || !slices.ContainsFunc(invalid, of) {
			t.Errorf("manifest %s: want a valid and an invalid sample", m)
		}
	}
}

// kinds.json and the schemas were written apart: what the one says of a tag, the
// other must enforce.
func TestTagRulesMatchKinds(t *testing.T) {
	valid, _ := loadSamples(t)
	for _, s := range valid {
		what, _, _ := strings.Cut(s.Subject, " ")
		if what != "event" {
			continue
		}
		var e map[string]any
		if err := json.Unmarshal(s.Instance, &e); err != nil {
			t.Fatal(err)
		}
		row, _ := LookupKind(nostr.Kind(e["kind"].(float64)))
		tags := e["tags"].([]any)
		refused := func(changed []any) bool {
			e["tags"] = changed
			b, _ := json.Marshal(e)
			v, err := unmarshalAny(b)
			if err != nil {
				t.Fatal(err)
			}
			return validate(s.Name, row.Schema.File, v) != nil
		}
		has := func(name string) bool {
			return slices.ContainsFunc(tags, func(x any) bool { return x.([]any)[0] == name })
		}
		for _, tag := range slices.Concat(row.Required, row.Optional) {
			required := slices.ContainsFunc(row.Required, func(r TagSpec) bool { return r.Name == tag.Name })
			without := slices.DeleteFunc(slices.Clone(tags), func(x any) bool { return x.([]any)[0] == tag.Name })
			if required && !refused(without) {
				t.Errorf("%s: the schema accepts it without tag %s", s.Name, tag.Name)
			}
			for i, x := range tags {
				one := x.([]any)
				if one[0] != tag.Name {
					continue
				}
				if twice := append(slices.Clone(tags), x); !tag.Repeat && !refused(twice) {
					t.Errorf("%s: the schema accepts tag %s twice", s.Name, tag.Name)
				}
				short := slices.Clone(tags)
				short[i] = one[:tag.needs()]
				if tag.needs() > 0 && !refused(short) {
					t.Errorf("%s: the schema accepts tag %s with %d values", s.Name, tag.Name, tag.needs()-1)
				}
				if len(one)-1 > tag.needs() && tag.MinValues > 0 {
					short[i] = one[:tag.needs()+1]
					if refused(short) && one[1] != "bacalhau" {
						t.Errorf("%s: the schema wants more than %d values of tag %s", s.Name, tag.needs(), tag.Name)
					}
				}
			}
		}
		if !has("x-not-defined") && refused(append(slices.Clone(tags), []any{"x-not-defined"})) {
			t.Errorf("%s: the schema refuses a tag it does not know", s.Name)
		}
	}
}

// Whatever a body or object requires is required, and nothing unknown is let in.
func TestObjectsAreClosed(t *testing.T) {
	valid, _ := loadSamples(t)
	for _, s := range valid {
		if strings.HasPrefix(s.Subject, "event ") {
			continue // a member beyond the seven is nobody's business
		}
		var o map[string]json.RawMessage
		if err := json.Unmarshal(s.Instance, &o); err != nil {
			t.Fatal(err)
		}
		o["not_defined"] = json.RawMessage("1")
		s.Instance, _ = json.Marshal(o)
		if err := s.Check(); err == nil {
			t.Errorf("%s: an unknown member is let in", s.Name)
		}
	}
}

// sampleKeys sign the events of samples; their secrets are public by design.
func sampleKeys() map[string]nostr.SecretKey {
	keys := map[string]nostr.SecretKey{}
	for _, who := range []string{"issuer", "subject", "operator", "relayer", "mediator", "author", "member"} {
		k := nostr.SecretKey(sha256.Sum256([]byte("fleetmesh sample " + who)))
		keys[k.PubKey().String()] = k
	}
	return keys
}

// Every event of a sample that can be signed is, so that only the failure under
// test is one.
func TestSampleEventsAreSigned(t *testing.T) {
	keys := sampleKeys()
	for _, dir := range []string{"samples/valid", "samples/invalid"} {
		entries, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			name := dir + "/" + e.Name()
			text, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			sameFile(t, name, signedEvents(t, text, keys))
		}
	}
}

// signedEvents replaces the id and signature of each event in the text that does
// not verify. It works on the text, so that the layout of the file stays.
func signedEvents(t *testing.T, text []byte, keys map[string]nostr.SecretKey) []byte {
	t.Helper()
	v, err := unmarshalAny(text)
	if err != nil {
		t.Fatal(err)
	}
	eachEvent(v, func(raw map[string]any) {
		id, _ := raw["id"].(string)
		sig, _ := raw["sig"].(string)
		b, _ := json.Marshal(map[string]any{"id": id, "pubkey": raw["pubkey"], "created_at": raw["created_at"],
			"kind": raw["kind"], "tags": raw["tags"], "content": raw["content"], "sig": sig})
		var e nostr.Event
		if !eventOf(b, &e) || nostr.NewVerifier().Verify([]*nostr.Event{&e})[0] && e.ComputeID() == e.ID {
			return
		}
		key, ok := keys[e.PubKey.String()]
		if !ok {
			t.Errorf("event %s is by no sample key", id)
			return
		}
		if err := e.Sign(key); err != nil {
			t.Fatal(err)
		}
		// The first occurrence of this pair is this event: both are written in order.
		text = bytes.Replace(text, []byte(`"`+id+`"`), []byte(`"`+e.ID.String()+`"`), 1)
		text = bytes.Replace(text, []byte(`"`+sig+`"`), []byte(`"`+e.Sig.String()+`"`), 1)
	})
	return text
}

func eachEvent(v any, f func(map[string]any)) {
	switch t := v.(type) {
	case map[string]any:
		if _, isEvent := t["created_at"]; isEvent && t["sig"] != nil {
			f(t)
			return
		}
		for _, x := range t {
			eachEvent(x, f)
		}
	case []any:
		for _, x := range t {
			eachEvent(x, f)
		}
	}
}

// eventOf reads an event without judging its id; false where a member has the
// wrong shape, as in a sample whose failure that is.
func eventOf(b []byte, e *nostr.Event) bool {
	var x struct {
		ID, PubKey, Content, Sig string
		CreatedAt                int64 `json:"created_at"`
		Kind                     nostr.Kind
		Tags                     []nostr.Tag
	}
	if json.Unmarshal(b, &x) != nil {
		return false
	}
	id, err1 := nostr.ParseID(x.ID)
	pk, err2 := nostr.ParsePubKey(x.PubKey)
	*e = nostr.Event{ID: id, PubKey: pk, CreatedAt: x.CreatedAt, Kind: x.Kind, Tags: x.Tags, Content: x.Content}
	var sig []byte
	if _, err := fmt.Sscanf(x.Sig, "%x", &sig); err != nil || len(sig) != 64 {
		return false
	}
	e.Sig = nostr.Sig(sig)
	return err1 == nil && err2 == nil
}

// Schemas are compiled when they are first used, by whoever comes first.
func TestValidateFromManyGoroutines(t *testing.T) {
	valid, invalid := loadSamples(t)
	var all sync.WaitGroup
	for i := range 4 {
		all.Go(func() {
			for j := range valid {
				if err := valid[(i*17+j)%len(valid)].Check(); err != nil {
					t.Error(err)
				}
			}
			for j := range invalid {
				if s := &invalid[(i*31+j)%len(invalid)]; s.Layer == "schema" && s.Check() == nil {
					t.Errorf("%s is accepted", s.Name)
				}
			}
		})
	}
	all.Wait()
}
