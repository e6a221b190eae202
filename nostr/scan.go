package nostr

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
	"unsafe"
)

// ErrSyntax is wrapped by every error that says a text is not the JSON it
// should be, or holds a value of the wrong form.
var ErrSyntax = errors.New("bad syntax")

// maxDepth bounds the nesting of values that are skipped, so that no text can
// exhaust the stack.
const maxDepth = 64

// syntaxError says where a text went wrong without quoting it at length.
func syntaxError(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrSyntax, fmt.Sprintf(format, args...))
}

// scanner reads JSON (RFC 8259) from one string. Strings without escapes come
// out as sub-strings of it.
type scanner struct {
	s string
	i int
	// spaced is set once white space was met between tokens.
	spaced bool
	// escaped is set once a string was met that is not in NIP-01's canonical
	// form: one with \/ or \u.
	escaped bool
	// scratch is room for a string with escapes while it is put together.
	scratch []byte
}

// text turns bytes nobody will change again into a string without a copy.
func text(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }

// space skips JSON white space.
func (p *scanner) space() {
	for p.i < len(p.s) {
		switch p.s[p.i] {
		case ' ', '\n', '\r', '\t':
			p.i++
			p.spaced = true
		default:
			return
		}
	}
}

// next skips white space and takes the byte c if it comes next.
func (p *scanner) next(c byte) bool {
	if p.i < len(p.s) && p.s[p.i] == c {
		p.i++
		return true
	}
	p.space()
	if p.i < len(p.s) && p.s[p.i] == c {
		p.i++
		return true
	}
	return false
}

// peek skips white space and returns the next byte, 0 at the end.
func (p *scanner) peek() byte {
	p.space()
	if p.i < len(p.s) {
		return p.s[p.i]
	}
	return 0
}

// want is next with an error that names what was expected.
func (p *scanner) want(c byte) error {
	if p.next(c) {
		return nil
	}
	return syntaxError("expected %q %s", c, p.where())
}

// where describes the place of the next token for an error.
func (p *scanner) where() string {
	if p.peek() == 0 && p.i >= len(p.s) {
		return "but the text ends"
	}
	return fmt.Sprintf("at byte %d", p.i)
}

// end checks that nothing but white space is left.
func (p *scanner) end() error {
	if p.peek(); p.i < len(p.s) {
		return syntaxError("unexpected data at byte %d, after the end", p.i)
	}
	return nil
}

const (
	swarLow  = 0x0101010101010101
	swarHigh = 0x8080808080808080
)

// plain returns how many bytes from the start of s need no attention inside a
// string: ASCII but control characters, quote and backslash. It looks at eight
// bytes at a time: in m the high bit of a byte is set if that byte is not plain
// (a borrow may set it in bytes above a hit too, so only the lowest counts).
func plain(s string) int {
	i := 0
	b := unsafe.Slice(unsafe.StringData(s), len(s))
	for ; i+8 <= len(b); i += 8 {
		w := binary.LittleEndian.Uint64(b[i:])
		q := w ^ swarLow*'"'
		k := w ^ swarLow*'\\'
		m := (w | (w - swarLow*0x20) | (q - swarLow) | (k - swarLow)) & swarHigh
		if m != 0 {
			return i + bits.TrailingZeros64(m)/8
		}
	}
	for ; i < len(s); i++ {
		if c := s[i]; c < 0x20 || c >= 0x80 || c == '"' || c == '\\' {
			break
		}
	}
	return i
}

// str takes a string token and returns its value: without escapes a sub-string
// of the text, else a string of its own.
func (p *scanner) str() (string, error) {
	if !p.next('"') {
		return "", syntaxError("expected a string %s", p.where())
	}
	start := p.i
	high := false
	for {
		p.i += plain(p.s[p.i:])
		if p.i >= len(p.s) {
			return "", syntaxError("a string is not closed")
		}
		switch c := p.s[p.i]; {
		case c == '"':
			s := p.s[start:p.i]
			p.i++
			if high && !utf8.ValidString(s) {
				return "", syntaxError("a string is not valid UTF-8")
			}
			return s, nil
		case c >= 0x80:
			high = true
			p.skipHigh()
		case c == '\\':
			return p.strEscaped(start)
		default:
			return "", syntaxError("a control character in a string at byte %d", p.i)
		}
	}
}

// skipHigh steps over bytes outside ASCII.
func (p *scanner) skipHigh() {
	for p.i < len(p.s) && p.s[p.i] >= 0x80 {
		p.i++
	}
}

// strEscaped is str from the first backslash on.
func (p *scanner) strEscaped(start int) (string, error) {
	out := append(p.scratch[:0], p.s[start:p.i]...)
	for {
		run := p.i
		for {
			p.i += plain(p.s[p.i:])
			if p.i >= len(p.s) {
				return "", syntaxError("a string is not closed")
			}
			if p.s[p.i] < 0x80 {
				break
			}
			p.skipHigh()
		}
		out = append(out, p.s[run:p.i]...)
		switch p.s[p.i] {
		case '"':
			p.i++
			p.scratch = out
			if !utf8.Valid(out) {
				return "", syntaxError("a string is not valid UTF-8")
			}
			return string(out), nil
		case '\\':
			var err error
			if out, err = p.escape(out); err != nil {
				return "", err
			}
		default:
			return "", syntaxError("a control character in a string at byte %d", p.i)
		}
	}
}

