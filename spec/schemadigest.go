package spec

import (
	"crypto/sha256"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"
)

// SchemaDigest returns the digest a SchemaRef carries: SHA-256 over the
// canonical form of what the file says and of every definition elsewhere that
// it leads to, each without its annotations. Wording never moves it; a definition
// that the file does not use never moves it.
func SchemaDigest(file string) ([32]byte, error) { return schemaDigest(schemaFS, file) }

func schemaDigest(files fs.FS, file string) ([32]byte, error) {
	w := closure{files: files, docs: map[string]any{}, parts: map[string]any{}}
	if err := w.visit(file, ""); err != nil {
		return [32]byte{}, fmt.Errorf("digest of %s: %w", file, err)
	}
	b, err := Canonical(w.parts)
	if err != nil {
		return [32]byte{}, fmt.Errorf("digest of %s: %w", file, err)
	}
	return sha256.Sum256(b), nil
}

// closure collects a schema and all it refers to.
type closure struct {
	files fs.FS
	docs  map[string]any // parsed files
	parts map[string]any // what was reached, stripped, by file and pointer
}

func (w *closure) visit(file, pointer string) error {
	key := file + "#" + pointer
	if _, done := w.parts[key]; done {
		return nil
	}
	if _, whole := w.parts[file+"#"]; whole {
		return nil
	}
	doc, err := w.load(file)
	if err != nil {
		return err
	}
	part := doc
	for name := range strings.SplitSeq(strings.TrimPrefix(pointer, "/"), "/") {
		if pointer == "" {
			break
		}
		m, _ := part.(map[string]any)
		next, ok := m[name]
		if !ok {
			return fmt.Errorf("no %s in %s", pointer, file)
		}
		part = next
	}
	part = strip(part)
	w.parts[key] = part
	return w.follow(file, part)
}

func (w *closure) load(file string) (any, error) {
	if doc, ok := w.docs[file]; ok {
		return doc, nil
	}
	text, err := fs.ReadFile(w.files, file)
	if err != nil {
		return nil, err
	}
	doc, err := unmarshalAny(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	w.docs[file] = doc
	return doc, nil
}

// follow visits every $ref below v, in the order of names.
func (w *closure) follow(file string, v any) error {
	switch t := v.(type) {
	case map[string]any:
		for _, k := range slices.Sorted(maps.Keys(t)) {
			target, isText := t[k].(string)
			if k != "$ref" || !isText {
				if err := w.follow(file, t[k]); err != nil {
					return err
				}
				continue
			}
			name, pointer, _ := strings.Cut(target, "#")
			to := file
			if name != "" {
				to = path.Join(path.Dir(file), name)
			}
			if err := w.visit(to, pointer); err != nil {
				return err
			}
		}
	case []any:
		for _, x := range t {
			if err := w.follow(file, x); err != nil {
				return err
			}
		}
	}
	return nil
}

// annotations are the keywords that say nothing about validity.
var annotations = []string{"$schema", "$id", "$comment", "title", "description", "examples", "default", "deprecated"}

// naming are the keywords whose members are names and not keywords.
var naming = []string{"properties", "patternProperties", "$defs", "dependentSchemas"}

// strip copies a schema without annotations.
func strip(v any) any {
	switch t := v.(type) {
	case map[string]any:
		out := map[string]any{}
		for k, x := range t {
			switch {
			case slices.Contains(annotations, k):
			case k == "const" || k == "enum":
				out[k] = x
			case slices.Contains(naming, k):
				named := map[string]any{}
				members, _ := x.(map[string]any)
				for name, s := range members {
					named[name] = strip(s)
				}
				out[k] = named
			default:
				out[k] = strip(x)
			}
		}
		return out
	case []any:
		out := make([]any, len(t))
		for i, x := range t {
			out[i] = strip(x)
		}
		return out
	}
	return v
}
