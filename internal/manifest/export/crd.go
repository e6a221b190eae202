package export

import (
	"bytes"
	"fmt"
	"strings"

	"github.com/goccy/go-yaml"

	"fleetmesh.org/fleetmesh/internal/manifest"
	"fleetmesh.org/fleetmesh/spec"
)

// definitions are the CustomResourceDefinitions of all manifest kinds, their schemas derived from the published ones.
func definitions() ([]byte, error) {
	var b bytes.Buffer
	for i, kind := range spec.ManifestKinds() {
		schema, err := manifest.Schema(kind)
		if err != nil {
			return nil, err
		}
		if i > 0 {
			b.WriteString("---\n")
		}
		text, err := yaml.MarshalWithOptions(definition(kind, schema), yaml.IndentSequence(true))
		if err != nil {
			return nil, fmt.Errorf("write the definition of %s: %w", kind, err)
		}
		b.Write(text)
	}
	return b.Bytes(), nil
}

func definition(kind string, schema map[string]any) any {
	group, version, _ := strings.Cut(spec.ManifestAPIVersion, "/")
	plural := strings.ToLower(kind) + "s"
	if strings.HasSuffix(kind, "Policy") {
		plural = strings.ToLower(strings.TrimSuffix(kind, "y")) + "ies"
	}
	properties := schema["properties"].(map[string]any)
	structural := map[string]any{
		"type":        "object",
		"description": schema["title"],
		"required":    []any{"spec"},
		"properties": map[string]any{
			"apiVersion": map[string]any{"type": "string"},
			"kind":       map[string]any{"type": "string"},
			"metadata":   map[string]any{"type": "object"},
			"spec":       structural(properties["spec"].(map[string]any)),
		},
	}
	return yaml.MapSlice{
		{Key: "apiVersion", Value: "apiextensions.k8s.io/v1"},
		{Key: "kind", Value: "CustomResourceDefinition"},
		{Key: "metadata", Value: yaml.MapSlice{{Key: "name", Value: plural + "." + group}}},
		{Key: "spec", Value: yaml.MapSlice{
			{Key: "group", Value: group},
			{Key: "names", Value: yaml.MapSlice{{Key: "kind", Value: kind}, {Key: "listKind", Value: kind + "List"}, {Key: "plural", Value: plural}, {Key: "singular", Value: strings.ToLower(kind)}}},
			{Key: "scope", Value: "Namespaced"},
			{Key: "versions", Value: []any{yaml.MapSlice{
				{Key: "name", Value: version}, {Key: "served", Value: true}, {Key: "storage", Value: true},
				{Key: "schema", Value: yaml.MapSlice{{Key: "openAPIV3Schema", Value: structural}}},
			}}},
		}},
	}
}

// structural turns JSON Schema 2020-12 into the part of it that a CustomResourceDefinition may hold. The API server drops unknown keys
// instead of refusing them, knows neither const nor patternProperties, and wants a type everywhere.
func structural(s map[string]any) map[string]any {
	out := map[string]any{}
	for _, k := range []string{"type", "description", "enum", "pattern", "minLength", "maxLength", "minimum", "maximum", "minItems", "maxItems", "required", "oneOf"} {
		if v, ok := s[k]; ok {
			out[k] = v
		}
	}
	if c, ok := s["const"]; ok {
		out["enum"] = []any{c}
	}
	if _, typed := out["type"]; !typed && out["enum"] != nil {
		out["type"] = "string"
	}
	switch out["type"] {
	case "integer":
		out["format"] = "int64"
	case "array":
		if items, ok := s["items"].(map[string]any); ok {
			out["items"] = structural(items)
			if s["uniqueItems"] == true && out["items"].(map[string]any)["type"] == "string" {
				out["x-kubernetes-list-type"] = "set"
			}
		}
	case "object":
		structuralObject(out, s)
	}
	return out
}

func structuralObject(out, s map[string]any) {
	if props, ok := s["properties"].(map[string]any); ok {
		list := map[string]any{}
		for k, v := range props {
			if p, ok := v.(map[string]any); ok {
				list[k] = structural(p)
			}
		}
		out["properties"] = list
	}
	if more, ok := s["additionalProperties"].(map[string]any); ok {
		out["additionalProperties"] = structural(more)
	}
	_, open := s["patternProperties"]
	if open || (out["properties"] == nil && out["additionalProperties"] == nil) {
		out["x-kubernetes-preserve-unknown-fields"] = true
	}
}
