package control

import (
	"context"
	"encoding"
	"encoding/json"
	"reflect"
	"strings"
)

// Shape is what a method takes, tells on its way, and answers, as Go types. A nil type is nothing.
type Shape struct{ Params, Step, Result reflect.Type }

type shapeKey struct{}

// Shaped gives a handler its types, so that Describe can tell them. struct{} stands for nothing.
func Shaped[P, S, R any](h Handler) Handler {
	return func(ctx context.Context, raw json.RawMessage, notify func(any)) (any, error) {
		if into, ok := ctx.Value(shapeKey{}).(*Shape); ok {
			*into = Shape{reflect.TypeFor[P](), reflect.TypeFor[S](), reflect.TypeFor[R]()}
			return nil, nil
		}
		return h(ctx, raw, notify)
	}
}

// Describe tells the types of a handler that Shaped made. Another one must not be asked: it would run.
func Describe(h Handler) Shape {
	var s Shape
	_, _ = h(context.WithValue(context.Background(), shapeKey{}, &s), nil, func(any) {})
	return s
}

var (
	marshaler     = reflect.TypeFor[json.Marshaler]()
	textMarshaler = reflect.TypeFor[encoding.TextMarshaler]()
	rawMessage    = reflect.TypeFor[json.RawMessage]()
)

// SchemaOf is the JSON Schema of what a type is written as. strict refuses names that the type does not have: parameters are read so.
func SchemaOf(t reflect.Type, strict bool) map[string]any {
	if t == nil {
		return map[string]any{"type": "null"}
	}
	if t == rawMessage || t.Kind() == reflect.Interface {
		return map[string]any{} // any JSON
	}
	if t.Kind() == reflect.Pointer {
		return SchemaOf(t.Elem(), strict)
	}
	if t.Implements(textMarshaler) || reflect.PointerTo(t).Implements(textMarshaler) {
		return map[string]any{"type": "string"}
	}
	if t.Implements(marshaler) || reflect.PointerTo(t).Implements(marshaler) {
		return map[string]any{"description": t.String() + ", in its own form"}
	}
	switch t.Kind() {
	case reflect.Bool:
		return map[string]any{"type": "boolean"}
	case reflect.String:
		return map[string]any{"type": "string"}
	case reflect.Float32, reflect.Float64:
		return map[string]any{"type": "number"}
	case reflect.Slice, reflect.Array:
		if t.Elem().Kind() == reflect.Uint8 && t.Kind() == reflect.Slice {
			return map[string]any{"type": "string", "contentEncoding": "base64"}
		}
		return map[string]any{"type": "array", "items": SchemaOf(t.Elem(), strict)}
	case reflect.Map:
		return map[string]any{"type": "object", "additionalProperties": SchemaOf(t.Elem(), strict)}
	case reflect.Struct:
		return structSchema(t, strict)
	}
	return map[string]any{"type": "integer"}
}

func structSchema(t reflect.Type, strict bool) map[string]any {
	properties := map[string]any{}
	var walk func(reflect.Type)
	walk = func(t reflect.Type) {
		for i := range t.NumField() {
			f := t.Field(i)
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			switch {
			case name == "-" || !f.IsExported() && !f.Anonymous:
			case f.Anonymous && name == "":
				inner := f.Type
				if inner.Kind() == reflect.Pointer {
					inner = inner.Elem()
				}
				if inner.Kind() == reflect.Struct {
					walk(inner)
				}
			default:
				if name == "" {
					name = f.Name
				}
				properties[name] = SchemaOf(f.Type, strict)
			}
		}
	}
	walk(t)
	s := map[string]any{"type": "object", "properties": properties}
	if strict {
		s["additionalProperties"] = false
	}
	return s
}
