package spec

import (
	"bytes"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"

	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"
	"golang.org/x/text/language"
	"golang.org/x/text/message"

	"fleetmesh.org/fleetmesh/nostr"
)

// schemaBase is the address every schema's $id begins with. It is never fetched.
const schemaBase = "https://fleetmesh.org/"

//go:embed schema
var schemaFS embed.FS

// Schemas returns the JSON Schema (2020-12) files: schema/kind for events,
// schema/object for what travels inside them, schema/message for DIDComm
// bodies (one definition a message) and schema/manifest for operators' files.
func Schemas() fs.FS { return schemaFS }

// ErrUnknownSchema is wrapped where there is no schema for the kind, type or
// name asked for.
var ErrUnknownSchema = errors.New("no schema")

// SchemaError says where a JSON value breaks its schema. It never repeats the
// value, which may be private.
type SchemaError struct {
	Subject string // what was checked: "kind 11801", a message type, "object grant", "manifest Peering"
	Path    string // JSON pointer to the place, "" for the whole
	Reason  string
}

// Error says the subject, the path and the reason.
func (e *SchemaError) Error() string {
	p := e.Path
	if p == "" {
		p = "the top"
	}
	return fmt.Sprintf("%s: at %s: %s", e.Subject, p, e.Reason)
}

// ValidateEvent checks the JSON text of an event of one of the protocol's kinds
// against the kind's schema: its tags, their forms and its content, but neither
// id nor signature. The error is a *SchemaError, or wraps ErrUnknownSchema for a
// kind that is not the protocol's own. § Registration. It costs about a
// millisecond of a processor on a large descriptor: for borders, tools and tests,
// not for every event of a sync. Bound the size first.
func ValidateEvent(k nostr.Kind, event []byte) error {
	row, ok := LookupKind(k)
	if !ok {
		return fmt.Errorf("kind %d: %w", k, ErrUnknownSchema)
	}
	subject := fmt.Sprintf("kind %d", k)
	v, err := readJSON(subject, event)
	if err != nil {
		return err
	}
	if err = validate(subject, row.Schema.File, v); err == nil {
		return nil
	}
	if e := row.explain(v); e != nil {
		e.Subject = subject
		return e
	}
	return err
}

// ValidateContent checks the decrypted or decoded content of an event of kind k,
// where kinds.json gives it a schema: a grant, a report's content, a compute
// receipt.
func ValidateContent(k nostr.Kind, content []byte) error {
	row, ok := LookupKind(k)
	if !ok || row.ContentSchema == nil {
		return fmt.Errorf("content of kind %d: %w", k, ErrUnknownSchema)
	}
	subject := fmt.Sprintf("content of kind %d", k)
	v, err := readJSON(subject, content)
	if err != nil {
		return err
	}
	return validate(subject, row.ContentSchema.File, v)
}

// ValidateMessage checks the JSON text of the body of a fleetmesh message.
// Attachments are checked by ValidateObject with the name their schema has.
func ValidateMessage(t MessageType, body []byte) error {
	p, m, ok := LookupMessage(t)
	if !ok {
		return fmt.Errorf("message %s: %w", t, ErrUnknownSchema)
	}
	v, err := readJSON(string(t), body)
	if err != nil {
		return err
	}
	return validate(string(t), p.Schema.File+"#/$defs/"+m.Name, v)
}

// Objects are the names ValidateObject knows.
func Objects() []string { return schemaNames("schema/object") }

// ValidateObject checks the JSON text of one of the objects that travel inside
// events and messages: receipt, grant, delivery-envelope, report-content, grant-opening,
// compute-job, compute-receipt.
func ValidateObject(name string, text []byte) error {
	if !slices.Contains(Objects(), name) {
		return fmt.Errorf("object %s: %w", name, ErrUnknownSchema)
	}
	v, err := readJSON("object "+name, text)
	if err != nil {
		return err
	}
	return validate("object "+name, "schema/object/"+name+".json", v)
}

// ManifestKinds are the manifest kinds of ManifestAPIVersion (§ Operator surface).
func ManifestKinds() []string { return schemaNames("schema/manifest") }

