package bridge

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// value is one value of a configuration in the taocpp::config format, with the line where it stands. That format is JSON
// with less punctuation: the outermost braces, commas and quotes of keys may be left out, "=" stands for ":", a key before a brace needs
// neither, comments are "#", "//" and "/* */", and strings may stand in '…', or in """…""" and ”'…”' over several lines. Of its programming part
// (includes, references, shell and environment) nothing is read.
type value struct {
	line int
	data any // nil, bool, json.Number, string, []*value or *object
}

// object keeps the order of its members.
type object struct {
	members []member
}

type member struct {
	key   string
	value *value
}

func (o *object) get(key string) *value {
	for _, m := range o.members {
		if m.key == key {
			return m.value
		}
	}
	return nil
}

// plain is the value as encoding/json would give it.
func (v *value) plain() any {
	switch d := v.data.(type) {
	case []*value:
		out := make([]any, len(d))
		for i, e := range d {
			out[i] = e.plain()
		}
		return out
	case *object:
		out := make(map[string]any, len(d.members))
		for _, m := range d.members {
			out[m.key] = m.value.plain()
		}
		return out
	}
	return v.data
}

func (v *value) what() string {
	switch v.data.(type) {
	case nil:
		return "null"
	case bool:
		return "true or false"
	case json.Number:
		return "a number"
	case string:
		return "a string"
	case []*value:
		return "a list"
	}
	return "a section"
}

// LineError is a mistake in a configuration, and where it is.
type LineError struct {
	Line int
	Text string
}

func (e *LineError) Error() string { return fmt.Sprintf("line %d: %s", e.Line, e.Text) }

func at(line int, format string, args ...any) error {
	return &LineError{line, fmt.Sprintf(format, args...)}
}

// maxDepth bounds how deep values nest.
const maxDepth = 64

type taoParser struct {
	text string
	pos  int
	line int
}

// parseTao reads a whole file.
func parseTao(text string) (*object, error) {
	p := &taoParser{text: strings.TrimPrefix(text, "\ufeff"), line: 1}
	if !utf8.ValidString(p.text) {
		return nil, at(1, "the file is not UTF-8")
	}
	if err := p.space(); err != nil {
		return nil, err
	}
	closing := byte(0)
	if p.peek() == '{' {
		p.pos++
		closing = '}'
	}
	o, err := p.members(closing, 0)
	if err != nil {
		return nil, err
	}
	if err := p.space(); err != nil {
		return nil, err
	}
	if p.pos < len(p.text) {
		return nil, at(p.line, "%q stands after the end", p.rest())
	}
	return o, nil
}

func (p *taoParser) peek() byte {
	if p.pos < len(p.text) {
		return p.text[p.pos]
	}
	return 0
}

// rest is a little of what comes next, for messages.
func (p *taoParser) rest() string {
	s, _, _ := strings.Cut(p.text[p.pos:], "\n")
	return fmt.Sprintf("%.20s", s)
}

// space skips white space and comments.
func (p *taoParser) space() error {
	for p.pos < len(p.text) {
		rest := p.text[p.pos:]
		switch {
		case rest[0] == '\n':
			p.line++
			p.pos++
		case rest[0] == ' ' || rest[0] == '\t' || rest[0] == '\r':
			p.pos++
		case rest[0] == '#' || strings.HasPrefix(rest, "//"):
			end := strings.IndexByte(rest, '\n')
			if end < 0 {
				end = len(rest)
			}
			p.pos += end
		case strings.HasPrefix(rest, "/*"):
			end := strings.Index(rest, "*/")
			if end < 0 {
				return at(p.line, "a comment has no end")
			}
			p.line += strings.Count(rest[:end], "\n")
			p.pos += end + 2
		default:
			return nil
		}
	}
	return nil
}

// members reads up to the closing brace, or to the end of the file where closing is 0.
func (p *taoParser) members(closing byte, depth int) (*object, error) {
	o := new(object)
	for {
		if err := p.space(); err != nil {
			return nil, err
		}
		c := p.peek()
		switch {
		case p.pos == len(p.text) && closing == 0:
			return o, nil
		case p.pos == len(p.text):
			return nil, at(p.line, "a section has no end: %q is missing", closing)
		case c == closing:
			p.pos++
			return o, nil
		case c == ',' && len(o.members) > 0:
			p.pos++
			continue
		}
		line := p.line
		key, err := p.key()
		if err != nil {
			return nil, err
		}
		if o.get(key) != nil {
			return nil, at(line, "%q stands twice; the first is in line %d", key, o.get(key).line)
		}
		v, err := p.assigned(key, depth)
		if err != nil {
			return nil, err
		}
		v.line = line
		o.members = append(o.members, member{key, v})
	}
}

func (p *taoParser) key() (string, error) {
	if c := p.peek(); c == '"' || c == '\'' {
		return p.str()
	}
	start := p.pos
	for p.pos < len(p.text) && isKeyChar(p.text[p.pos]) {
		p.pos++
	}
	if p.pos == start {
		return "", at(p.line, "want a key, found %q", p.rest())
	}
	return p.text[start:p.pos], nil
}

func isKeyChar(c byte) bool {
	return c == '_' || c == '-' || c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= 0x80
}

