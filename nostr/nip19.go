package nostr

import (
	"encoding/binary"
	"errors"
	"fmt"
	"unicode/utf8"
)

// maxNIP19Length is the largest length of a text that NIP-19 asks to read.
const maxNIP19Length = 5000

// Entity is what a NIP-19 text stands for. Which fields are set follows from
// Prefix:
//
//	npub      PubKey
//	nsec      SecretKey
//	note      ID
//	nprofile  PubKey, Relays
//	nevent    ID, Relays, and PubKey and Kind if HasPubKey and HasKind
//	naddr     D, PubKey, Kind, Relays
type Entity struct {
	Prefix    string
	PubKey    PubKey
	HasPubKey bool
	SecretKey SecretKey
	ID        ID
	D         string
	Kind      Kind
	HasKind   bool
	Relays    []string
}

// The types in the lists of NIP-19.
const (
	tlvSpecial = 0
	tlvRelay   = 1
	tlvAuthor  = 2
	tlvKind    = 3
)

// EncodeNpub writes a public key as npub1… (NIP-19).
func EncodeNpub(k PubKey) string { return encodeBech32("npub", k[:]) }

// EncodeNsec writes a secret key as nsec1… (NIP-19).
func EncodeNsec(k SecretKey) string { return encodeBech32("nsec", k[:]) }

// EncodeNote writes an event id as note1… (NIP-19).
func EncodeNote(id ID) string { return encodeBech32("note", id[:]) }

// EncodeNprofile writes a public key and where to find it (NIP-19). A relay
// longer than 255 bytes is left out: the format cannot hold it.
func EncodeNprofile(k PubKey, relays ...string) string {
	b := appendTLV(nil, tlvSpecial, k[:])
	return encodeBech32("nprofile", appendRelays(b, relays))
}

// EncodeNevent writes an event's id, author and kind and where to find it
// (NIP-19).
func EncodeNevent(id ID, author PubKey, kind Kind, relays ...string) string {
	b := appendTLV(nil, tlvSpecial, id[:])
	b = appendRelays(b, relays)
	b = appendTLV(b, tlvAuthor, author[:])
	b = appendTLV(b, tlvKind, binary.BigEndian.AppendUint32(nil, uint32(kind)))
	return encodeBech32("nevent", b)
}

// EncodeNaddr writes an address and where to find it (NIP-19). It fails if D
// is longer than 255 bytes: the format cannot hold it.
func EncodeNaddr(a Address, relays ...string) (string, error) {
	if len(a.D) > 255 {
		return "", errors.New("naddr: the d tag is longer than 255 bytes")
	}
	b := appendTLV(nil, tlvSpecial, []byte(a.D))
	b = appendRelays(b, relays)
	b = appendTLV(b, tlvAuthor, a.PubKey[:])
	b = appendTLV(b, tlvKind, binary.BigEndian.AppendUint32(nil, uint32(a.Kind)))
	return encodeBech32("naddr", b), nil
}

func appendTLV(dst []byte, kind byte, value []byte) []byte {
	return append(append(dst, kind, byte(len(value))), value...)
}

func appendRelays(dst []byte, relays []string) []byte {
	for _, r := range relays {
		if len(r) <= 255 {
			dst = appendTLV(dst, tlvRelay, []byte(r))
		}
	}
	return dst
}

// DecodeNIP19 reads npub, nsec, note, nprofile, nevent and naddr texts. Items
// of unknown type inside are read over. Errors do not quote the input.
func DecodeNIP19(s string) (Entity, error) {
	if len(s) > maxNIP19Length {
		return Entity{}, fmt.Errorf("nip19: longer than %d characters", maxNIP19Length)
	}
	prefix, data, err := decodeBech32(s)
	if err != nil {
		return Entity{}, fmt.Errorf("nip19: %w", err)
	}
	e := Entity{Prefix: prefix}
	switch prefix {
	case "npub":
		e.HasPubKey = true
		err = fill(e.PubKey[:], data)
	case "nsec":
		err = fill(e.SecretKey[:], data)
	case "note":
		err = fill(e.ID[:], data)
	case "nprofile", "nevent", "naddr":
		err = e.readTLV(data)
	default:
		return Entity{}, errors.New("nip19: unknown prefix")
	}
	if err != nil {
		return Entity{}, fmt.Errorf("nip19: %s: %w", prefix, err)
	}
	return e, nil
}

func fill(dst, src []byte) error {
	if len(src) != len(dst) {
		return fmt.Errorf("%d bytes where %d belong", len(src), len(dst))
	}
	copy(dst, src)
	return nil
}

// readTLV reads the list of an nprofile, nevent or naddr. Of items that may be
// there once the first counts.
func (e *Entity) readTLV(data []byte) error {
	var seen [4]bool
	for len(data) > 0 {
		if len(data) < 2 || len(data) < 2+int(data[1]) {
			return errors.New("an item is cut off")
		}
		kind, value := data[0], data[2:2+int(data[1])]
		data = data[2+len(value):]
		if kind > tlvKind || seen[kind] && kind != tlvRelay {
			continue
		}
		seen[kind] = true
		if err := e.item(kind, value); err != nil {
			return err
		}
	}
	if !seen[tlvSpecial] || e.Prefix == "naddr" && !(seen[tlvAuthor] && seen[tlvKind]) {
		return errors.New("an item that must be there is missing")
	}
	return nil
}

func (e *Entity) item(kind byte, value []byte) error {
	switch {
	case kind == tlvSpecial && e.Prefix == "naddr":
		if !utf8.Valid(value) {
			return errors.New("the d tag is not UTF-8")
		}
		e.D = string(value)
	case kind == tlvSpecial && e.Prefix == "nevent":
		return fill(e.ID[:], value)
	case kind == tlvSpecial:
		e.HasPubKey = true
		return fill(e.PubKey[:], value)
	case kind == tlvRelay:
		if !utf8.Valid(value) {
			return errors.New("a relay is not UTF-8")
		}
		e.Relays = append(e.Relays, string(value))
	case e.Prefix == "nprofile":
		// Author and kind mean nothing here.
	case kind == tlvAuthor:
		e.HasPubKey = true
		return fill(e.PubKey[:], value)
	case kind == tlvKind:
		if len(value) != 4 || binary.BigEndian.Uint32(value) > maxKind {
			return errors.New("the kind is not a number up to 65535 in four bytes")
		}
		e.Kind, e.HasKind = Kind(binary.BigEndian.Uint32(value)), true
	}
	return nil
}
