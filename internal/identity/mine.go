package identity

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"hash"
	"strconv"

	"fleetmesh.org/fleetmesh/nostr"
)

// Mine tries n nonces from start on for an unsigned event (NIP-13) and returns the next one to try
// and whether the work is done. When it is, the event carries the nonce tag and its id, and may be signed;
// when it is not, the event is as it was. The caller decides how long to go on, and shows progress.
// The event's author must be set: it is part of what is hashed.
func Mine(e *nostr.Event, bits int, start, n uint64) (next uint64, done bool, err error) {
	if bits < 0 || bits > 256 {
		return start, false, fmt.Errorf("mine: %d bits", bits)
	}
	head, tail, err := aroundNonce(e, bits)
	if err != nil {
		return start, false, err
	}
	base := sha256.New()
	base.Write(head)
	cloner, ok := base.(hash.Cloner)
	if !ok {
		return start, false, fmt.Errorf("mine: SHA-256 cannot be cloned")
	}
	var digits [20]byte
	var sum nostr.ID
	for ; n > 0; n-- {
		h, err := cloner.Clone()
		if err != nil {
			return start, false, fmt.Errorf("mine: %w", err)
		}
		h.Write(strconv.AppendUint(digits[:0], start, 10))
		h.Write(tail)
		h.Sum(sum[:0])
		if nostr.PoWDifficulty(sum) >= bits {
			e.Tags = append(withoutNonce(e.Tags), nostr.Tag{"nonce", strconv.FormatUint(start, 10), strconv.Itoa(bits)})
			e.ID = e.ComputeID()
			if e.ID != sum {
				return start, false, fmt.Errorf("mine: the id found is not the event's")
			}
			return start + 1, true, nil
		}
		start++
	}
	return start, false, nil
}

// aroundNonce returns the canonical text before and after the nonce.
func aroundNonce(e *nostr.Event, bits int) (head, tail []byte, err error) {
	const mark = "0"
	probe := nostr.Event{PubKey: e.PubKey, CreatedAt: e.CreatedAt, Kind: e.Kind, Content: e.Content}
	probe.Tags = append(withoutNonce(e.Tags), nostr.Tag{"nonce", mark, strconv.Itoa(bits)})
	text := probe.AppendCanonical(nil)
	tag, err := json.Marshal(probe.Tags[len(probe.Tags)-1])
	if err != nil {
		return nil, nil, fmt.Errorf("mine: %w", err)
	}
	// Unescaped quotes cannot stand inside a string, and the tag is the last one:
	// the text from it to the content's end is known, so it is found from the back.
	i := len(text)
	for {
		i = bytes.LastIndex(text[:i], tag)
		if i < 0 {
			return nil, nil, fmt.Errorf("mine: no nonce tag in the canonical form")
		}
		if bytes.HasPrefix(text[i+len(tag):], []byte(`],"`)) {
			break
		}
	}
	i += len(`["nonce","`)
	return text[:i], text[i+len(mark):], nil
}

func withoutNonce(tags []nostr.Tag) []nostr.Tag {
	out := make([]nostr.Tag, 0, len(tags)+1)
	for _, t := range tags {
		if len(t) == 0 || t[0] != "nonce" {
			out = append(out, t)
		}
	}
	return out
}
