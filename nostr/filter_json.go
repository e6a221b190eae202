package nostr

import (
	"fmt"
	"math"
	"slices"
	"strconv"
)

// ParseFilter reads a filter from its JSON object. It is strict: ids, authors,
// #e and #p hold 64 lower-case hex digits (NIP-01), kinds are from 0 to 65535, times and limit are whole
// numbers not below 0. A member that is neither in NIP-01 nor NIP-50, or is there twice, is an error that
// names it. Errors wrap ErrSyntax.
func ParseFilter(b []byte) (Filter, error) {
	p := scanner{s: string(b)}
	f, err := p.filter()
	if err == nil {
		err = p.end()
	}
	if err != nil {
		return Filter{}, err
	}
	return f, nil
}

// filter takes one filter object.
func (p *scanner) filter() (Filter, error) {
	var f Filter
	seen := make([]string, 0, 8)
	err := p.object(func(key string) error {
		if slices.Contains(seen, key) {
			return syntaxError("the filter has two members %.20q", key)
		}
		seen = append(seen, key)
		if err := p.filterMember(&f, key); err != nil {
			return fmt.Errorf("filter: %.20q: %w", key, err)
		}
		return nil
	})
	return f, err
}

func (p *scanner) filterMember(f *Filter, key string) (err error) {
	switch key {
	case "ids":
		f.IDs, err = list(p, hex32[ID])
	case "authors":
		f.Authors, err = list(p, hex32[PubKey])
	case "kinds":
		f.Kinds, err = list(p, (*scanner).kind)
	case "since":
		f.Since, err = p.time()
	case "until":
		f.Until, err = p.time()
	case "limit":
		var n int64
		n, err = p.number(MaxCreatedAt)
		limit := int(min(n, math.MaxInt32))
		f.Limit = &limit
	case "search":
		f.Search, err = p.str()
	default:
		return p.filterTag(f, key)
	}
	return err
}

var errUnknownMember = syntaxError("not a member that filters have")

// filterTag takes the value of a "#x" member.
func (p *scanner) filterTag(f *Filter, key string) error {
	if len(key) != 2 || key[0] != '#' || !isLetter(key[1]) {
		return errUnknownMember
	}
	element := (*scanner).str
	if key[1] == 'e' || key[1] == 'p' {
		element = (*scanner).hex32String
	}
	values, err := list(p, element)
	f.Tags = append(f.Tags, TagFilter{Letter: key[1], Values: values})
	return err
}

func isLetter(c byte) bool { return c|0x20 >= 'a' && c|0x20 <= 'z' }

// list takes an array. The slice it returns is never nil.
func list[T any](p *scanner, element func(*scanner) (T, error)) ([]T, error) {
	out := make([]T, 0, 4)
	err := p.array(func() error {
		v, err := element(p)
		out = append(out, v)
		return err
	})
	return out, err
}

// hex32 takes a string of 64 lower-case hex digits.
func hex32[T ~[32]byte](p *scanner) (T, error) {
	var v [32]byte
	s, err := p.str()
	if err == nil && !decodeHex(v[:], s) {
		err = syntaxError("a value is not 64 lower-case hex digits")
	}
	return T(v), err
}

// hex32String is hex32 for values that stay text.
func (p *scanner) hex32String() (string, error) {
	s, err := p.str()
	if err != nil {
		return "", err
	}
	var v [32]byte
	if !decodeHex(v[:], s) {
		return "", syntaxError("a value is not 64 lower-case hex digits")
	}
	return s, nil
}

func (p *scanner) kind() (Kind, error) {
	n, err := p.number(maxKind)
	return Kind(n), err
}

func (p *scanner) time() (*int64, error) {
	n, err := p.number(MaxCreatedAt)
	return &n, err
}

// AppendJSON appends the filter as a JSON object that ParseFilter reads back.
func (f *Filter) AppendJSON(dst []byte) []byte {
	dst = append(dst, '{')
	open := len(dst)
	name := func(s string) {
		if len(dst) > open {
			dst = append(dst, ',')
		}
		dst = append(dst, '"')
		dst = append(dst, s...)
		dst = append(dst, '"', ':')
	}
	if f.IDs != nil {
		name("ids")
		dst = appendList(dst, f.IDs, func(dst []byte, id ID) []byte { return appendHexString(dst, id[:]) })
	}
	if f.Authors != nil {
		name("authors")
		dst = appendList(dst, f.Authors, func(dst []byte, k PubKey) []byte { return appendHexString(dst, k[:]) })
	}
	if f.Kinds != nil {
		name("kinds")
		dst = appendList(dst, f.Kinds, func(dst []byte, k Kind) []byte { return strconv.AppendUint(dst, uint64(k), 10) })
	}
	for _, t := range f.Tags {
		name("#" + string(rune(t.Letter)))
		dst = appendList(dst, t.Values, appendString)
	}
	if f.Since != nil {
		name("since")
		dst = strconv.AppendInt(dst, *f.Since, 10)
	}
	if f.Until != nil {
		name("until")
		dst = strconv.AppendInt(dst, *f.Until, 10)
	}
	if f.Limit != nil {
		name("limit")
		dst = strconv.AppendInt(dst, int64(*f.Limit), 10)
	}
	if f.Search != "" {
		name("search")
		dst = appendString(dst, f.Search)
	}
	return append(dst, '}')
}

func appendHexString(dst, src []byte) []byte {
	dst = append(dst, '"')
	dst = appendHex(dst, src)
	return append(dst, '"')
}

func appendList[T any](dst []byte, list []T, element func([]byte, T) []byte) []byte {
	dst = append(dst, '[')
	for i, v := range list {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = element(dst, v)
	}
	return append(dst, ']')
}
