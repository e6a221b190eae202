package manifest

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"sync"

	"fleetmesh.org/fleetmesh/spec"
)

// schemas keeps what Schema made.
var schemas sync.Map

// Schema is the JSON Schema of a manifest kind with every reference written out, so that it stands alone. The caller must not change it.
func Schema(kind string) (map[string]any, error) {
	if s, ok := schemas.Load(kind); ok {
		return s.(map[string]any), nil
	}
	if !slices.Contains(spec.ManifestKinds(), kind) {
		return nil, fmt.Errorf("no manifest of kind %q; there are %s", kind, strings.Join(spec.ManifestKinds(), ", "))
	}
	doc, err := readSchema("schema/manifest/" + kind + ".json")
	if err != nil {
		return nil, err
	}
	shared, err := readSchema("schema/common.json")
	if err != nil {
		return nil, err
	}
	s := object(inline(doc, object(shared["$defs"])))
	schemas.Store(kind, s)
	return s, nil
}

func readSchema(name string) (map[string]any, error) {
	text, err := fs.ReadFile(spec.Schemas(), name)
	if err != nil {
		return nil, fmt.Errorf("read the schema: %w", err)
	}
	var doc map[string]any
	if err := json.Unmarshal(text, &doc); err != nil {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	return doc, nil
}

// inline puts definitions in the place of references. The schemas have no cycles.
func inline(v any, defs map[string]any) any {
	switch v := v.(type) {
	case map[string]any:
		if ref, ok := v["$ref"].(string); ok {
			_, name, _ := strings.Cut(ref, "#/$defs/")
			return inline(defs[name], defs)
		}
		out := make(map[string]any, len(v))
		for k, x := range v {
			out[k] = inline(x, defs)
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i, x := range v {
			out[i] = inline(x, defs)
		}
		return out
	}
	return v
}
