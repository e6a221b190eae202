package nostr

import "fmt"

// MarshalText writes the id as 64 lower-case hex digits, for JSON and the like.
func (id ID) MarshalText() ([]byte, error) { return []byte(id.String()), nil }

// UnmarshalText reads 64 lower-case hex digits.
func (id *ID) UnmarshalText(b []byte) (err error) {
	*id, err = ParseID(string(b))
	return err
}

// MarshalText writes the key as 64 lower-case hex digits.
func (k PubKey) MarshalText() ([]byte, error) { return []byte(k.String()), nil }

// UnmarshalText reads 64 lower-case hex digits.
func (k *PubKey) UnmarshalText(b []byte) error {
	if len(b) != 64 {
		return fmt.Errorf("%w: a public key has 64 hex digits", ErrSyntax)
	}
	var err error
	*k, err = ParsePubKey(string(b))
	return err
}

// MarshalJSON writes the filter as NIP-01 does.
func (f Filter) MarshalJSON() ([]byte, error) { return f.AppendJSON(nil), nil }

// UnmarshalJSON reads a NIP-01 filter by the rules of ParseFilter.
func (f *Filter) UnmarshalJSON(b []byte) (err error) {
	*f, err = ParseFilter(b)
	return err
}