// ValidateManifest checks the JSON text of one manifest document against the
// schema of its kind. Unknown keys are refused. A caller that reads YAML turns
// it into JSON first and maps the error's Path back to its line.
func ValidateManifest(text []byte) error {
	v, err := readJSON("manifest", text)
	if err != nil {
		return err
	}
	doc, _ := v.(map[string]any)
	name, _ := doc["kind"].(string)
	if !slices.Contains(ManifestKinds(), name) {
		return &SchemaError{Subject: "manifest", Path: "/kind", Reason: "want one of " + strings.Join(ManifestKinds(), ", ")}
	}
	return validate("manifest "+name, "schema/manifest/"+name+".json", v)
}

func schemaNames(dir string) []string {
	entries, err := schemaFS.ReadDir(dir)
	if err != nil {
		panic(fmt.Sprintf("spec: %s: %v", dir, err)) // embedded
	}
	var names []string
	for _, e := range entries {
		names = append(names, strings.TrimSuffix(e.Name(), ".json"))
	}
	return names
}

// readJSON decodes exactly one JSON value, refusing duplicate names and invalid
// UTF-8, which two readers would understand differently.
func readJSON(subject string, text []byte) (any, error) {
	d := jsontext.NewDecoder(bytes.NewReader(text))
	if err := d.SkipValue(); err != nil {
		return nil, &SchemaError{Subject: subject, Path: string(d.StackPointer()), Reason: "it is not valid JSON with distinct names"}
	}
	v, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		return nil, &SchemaError{Subject: subject, Reason: "it is not one JSON value"}
	}
	return v, nil
}

// compiled keeps each schema once it has been used.
var compiled struct {
	sync.Mutex
	compiler *jsonschema.Compiler
	by       map[string]*jsonschema.Schema
}

// schemaFor compiles the schema at a location such as
// "schema/kind/11801.json" or "schema/message/sync-1.0.json#/$defs/open".
func schemaFor(loc string) (*jsonschema.Schema, error) {
	compiled.Lock()
	defer compiled.Unlock()
	if s, ok := compiled.by[loc]; ok {
		return s, nil
	}
	if compiled.compiler == nil {
		c, err := newCompiler()
		if err != nil {
			return nil, err
		}
		compiled.compiler, compiled.by = c, map[string]*jsonschema.Schema{}
	}
	s, err := compiled.compiler.Compile(schemaBase + loc)
	if err != nil {
		return nil, fmt.Errorf("compile %s: %w", loc, err)
	}
	compiled.by[loc] = s
	return s, nil
}

func newCompiler() (*jsonschema.Compiler, error) {
	c := jsonschema.NewCompiler()
	c.DefaultDraft(jsonschema.Draft2020)
	c.AssertContent() // content that is JSON text is checked too
	c.UseLoader(jsonschema.SchemeURLLoader{})
	c.UseRegexpEngine(patterns)
	err := fs.WalkDir(schemaFS, "schema", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := schemaFS.ReadFile(name)
		if err != nil {
			return err
		}
		doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		return c.AddResource(schemaBase+name, doc)
	})
	return c, err
}

func validate(subject, loc string, v any) error {
	s, err := schemaFor(loc)
	if err != nil {
		return fmt.Errorf("%s: %w", subject, err)
	}
	err = s.Validate(v)
	var ve *jsonschema.ValidationError
	if !errors.As(err, &ve) {
		return err
	}
	leaf, at := deepest(ve, nil)
	return &SchemaError{Subject: subject, Path: pointer(at), Reason: reason(leaf)}
}

// deepest finds the cause that lies deepest inside the value, and where: the
// most precise thing there is to say. The causes of some kinds only say why each
// candidate was none; there the kind itself is the thing to say. within is the
// place of the error that e is a cause of.
func deepest(e *jsonschema.ValidationError, within []string) (best *jsonschema.ValidationError, at []string) {
	switch e.ErrorKind.(type) {
	case *kind.Contains, *kind.MinContains, *kind.MaxContains:
		return e, e.InstanceLocation
	case *kind.ContentSchema:
		// The library lends this one error a path that it goes on writing to. Our
		// schemas reach every contentSchema by a $ref, whose error has the same place.
		return e, within
	}
	best, at = e, e.InstanceLocation
	for _, c := range e.Causes {
		d, where := deepest(c, e.InstanceLocation)
		if best == e || len(where) > len(at) {
			best, at = d, where
		}
	}
	return best, at
}

