package nostr

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// Address names the slot of which only the latest event is kept: kind, author
// and, for addressable kinds, the d tag (NIP-01). D is "" for replaceable kinds.
type Address struct {
	Kind   Kind
	PubKey PubKey
	D      string
}

// String returns the form that a tags use: "kind:pubkey:d", with the second
// colon also where D is empty.
func (a Address) String() string {
	return strconv.Itoa(int(a.Kind)) + ":" + a.PubKey.String() + ":" + a.D
}

// ParseAddress reads the value of an a tag. It splits on the first two colons
// only, so D may contain colons. The second colon may be missing. The kind
// must be replaceable or addressable, and D empty for a replaceable one.
func ParseAddress(s string) (Address, error) {
	kind, rest, ok := strings.Cut(s, ":")
	if !ok {
		return Address{}, errors.New("address: want kind:pubkey:d")
	}
	key, d, _ := strings.Cut(rest, ":")
	if !isDecimal(kind) || len(kind) > 1 && kind[0] == '0' {
		return Address{}, fmt.Errorf("address: kind %.20q is not a number", kind)
	}
	n, err := strconv.ParseUint(kind, 10, 16)
	if err != nil {
		return Address{}, fmt.Errorf("address: kind %.20q is above 65535", kind)
	}
	a := Address{Kind: Kind(n), D: d}
	if !decodeHex(a.PubKey[:], key) {
		return Address{}, errors.New("address: pubkey is not 64 lower-case hex digits")
	}
	switch {
	case a.Kind.IsAddressable():
	case !a.Kind.IsReplaceable():
		return Address{}, fmt.Errorf("address: kind %d is neither replaceable nor addressable", n)
	case d != "":
		return Address{}, fmt.Errorf("address: kind %d is replaceable and takes no d", n)
	}
	return a, nil
}

// Address returns the slot an event competes for. The second result is false
// for kinds that are neither replaceable nor addressable.
func (e *Event) Address() (Address, bool) {
	switch {
	case e.Kind.IsReplaceable():
		return Address{Kind: e.Kind, PubKey: e.PubKey}, true
	case e.Kind.IsAddressable():
		return Address{Kind: e.Kind, PubKey: e.PubKey, D: e.D()}, true
	}
	return Address{}, false
}

// Supersedes tells whether a wins over b where only one of both may be kept:
// the later created_at, and at equal times the lower id (NIP-01). It is the one
// comparator for every way in which events come. It does not check that both
// have the same address, and no event supersedes itself.
func Supersedes(a, b *Event) bool {
	if a.CreatedAt != b.CreatedAt {
		return a.CreatedAt > b.CreatedAt
	}
	return bytes.Compare(a.ID[:], b.ID[:]) < 0
}
