package spec

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"sync"

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
	c := canonicals.Get().(*canonical)
	defer canonicals.Put(c)
	c.reset(text)
	out, err := c.value(dst, 0)
	if err != nil {
		return dst, fmt.Errorf("%w: at %s: %w", ErrNotCanonical, place(&c.dec), err)
	}
	if _, err := c.dec.ReadToken(); err != io.EOF {
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

// canonical is the scratch memory of one run. What is read is checked by the
// decoder, but for duplicate names, which sorting brings to light.
type canonical struct {
	dec     jsontext.Decoder
	text    bytes.Reader
	members []member // of the objects being written, outermost first
	names   []byte   // their names, without escapes
	moved   []byte
}

// member says where one member of an object was written, and where its name is.
type member struct{ start, end, name, nameEnd int }

var canonicals = sync.Pool{New: func() any { return new(canonical) }}

func (c *canonical) reset(text []byte) {
	c.text.Reset(text)
	c.dec.Reset(&c.text, jsontext.AllowDuplicateNames(true))
	c.members, c.names = c.members[:0], c.names[:0]
}

func (c *canonical) value(dst []byte, depth int) ([]byte, error) {
	if depth > maxCanonicalDepth {
		return dst, fmt.Errorf("nested deeper than %d", maxCanonicalDepth)
	}
	kind := c.dec.PeekKind()
	if kind == '{' || kind == '[' {
		if _, err := c.dec.ReadToken(); err != nil {
			return dst, plainEOF(err)
		}
		if kind == '{' {
			return c.object(dst, depth)
		}
		return c.array(dst, depth)
	}
	raw, err := c.dec.ReadValue()
	switch {
	case err != nil:
		return dst, plainEOF(err)
	case kind == '"':
		return appendString(dst, raw)
	case kind == '0':
		return appendInteger(dst, string(raw))
	}
	return append(dst, raw...), nil // null, true, false
}

// appendString writes a JSON string with the shortest escapes. One without any is
// in that form already: what needs an escape cannot stand without.
func appendString(dst []byte, raw jsontext.Value) ([]byte, error) {
	if bytes.IndexByte(raw, '\\') < 0 {
		return append(dst, raw...), nil
	}
	s, err := jsontext.AppendUnquote(nil, raw)
	if err != nil {
		return dst, err
	}
	return jsontext.AppendQuote(dst, s)
}

func (c *canonical) object(dst []byte, depth int) ([]byte, error) {
	first, names := len(c.members), len(c.names)
	dst = append(dst, '{')
	start, sorted := len(dst), true
	for c.dec.PeekKind() != '}' {
		raw, err := c.dec.ReadValue()
		if err != nil {
			return dst, plainEOF(err)
		}
		m := member{start: len(dst), name: len(c.names)}
		if c.names, err = jsontext.AppendUnquote(c.names, raw); err != nil {
			return dst, err
		}
		m.nameEnd = len(c.names)
		if dst, err = appendString(dst, raw); err != nil {
			return dst, err
		}
		if dst, err = c.value(append(dst, ':'), depth+1); err != nil {
			return dst, err
		}
		m.end = len(dst)
		dst = append(dst, ',')
		if n := len(c.members); n > first && c.compare(c.members[n-1], m) >= 0 {
			sorted = false
		}
		c.members = append(c.members, m)
	}
	if _, err := c.dec.ReadToken(); err != nil {
		return dst, plainEOF(err)
	}
	members := c.members[first:]
	c.members = c.members[:first]
	if !sorted {
		c.moved = append(c.moved[:0], dst[start:]...)
		slices.SortFunc(members, c.compare)
		dst = dst[:start]
		for i, m := range members {
			if i > 0 && c.compare(members[i-1], m) == 0 {
				return dst, errors.New("a name occurs twice in this object")
			}
			dst = append(append(dst, c.moved[m.start-start:m.end-start]...), ',')
		}
	}
	c.names = c.names[:names]
	if len(members) > 0 {
		dst = dst[:len(dst)-1]
	}
	return append(dst, '}'), nil
}

// compare orders members by name: the order of UTF-8 octets is that of code points.
func (c *canonical) compare(a, b member) int {
	return bytes.Compare(c.names[a.name:a.nameEnd], c.names[b.name:b.nameEnd])
}

func (c *canonical) array(dst []byte, depth int) ([]byte, error) {
	dst = append(dst, '[')
	for first := true; c.dec.PeekKind() != ']'; first = false {
		if !first {
			dst = append(dst, ',')
		}
		var err error
		if dst, err = c.value(dst, depth+1); err != nil {
			return dst, err
		}
	}
	if _, err := c.dec.ReadToken(); err != nil {
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
