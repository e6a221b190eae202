package nostr

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// ErrID is wrapped by the error for an event whose id is not the hash of its
// canonical form.
var ErrID = errors.New("id is not the hash of the event")

// MaxCreatedAt is the largest created_at that is read: the largest whole number
// that every JSON reader keeps exactly.
const MaxCreatedAt = 1<<53 - 1

const maxKind = 65535

// The members of an event that NIP-01 names, as bits of a set.
const (
	seenID = 1 << iota
	seenPubKey
	seenCreatedAt
	seenKind
	seenTags
	seenContent
	seenSig

	seenAll   = seenSig<<1 - 1
	seenRumor = seenAll &^ (seenID | seenSig)
)

var memberNames = [...]string{"id", "pubkey", "created_at", "kind", "tags", "content", "sig"}

// eventParser reads one event. Besides the scanner's state it keeps the spans
// of text that go into the hash unchanged if they are in canonical form.
type eventParser struct {
	scanner
	seen    uint
	unknown bool     // a member was met that NIP-01 does not name
	id      string   // hex, without quotes
	pubkey  string   // likewise
	tags    string   // with brackets
	content string   // with quotes
	values  []string // of all tags
	ends    []int    // for each tag the length of values after it
}

// eventParsers keeps parsers for their room for tags and strings, which are
// copied out.
var eventParsers = sync.Pool{New: func() any { return new(eventParser) }}

// maxKept is the largest number of tag values for which a parser keeps room; of
// bytes it keeps as many as those values take.
const maxKept = 4096

// demand says what an event must be like.
type demand struct {
	needed    uint // members that must be there
	forbidden uint // members that must not
	trusted   bool // the id is not computed
}

// parseEvent reads text, which it takes over, as one event, and returns also its
// id as text, "" if there is none.
func parseEvent(text string, d demand) (*Event, string, error) {
	p := eventParsers.Get().(*eventParser)
	p.s = text
	e, err := p.event(d)
	id := p.id
	if cap(p.values) <= maxKept && cap(p.ends) <= maxKept && cap(p.scratch) <= 16*maxKept {
		clear(p.values) // the strings hold on to the text
		*p = eventParser{scanner: scanner{scratch: p.scratch}, values: p.values[:0], ends: p.ends[:0]}
		eventParsers.Put(p)
	}
	return e, id, err
}

// ParseEvent reads one event from its JSON object, which may stand in white
// space. It checks that the id is the SHA-256 of the canonical form (NIP-01),
// but not the signature: see Verifier. It keeps a copy of the text, not b.
//
// Each member must be there once and hold what NIP-01 says: lower-case hex,
// whole numbers without sign, fraction or exponent, a kind up to 65535, a created_at
// up to MaxCreatedAt, tags of one or more strings. Members with other names are
// read over and are not kept. Text that is not compact, or escapes more than the
// canonical form does, is kept in compact form instead (see Event.JSON).
//
// Errors wrap ErrSyntax or ErrID and can be shown to whoever sent the event.
func ParseEvent(b []byte) (*Event, error) {
	e, _, err := parseEvent(string(b), demand{needed: seenAll})
	return e, err
}

// ParseKept reads what Event.JSON returned earlier and a checksum has guarded
// since, in two thirds of the time of ParseEvent: the id is believed, and b is kept and not
// copied, so that nobody may change it any more.
func ParseKept(b []byte) (*Event, error) {
	e, _, err := parseEvent(text(b), demand{needed: seenAll, trusted: true})
	return e, err
}

// ParseRumor reads an event without a signature (NIP-59): the id may be
// missing, the sig must be.
func ParseRumor(b []byte) (*Event, error) {
	e, _, err := parseEvent(string(b), demand{needed: seenRumor, forbidden: seenSig})
	if err != nil {
		return nil, err
	}
	e.raw = nil // it lacks the sig
	return e, nil
}

// event takes the whole text as one event.
func (p *eventParser) event(d demand) (*Event, error) {
	e := new(Event)
	p.space()
	p.spaced = false
	start := p.i
	if err := p.members(e); err != nil {
		return nil, err
	}
	stop, spaced := p.i, p.spaced
	if err := p.end(); err != nil {
		return nil, err
	}
	p.spaced = spaced // white space after the event does no harm
	if missing := d.needed &^ p.seen; missing != 0 {
		return nil, syntaxError("the event has no %s", firstMember(missing))
	}
	if both := p.seen & d.forbidden; both != 0 {
		return nil, syntaxError("the event must have no %s", firstMember(both))
	}
	p.makeTags(e)
	if !d.trusted {
		id := p.hash(e)
		if p.seen&seenID != 0 && id != e.ID {
			return nil, fmt.Errorf("%w, which is %s", ErrID, id)
		}
		e.ID = id
	}
	if p.spaced || p.unknown || p.escaped {
		e.raw = slices.Clip(e.appendJSON(make([]byte, 0, stop-start)))
	} else {
		e.raw = bytesOf(p.s[start:stop])
	}
	return e, nil
}

func firstMember(set uint) string {
	for i, name := range memberNames {
		if set&(1<<i) != 0 {
			return name
		}
	}
	return ""
}

// members takes the event's object. It is scanner.object, written out because
// the closure would cost more than the parsing of most members.
func (p *eventParser) members(e *Event) error {
	if err := p.want('{'); err != nil {
		return err
	}
	if p.next('}') {
		return nil
	}
	for {
		bit, err := p.key()
		if err != nil {
			return err
		}
		if err := p.want(':'); err != nil {
			return err
		}
		if p.seen&bit != 0 {
			return syntaxError("the event has two members %s", firstMember(bit))
		}
		p.seen |= bit
		if err := p.member(e, bit); err != nil {
			return err
		}
		if p.next(',') {
			continue
		}
		return p.want('}')
	}
}

