package manifest

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/goccy/go-yaml"
)

// Set is what an operator declares together: at most one MeshNode, and what belongs to it.
type Set []*Object

// JSON is the canonical form of the object: JSON without white space, names sorted by code point.
func (o *Object) JSON() []byte { return canonical(o.value) }

// canonical writes JSON values that Parse or a JSON reader made. It differs from spec.Canonical in that it takes fractions: the rates
// of a relay face may have them, and no other node ever hashes a manifest.
func canonical(v any) []byte {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		panic("manifest: a JSON value always renders: " + err.Error())
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}

func equal(a, b any) bool { return bytes.Equal(canonical(a), canonical(b)) }

// Sorted is the set in its canonical order: by kind, then by name.
func (s Set) Sorted() Set {
	out := slices.Clone(s)
	slices.SortStableFunc(out, func(a, b *Object) int { return strings.Compare(a.Ref(), b.Ref()) })
	return out
}

// Hash is the SHA-256, in hex, over the canonical forms in canonical order, a line feed after each. It does not depend on the files,
// their order, comments or notation. The hash of an empty set is "".
func (s Set) Hash() string {
	if len(s) == 0 {
		return ""
	}
	h := sha256.New()
	for _, o := range s.Sorted() {
		h.Write(o.JSON())
		h.Write([]byte{'\n'})
	}
	return hex.EncodeToString(h.Sum(nil))
}

// Node is the set's MeshNode, nil if it has none.
func (s Set) Node() *Object { return s.first("MeshNode") }

func (s Set) first(kind string) *Object {
	for _, o := range s {
		if o.Kind == kind {
			return o
		}
	}
	return nil
}

// Documents are the canonical forms in canonical order: what travels over the control socket.
func (s Set) Documents() []json.RawMessage {
	out := []json.RawMessage{}
	for _, o := range s.Sorted() {
		out = append(out, o.JSON())
	}
	return out
}

// FromDocuments reads what Documents wrote.
func FromDocuments(docs []json.RawMessage) (Set, error) {
	var all Set
	for i, d := range docs {
		list, err := Parse(fmt.Sprintf("object-%d.json", i+1), d)
		if err != nil {
			return nil, err
		}
		all = append(all, list...)
	}
	return all, nil
}

// YAML is the set as one YAML file, in canonical order, apiVersion, kind and metadata first.
func (s Set) YAML() []byte {
	var b bytes.Buffer
	for i, o := range s.Sorted() {
		if i > 0 {
			b.WriteString("---\n")
		}
		b.Write(renderYAML(yaml.MapSlice{
			{Key: "apiVersion", Value: o.value["apiVersion"]}, {Key: "kind", Value: o.Kind},
			{Key: "metadata", Value: o.value["metadata"]}, {Key: "spec", Value: o.value["spec"]},
		}))
	}
	return b.Bytes()
}

func renderYAML(v any) []byte {
	text, err := yaml.MarshalWithOptions(v, yaml.IndentSequence(true))
	if err != nil {
		panic("manifest: a JSON value always renders as YAML: " + err.Error())
	}
	return text
}

func (o *Object) spec() map[string]any { return object(o.value["spec"]) }

func object(v any) map[string]any {
	m, _ := v.(map[string]any)
	return m
}

func list(v any) []any {
	l, _ := v.([]any)
	return l
}

func text(v any) string {
	s, _ := v.(string)
	return s
}

// whole reads an integer; ok is false for anything else.
func whole(v any) (int64, bool) {
	switch n := v.(type) {
	case int64:
		return n, true
	case int:
		return int64(n), true
	case float64:
		return int64(n), n == float64(int64(n))
	}
	return 0, false
}