// escape takes one backslash escape and appends what it stands for.
func (p *scanner) escape(out []byte) ([]byte, error) {
	if p.i+1 >= len(p.s) {
		return nil, syntaxError("a string is not closed")
	}
	c := p.s[p.i+1]
	switch c {
	case '"', '\\':
	case 'n':
		c = '\n'
	case 'r':
		c = '\r'
	case 't':
		c = '\t'
	case 'b':
		c = '\b'
	case 'f':
		c = '\f'
	case '/':
		p.escaped = true
	case 'u':
		p.escaped = true
		return p.escapeU(out)
	default:
		return nil, syntaxError("an unknown escape at byte %d", p.i)
	}
	p.i += 2
	return append(out, c), nil
}

// escapeU takes a \u escape, or two that are a surrogate pair. A surrogate
// without its partner is refused: no UTF-8 text can stand for it.
func (p *scanner) escapeU(out []byte) ([]byte, error) {
	r, ok := hex4(p.s[p.i+2:])
	if !ok {
		return nil, syntaxError("a bad \\u escape at byte %d", p.i)
	}
	p.i += 6
	if utf16.IsSurrogate(r) {
		var low rune
		if strings.HasPrefix(p.s[p.i:], `\u`) {
			low, _ = hex4(p.s[p.i+2:])
		}
		if r = utf16.DecodeRune(r, low); r == utf8.RuneError {
			return nil, syntaxError("a \\u escape is half a surrogate pair")
		}
		p.i += 6
	}
	return utf8.AppendRune(out, r), nil
}

// hex4 reads four hex digits of either case.
func hex4(s string) (rune, bool) {
	if len(s) < 4 {
		return 0, false
	}
	var v rune
	for i := range 4 {
		c := s[i]
		if c >= 'A' && c <= 'F' {
			c += 'a' - 'A'
		}
		d := hexDigit[c]
		if d > 15 {
			return 0, false
		}
		v = v<<4 | rune(d)
	}
	return v, true
}

// number takes an integer token from 0 to limit: no sign, fraction, exponent
// or leading zero, so that each number has one text.
func (p *scanner) number(limit int64) (int64, error) {
	p.space()
	start := p.i
	var v int64
	for p.i < len(p.s) && p.s[p.i]-'0' < 10 {
		if p.i-start >= 18 {
			return 0, syntaxError("a number is above %d", limit)
		}
		v = v*10 + int64(p.s[p.i]-'0')
		p.i++
	}
	n := p.i - start
	if n == 0 || n > 1 && p.s[start] == '0' {
		return 0, syntaxError("expected a whole number, not below 0, %s", p.where())
	}
	if p.i < len(p.s) && (p.s[p.i] == '.' || p.s[p.i]|0x20 == 'e') {
		return 0, syntaxError("expected a whole number without fraction or exponent at byte %d", start)
	}
	if v > limit {
		return 0, syntaxError("a number is above %d", limit)
	}
	return v, nil
}

// literal takes true, false or null.
func (p *scanner) literal(word string) bool {
	p.space()
	if !strings.HasPrefix(p.s[p.i:], word) {
		return false
	}
	p.i += len(word)
	return true
}

// skip takes any one JSON value.
func (p *scanner) skip(depth int) error {
	if depth > maxDepth {
		return syntaxError("nested more than %d deep", maxDepth)
	}
	switch c := p.peek(); {
	case c == '"':
		_, err := p.str()
		return err
	case c == '{':
		return p.object(func(string) error { return p.skip(depth + 1) })
	case c == '[':
		return p.array(func() error { return p.skip(depth + 1) })
	case c == '-' || c-'0' < 10:
		return p.skipNumber()
	case p.literal("true") || p.literal("false") || p.literal("null"):
		return nil
	}
	return syntaxError("expected a value %s", p.where())
}

func (p *scanner) digits() bool {
	start := p.i
	for p.i < len(p.s) && p.s[p.i]-'0' < 10 {
		p.i++
	}
	return p.i > start
}

func (p *scanner) skipNumber() error {
	start := p.i
	ok := true
	if p.s[p.i] == '-' {
		p.i++
	}
	if p.i < len(p.s) && p.s[p.i] == '0' {
		p.i++
	} else {
		ok = p.digits()
	}
	if ok && p.i < len(p.s) && p.s[p.i] == '.' {
		p.i++
		ok = p.digits()
	}
	if ok && p.i < len(p.s) && p.s[p.i]|0x20 == 'e' {
		p.i++
		if p.i < len(p.s) && (p.s[p.i] == '+' || p.s[p.i] == '-') {
			p.i++
		}
		ok = p.digits()
	}
	if !ok {
		return syntaxError("a bad number at byte %d", start)
	}
	return nil
}

// object takes an object and calls member for each key, at its value.
func (p *scanner) object(member func(key string) error) error {
	if err := p.want('{'); err != nil {
		return err
	}
	if p.next('}') {
		return nil
	}
	for {
		key, err := p.str()
		if err != nil {
			return err
		}
		if err := p.want(':'); err != nil {
			return err
		}
		if err := member(key); err != nil {
			return err
		}
		if p.next(',') {
			continue
		}
		return p.want('}')
	}
}

// array takes an array and calls element at each element.
func (p *scanner) array(element func() error) error {
	if err := p.want('['); err != nil {
		return err
	}
	if p.next(']') {
		return nil
	}
	for {
		if err := element(); err != nil {
			return err
		}
		if p.next(',') {
			continue
		}
		return p.want(']')
	}
}