// key takes the name of a member and returns its bit, 0 if NIP-01 does not know
// the name. The known names are looked for directly: one that is there needs no
// further check.
func (p *eventParser) key() (uint, error) {
	if p.peek() == '"' {
		rest := p.s[p.i+1 : min(p.i+12, len(p.s))]
		if n := strings.IndexByte(rest, '"'); n > 0 {
			if bit := memberBit(rest[:n]); bit != 0 {
				p.i += n + 2
				return bit, nil
			}
		}
	}
	name, err := p.str()
	return memberBit(name), err
}

func memberBit(name string) uint {
	switch name {
	case "id":
		return seenID
	case "pubkey":
		return seenPubKey
	case "created_at":
		return seenCreatedAt
	case "kind":
		return seenKind
	case "tags":
		return seenTags
	case "content":
		return seenContent
	case "sig":
		return seenSig
	}
	return 0
}

// member takes the value of one member.
func (p *eventParser) member(e *Event, bit uint) (err error) {
	switch bit {
	case seenID:
		p.id, err = p.hex(e.ID[:], "id")
	case seenPubKey:
		p.pubkey, err = p.hex(e.PubKey[:], "pubkey")
	case seenSig:
		_, err = p.hex(e.Sig[:], "sig")
	case seenCreatedAt:
		e.CreatedAt, err = p.integer(MaxCreatedAt, "created_at")
	case seenKind:
		var k int64
		k, err = p.integer(maxKind, "kind")
		e.Kind = Kind(k)
	case seenContent:
		err = p.contentValue(e)
	case seenTags:
		err = p.tagsValue()
	default:
		p.unknown = true
		err = p.skip(1)
	}
	return err
}

// hex takes a string of exactly 2*len(dst) lower-case hex digits. Digits written
// as escapes are right too, however odd.
func (p *eventParser) hex(dst []byte, key string) (string, error) {
	if n := 2 * len(dst); p.peek() == '"' && p.i+n+1 < len(p.s) && p.s[p.i+n+1] == '"' {
		if s := p.s[p.i+1 : p.i+n+1]; decodeHex(dst, s) {
			p.i += n + 2
			return s, nil
		}
	}
	s, err := p.str()
	if err != nil {
		return "", fmt.Errorf("%s: %w", key, err)
	}
	if !decodeHex(dst, s) {
		return "", syntaxError("%s is not %d lower-case hex digits", key, 2*len(dst))
	}
	return s, nil
}

func (p *eventParser) integer(limit int64, key string) (int64, error) {
	n, err := p.number(limit)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", key, err)
	}
	return n, nil
}

func (p *eventParser) contentValue(e *Event) (err error) {
	p.space()
	start := p.i
	if e.Content, err = p.str(); err != nil {
		return fmt.Errorf("content: %w", err)
	}
	p.content = p.s[start:p.i]
	return nil
}

// tagsValue collects the strings of all tags flat, so that makeTags can
// allocate once for all.
func (p *eventParser) tagsValue() error {
	p.space()
	start := p.i
	if err := p.want('['); err != nil {
		return fmt.Errorf("tags: %w", err)
	}
	for more := !p.next(']'); more; {
		if err := p.tag(); err != nil {
			return fmt.Errorf("tag %d: %w", len(p.ends), err)
		}
		p.ends = append(p.ends, len(p.values))
		if more = p.next(','); !more {
			if err := p.want(']'); err != nil {
				return fmt.Errorf("tags: %w", err)
			}
		}
	}
	p.tags = p.s[start:p.i]
	return nil
}

func (p *eventParser) tag() error {
	if err := p.want('['); err != nil {
		return err
	}
	if p.next(']') {
		return syntaxError("a tag needs a name")
	}
	for {
		v, err := p.str()
		if err != nil {
			return err
		}
		p.values = append(p.values, v)
		if p.next(',') {
			continue
		}
		return p.want(']')
	}
}

func (p *eventParser) makeTags(e *Event) {
	if len(p.ends) == 0 {
		e.Tags = []Tag{}
		return
	}
	values := make([]string, len(p.values))
	copy(values, p.values)
	e.Tags = make([]Tag, len(p.ends))
	start := 0
	for i, end := range p.ends {
		e.Tags[i] = values[start:end:end]
		start = end
	}
}

// hash computes the id: over the spans as they stand where they are in
// canonical form, else over the event serialised anew.
func (p *eventParser) hash(e *Event) ID {
	var space [1024]byte
	if p.spaced || p.escaped {
		return sha256.Sum256(e.AppendCanonical(space[:0]))
	}
	b := append(space[:0], `[0,"`...)
	b = append(b, p.pubkey...)
	b = append(b, '"', ',')
	b = strconv.AppendInt(b, e.CreatedAt, 10)
	b = append(b, ',')
	b = strconv.AppendInt(b, int64(e.Kind), 10)
	b = append(b, ',')
	b = append(b, p.tags...)
	b = append(b, ',')
	b = append(b, p.content...)
	b = append(b, ']')
	return sha256.Sum256(b)
}

// PeekID returns the text of the id member of what may be a broken event, so
// that a refusal can name it: best effort, "" if there is none of sane length.
func PeekID(b []byte) string {
	s := string(b)
	for {
		n := strings.Index(s, `"id"`)
		if n < 0 {
			return ""
		}
		p := scanner{s: s, i: n + len(`"id"`)}
		if p.next(':') && p.peek() == '"' {
			if id, err := p.str(); err == nil && id != "" && len(id) <= 128 {
				return id
			}
		}
		s = s[n+1:]
	}
}