// assigned reads what stands after a key.
func (p *taoParser) assigned(key string, depth int) (*value, error) {
	if err := p.space(); err != nil {
		return nil, err
	}
	switch p.peek() {
	case '=', ':':
		p.pos++
	case '{':
	case '.', '*', '+':
		return nil, at(p.line, "%q: paths and additions of the config format are not read here; write the section out", key)
	default:
		return nil, at(p.line, "after %q want =, : or {, found %q", key, p.rest())
	}
	if err := p.space(); err != nil {
		return nil, err
	}
	return p.value(depth + 1)
}

func (p *taoParser) value(depth int) (*value, error) {
	v := &value{line: p.line}
	if depth > maxDepth {
		return nil, at(p.line, "values nest deeper than %d", maxDepth)
	}
	var err error
	switch c := p.peek(); {
	case c == '{':
		p.pos++
		v.data, err = p.members('}', depth)
	case c == '[':
		p.pos++
		v.data, err = p.list(depth)
	case c == '"' || c == '\'':
		v.data, err = p.str()
	case c == '-' || c == '+' || c >= '0' && c <= '9':
		v.data, err = p.number()
	default:
		v.data, err = p.word()
	}
	return v, err
}

func (p *taoParser) list(depth int) ([]*value, error) {
	out := []*value{}
	for {
		if err := p.space(); err != nil {
			return nil, err
		}
		switch {
		case p.pos == len(p.text):
			return nil, at(p.line, `a list has no end: "]" is missing`)
		case p.peek() == ']':
			p.pos++
			return out, nil
		case p.peek() == ',' && len(out) > 0:
			p.pos++
			continue
		}
		v, err := p.value(depth + 1)
		if err != nil {
			return nil, err
		}
		out = append(out, v)
	}
}

func (p *taoParser) word() (any, error) {
	start := p.pos
	for p.pos < len(p.text) && isKeyChar(p.text[p.pos]) {
		p.pos++
	}
	switch w := p.text[start:p.pos]; w {
	case "true":
		return true, nil
	case "false":
		return false, nil
	case "null":
		return nil, nil
	}
	p.pos = start
	return nil, at(p.line, "want a value, found %q: strings stand in quotes", p.rest())
}

func (p *taoParser) number() (json.Number, error) {
	start := p.pos
	for p.pos < len(p.text) && strings.IndexByte("+-.0123456789eExXabcdefABCDEF", p.text[p.pos]) >= 0 {
		p.pos++
	}
	text := strings.TrimPrefix(p.text[start:p.pos], "+")
	if n, err := strconv.ParseInt(text, 0, 64); err == nil && (len(text) < 2 || text[0] != '0' || text[1] == 'x' || text[1] == 'X') {
		return json.Number(strconv.FormatInt(n, 10)), nil
	}
	if _, err := strconv.ParseFloat(text, 64); err != nil || !json.Valid([]byte(text)) {
		return "", at(p.line, "%q is not a number", text)
	}
	return json.Number(text), nil
}

// str reads a string in any of its four quotes.
func (p *taoParser) str() (string, error) {
	line := p.line
	quote := p.text[p.pos : p.pos+1]
	if long := strings.Repeat(quote, 3); strings.HasPrefix(p.text[p.pos:], long) {
		p.pos += 3
		end := strings.Index(p.text[p.pos:], long)
		if end < 0 {
			return "", at(line, "a string has no end")
		}
		s := p.text[p.pos : p.pos+end]
		p.pos += end + 3
		p.line += strings.Count(s, "\n")
		return strings.TrimPrefix(strings.TrimPrefix(s, "\r"), "\n"), nil // raw; a line feed at once after the quotes does not count
	}
	p.pos++
	var b strings.Builder
	for p.pos < len(p.text) {
		switch c := p.text[p.pos]; {
		case c == quote[0]:
			p.pos++
			return b.String(), nil
		case c == '\n':
			return "", at(line, "a string has no end in its line")
		case c == '\\':
			if err := p.escape(&b); err != nil {
				return "", err
			}
		default:
			b.WriteByte(c)
			p.pos++
		}
	}
	return "", at(line, "a string has no end")
}

var escapes = map[byte]string{'"': `"`, '\'': `'`, '\\': `\`, '/': "/", 'b': "\b", 'f': "\f", 'n': "\n", 'r': "\r", 't': "\t", 'v': "\v", '0': "\x00"}

func (p *taoParser) escape(b *strings.Builder) error {
	p.pos++
	c := p.peek()
	if s, ok := escapes[c]; ok {
		b.WriteString(s)
		p.pos++
		return nil
	}
	if c == 'u' && p.pos+5 <= len(p.text) {
		// encoding/json knows about surrogates.
		end := p.pos + 5
		if strings.HasPrefix(p.text[end:], `\u`) && end+6 <= len(p.text) && (p.text[p.pos+1] == 'd' || p.text[p.pos+1] == 'D') {
			end += 6
		}
		var s string
		if json.Unmarshal([]byte(`"\`+p.text[p.pos:end]+`"`), &s) == nil {
			b.WriteString(s)
			p.pos = end
			return nil
		}
	}
	return at(p.line, `"\%.1s" is no escape`, p.rest())
}
