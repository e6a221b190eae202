package nostr

import (
	"crypto/sha256"
	"strconv"
	"unsafe"
)

// bytesOf is the bytes of a string. Nobody may change them.
func bytesOf(s string) []byte { return unsafe.Slice(unsafe.StringData(s), len(s)) }

// JSON returns the event as one compact JSON object on one line. For a parsed
// event it is the text as it came, if that was compact and in canonical form. Do
// not modify it.
func (e *Event) JSON() []byte {
	if e.raw != nil {
		return e.raw
	}
	return e.appendJSON(make([]byte, 0, 384+len(e.Content)+64*len(e.Tags)))
}

// MarshalJSON is JSON, for encoding/json.
func (e *Event) MarshalJSON() ([]byte, error) { return e.JSON(), nil }

// UnmarshalJSON is ParseEvent, for encoding/json.
func (e *Event) UnmarshalJSON(b []byte) error {
	parsed, err := ParseEvent(b)
	if err != nil {
		return err
	}
	*e = *parsed
	return nil
}

// appendJSON writes the object anew, in the order that NIP-01 shows.
func (e *Event) appendJSON(dst []byte) []byte {
	dst = e.appendUnsigned(dst)
	dst = append(dst, `,"sig":"`...)
	dst = appendHex(dst, e.Sig[:])
	return append(dst, `"}`...)
}

// RumorJSON returns the event as a JSON object without a sig (NIP-59).
func (e *Event) RumorJSON() []byte {
	return append(e.appendUnsigned(make([]byte, 0, 256+len(e.Content)+64*len(e.Tags))), '}')
}

func (e *Event) appendUnsigned(dst []byte) []byte {
	dst = append(dst, `{"id":"`...)
	dst = appendHex(dst, e.ID[:])
	dst = append(dst, `","pubkey":"`...)
	dst = appendHex(dst, e.PubKey[:])
	dst = append(dst, `","created_at":`...)
	dst = strconv.AppendInt(dst, e.CreatedAt, 10)
	dst = append(dst, `,"kind":`...)
	dst = strconv.AppendInt(dst, int64(e.Kind), 10)
	dst = append(dst, `,"tags":`...)
	dst = appendTags(dst, e.Tags, appendString)
	dst = append(dst, `,"content":`...)
	return appendString(dst, e.Content)
}

// AppendCanonical appends the serialisation whose SHA-256 is the event's id
// (NIP-01). All characters but the seven with a short escape stand verbatim, so
// control characters can make it text that is not JSON.
func (e *Event) AppendCanonical(dst []byte) []byte {
	dst = append(dst, `[0,"`...)
	dst = appendHex(dst, e.PubKey[:])
	dst = append(dst, '"', ',')
	dst = strconv.AppendInt(dst, e.CreatedAt, 10)
	dst = append(dst, ',')
	dst = strconv.AppendInt(dst, int64(e.Kind), 10)
	dst = append(dst, ',')
	dst = appendTags(dst, e.Tags, appendCanonicalString)
	dst = append(dst, ',')
	dst = appendCanonicalString(dst, e.Content)
	return append(dst, ']')
}

// ComputeID returns the SHA-256 of the canonical serialisation.
func (e *Event) ComputeID() ID {
	var space [1024]byte
	return sha256.Sum256(e.AppendCanonical(space[:0]))
}

func appendTags(dst []byte, tags []Tag, str func([]byte, string) []byte) []byte {
	dst = append(dst, '[')
	for i, t := range tags {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(dst, '[')
		for j, v := range t {
			if j > 0 {
				dst = append(dst, ',')
			}
			dst = str(dst, v)
		}
		dst = append(dst, ']')
	}
	return append(dst, ']')
}

// appendString writes a JSON string: the escapes of NIP-01, and \u00XX for
// the other control characters, which JSON allows in no other form. Bytes that
// are not UTF-8 pass as they are; nothing parsed by this package holds any.
func appendString(dst []byte, s string) []byte { return appendEscaped(dst, s, true) }

// appendCanonicalString writes a string as NIP-01 hashes it.
func appendCanonicalString(dst []byte, s string) []byte { return appendEscaped(dst, s, false) }

func appendEscaped(dst []byte, s string, json bool) []byte {
	dst = append(dst, '"')
	start := 0
	for i := 0; i < len(s); {
		i += plain(s[i:])
		if i == len(s) {
			break
		}
		c := s[i]
		i++
		if c >= 0x80 {
			for i < len(s) && s[i] >= 0x80 {
				i++
			}
			continue
		}
		short := shortEscape(c)
		if short == 0 && !json {
			continue
		}
		dst = append(dst, s[start:i-1]...)
		start = i
		if short != 0 {
			dst = append(dst, '\\', short)
		} else {
			dst = append(dst, '\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&15])
		}
	}
	dst = append(dst, s[start:]...)
	return append(dst, '"')
}

// shortEscape returns the letter of a character's two-byte escape, or 0.
func shortEscape(c byte) byte {
	switch c {
	case '"', '\\':
		return c
	case '\n':
		return 'n'
	case '\r':
		return 'r'
	case '\t':
		return 't'
	case '\b':
		return 'b'
	case '\f':
		return 'f'
	}
	return 0
}
