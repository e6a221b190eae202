package spec

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	jsonv1 "github.com/go-json-experiment/json/v1"
)

// ErrNotCanonical is wrapped by every error of Canonical: the value has no
// canonical form, so nothing may be hashed or signed over it.
var ErrNotCanonical = errors.New("no canonical form")

// maxCanonicalDepth bounds nesting, so that a hostile artefact cannot exhaust a
// reader's stack. It equals canonical.max_depth of constants.json, which cannot
// be read here because reading it needs this very function.
const maxCanonicalDepth = 64

// maxExactInteger is the largest magnitude that every JSON reader holds exactly.
const maxExactInteger = 1<<53 - 1

// Canonical returns the one canonical form of a JSON value (§ The receipt;
// constants.json, canonical): UTF-8, no white space, object names sorted by code
// point, strings with the shortest escapes, integers only.
//
// A []byte, jsontext.Value or encoding/json RawMessage is JSON text and is
// normalised; any other value is marshalled first by the rules of
// encoding/json. Refused, with an error that wraps ErrNotCanonical and names
// the place: text that is not exactly one JSON value, invalid UTF-8 or lone
// surrogates, a duplicate name, a fraction or exponent, minus zero, an integer
// beyond ±(2^53-1), and nesting deeper than 64.
func Canonical(v any) ([]byte, error) {
	return AppendCanonical(nil, v)
}

// AppendCanonical is Canonical, appended to dst. On an error dst is returned as
// it was given.
func AppendCanonical(dst []byte, v any) ([]byte, error) {
	text, err := jsonText(v)
	if err != nil {
		return dst, fmt.Errorf("%w: %w", ErrNotCanonical, err)
	}
	dec := jsontext.NewDecoder(bytes.NewReader(text))
	out, err := appendValue(dst, dec, 0)
	if err != nil {
		return dst, fmt.Errorf("%w: at %s: %w", ErrNotCanonical, place(dec), err)
	}
	if _, err := dec.ReadToken(); err != io.EOF {
		return dst, fmt.Errorf("%w: more text after the JSON value", ErrNotCanonical)
	}
	return out, nil
}

// jsonText returns v as JSON text.
func jsonText(v any) ([]byte, error) {
	switch t := v.(type) {
	case []byte:
		return t, nil
	case jsontext.Value: // also encoding/json/v2's RawMessage
		return t, nil
	case interface{ MarshalJSON() ([]byte, error) }:
		return t.MarshalJSON()
	}
	// encoding/json would silently replace invalid UTF-8 and so sign another
	// text than the caller's; here it is an error.
	return json.Marshal(v, jsonv1.DefaultOptionsV1(),
		jsontext.AllowInvalidUTF8(false), jsontext.AllowDuplicateNames(false))
}

func place(dec *jsontext.Decoder) string {
	if p := dec.StackPointer(); p != "" {
		return string(p)
	}
	return "the top"
}

// member is one object member in canonical form.
type member struct{ name, text []byte }

func appendValue(dst []byte, dec *jsontext.Decoder, depth int) ([]byte, error) {
	if depth > maxCanonicalDepth {
		return dst, fmt.Errorf("nested deeper than %d", maxCanonicalDepth)
	}
	tok, err := dec.ReadToken()
	if err != nil {
		return dst, plainEOF(err)
	}
	switch tok.Kind() {
	case '{':
		return appendObject(dst, dec, depth)
	case '[':
		return appendArray(dst, dec, depth)
	case '"':
		return jsontext.AppendQuote(dst, tok.String())
	case '0':
		return appendInteger(dst, tok.String())
	default: // null, true, false
		return append(dst, tok.String()...), nil
	}
}

func appendObject(dst []byte, dec *jsontext.Decoder, depth int) ([]byte, error) {
	var members []member
	for dec.PeekKind() != '}' {
		tok, err := dec.ReadToken()
		if err != nil {
			return dst, plainEOF(err)
		}
		name := tok.String()
		text, err := jsontext.AppendQuote(nil, name)
		if err != nil {
			return dst, err
		}
		text, err = appendValue(append(text, ':'), dec, depth+1)
		if err != nil {
			return dst, err
		}
		members = append(members, member{[]byte(name), text})
	}
	if _, err := dec.ReadToken(); err != nil {
		return dst, plainEOF(err)
	}
	// The order of UTF-8 octets is the order of code points.
	slices.SortFunc(members, func(a, b member) int { return bytes.Compare(a.name, b.name) })
	dst = append(dst, '{')
	for i, m := range members {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(dst, m.text...)
	}
	return append(dst, '}'), nil
}

func appendArray(dst []byte, dec *jsontext.Decoder, depth int) ([]byte, error) {
	dst = append(dst, '[')
	for first := true; dec.PeekKind() != ']'; first = false {
		if !first {
			dst = append(dst, ',')
		}
		var err error
		if dst, err = appendValue(dst, dec, depth+1); err != nil {
			return dst, err
		}
	}
	if _, err := dec.ReadToken(); err != nil {
		return dst, plainEOF(err)
	}
	return append(dst, ']'), nil
}

func appendInteger(dst []byte, s string) ([]byte, error) {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		return dst, fmt.Errorf("number %.40q is not an integer within ±(2^53-1)", s)
	}
	if n > maxExactInteger || n < -maxExactInteger {
		return dst, fmt.Errorf("integer %s is beyond ±(2^53-1)", s)
	}
	if n == 0 && s != "0" {
		return dst, fmt.Errorf("number %q: zero has no sign", s)
	}
	return strconv.AppendInt(dst, n, 10), nil
}

// plainEOF turns the end of the text inside a value into an error that says so.
func plainEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}