func pointer(at []string) string {
	if len(at) == 0 {
		return ""
	}
	escape := strings.NewReplacer("~", "~0", "/", "~1")
	var b strings.Builder
	for _, s := range at {
		b.WriteByte('/')
		b.WriteString(escape.Replace(s))
	}
	return b.String()
}

var english = message.NewPrinter(language.English)

func reason(e *jsonschema.ValidationError) string {
	switch k := e.ErrorKind.(type) {
	case *kind.Pattern: // the library's text repeats the value
		return "the text does not have the form " + k.Want
	case *kind.ContentMediaType, *kind.ContentSchema:
		return "the text is not the JSON that is wanted here"
	case *kind.Contains, *kind.MinContains:
		return "a tag is missing that begins with " + wantedTag(e.SchemaURL)
	case *kind.MaxContains:
		return "it occurs too often: a tag that begins with " + wantedTag(e.SchemaURL)
	case *kind.Not:
		return "it holds something that the class of the node rules out"
	}
	return e.ErrorKind.LocalizedString(english)
}

// wantedTag reads from the schema at url which first values its contains asks for.
func wantedTag(url string) string {
	file, at, _ := strings.Cut(strings.TrimPrefix(url, schemaBase), "#")
	text, err := schemaFS.ReadFile(file)
	if err != nil {
		return "other values"
	}
	v, err := unmarshalAny(text)
	if err != nil {
		return "other values"
	}
	for name := range strings.SplitSeq(strings.TrimPrefix(at, "/"), "/") {
		switch t := v.(type) {
		case map[string]any:
			v = t[name]
		case []any:
			i, err := strconv.Atoi(name)
			if err != nil || i < 0 || i >= len(t) {
				return "other values"
			}
			v = t[i]
		}
	}
	m, _ := v.(map[string]any)
	contains, _ := m["contains"].(map[string]any)
	items, _ := contains["prefixItems"].([]any)
	var words []string
	for _, x := range items {
		item, _ := x.(map[string]any)
		if c, ok := item["const"].(string); ok {
			words = append(words, c)
		} else if p, ok := item["pattern"].(string); ok {
			words = append(words, p)
		}
	}
	return strings.Join(words, " ")
}

// explain says in the words of kinds.json what is wrong with an event's tags,
// nil where that is not where the fault lies.
func (row *KindSpec) explain(v any) *SchemaError {
	event, _ := v.(map[string]any)
	tags, _ := event["tags"].([]any)
	count := map[string]int{}
	for i, t := range tags {
		tag, _ := t.([]any)
		if len(tag) == 0 {
			return nil
		}
		name, _ := tag[0].(string)
		count[name]++
		if spec, ok := row.tag(name); ok && len(tag)-1 < spec.needs() {
			return &SchemaError{Path: fmt.Sprintf("/tags/%d", i), Reason: fmt.Sprintf("tag %s has too few values, %d of %d", name, len(tag)-1, spec.needs())}
		}
	}
	for _, t := range row.Required {
		if count[t.Name] == 0 && event["tags"] != nil {
			return &SchemaError{Path: "/tags", Reason: "tag " + t.Name + " is missing"}
		}
	}
	for _, t := range slices.Concat(row.Required, row.Optional) {
		if count[t.Name] > 1 && !t.Repeat {
			return &SchemaError{Path: "/tags", Reason: "tag " + t.Name + " occurs more than once"}
		}
	}
	return nil
}

func (row *KindSpec) tag(name string) (TagSpec, bool) {
	for _, t := range slices.Concat(row.Required, row.Optional) {
		if t.Name == name {
			return t, true
		}
	}
	return TagSpec{}, false
}

// needs is the number of values a tag must have after its name.
func (t TagSpec) needs() int {
	if t.MinValues > 0 {
		return t.MinValues
	}
	return len(t.Values)
}

// unmarshalAny decodes JSON whose numbers keep their text.
func unmarshalAny(text []byte) (any, error) {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	var v any
	err := d.Decode(&v)
	return v, err
}
