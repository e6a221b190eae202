package ledger

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/go-json-experiment/json"

	"fleetmesh.org/fleetmesh/internal/identity"
	"fleetmesh.org/fleetmesh/nostr"
	"fleetmesh.org/fleetmesh/spec"
)

// Receipt is what a subject says it used in a window so far. Receipts of a window form a hash
// chain, so an earlier claim cannot be rewritten once the issuer's view is known.
type Receipt struct {
	Grant        nostr.ID
	Window       int64 // epoch
	Seq          int64
	Prev         [32]byte // link of the receipt before, zero at seq 0
	Counters     Counters
	ForwardedFor []nostr.PubKey // origins whose traffic the subject passed on
	At           int64
	Sig          nostr.Sig // by the subject over Link
}

// receiptJSON is the wire form; sig is left out of the body.
type receiptJSON struct {
	Grant        string   `json:"grant"`
	Window       int64    `json:"window"`
	Seq          int64    `json:"seq"`
	Prev         string   `json:"prev"`
	Counters     Counters `json:"counters"`
	ForwardedFor []string `json:"forwarded_for"`
	At           int64    `json:"at"`
	Sig          string   `json:"sig,omitempty"`
}

// Body is the canonical form of the receipt without its signature.
func (r *Receipt) Body() []byte { return r.canonical(false) }

// canonical writes the canonical form by hand, since every message is accounted for with some: a test holds it against
// spec.Canonical. Nothing in it needs escaping.
func (r *Receipt) canonical(signed bool) []byte {
	b := make([]byte, 0, 640+80*len(r.ForwardedFor))
	b = appendCount(append(b, `{"at":`...), r.At)
	b = append(b, `,"counters":{`...)
	for i, n := range countersSorted() {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(append(append(b, '"'), n...), `":`...)
		b = appendCount(b, r.Counters[n])
	}
	b = append(b, `},"forwarded_for":[`...)
	for i, k := range r.ForwardedFor {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(append(append(b, '"'), identity.FormatDID(k)...), '"')
	}
	b = hex.AppendEncode(append(b, `],"grant":"`...), r.Grant[:])
	b = hex.AppendEncode(append(b, `","prev":"`...), r.Prev[:])
	b = appendCount(append(b, `","seq":`...), r.Seq)
	if signed {
		b = append(hex.AppendEncode(append(b, `,"sig":"`...), r.Sig[:]), '"')
	}
	return append(appendCount(append(b, `,"window":`...), r.Window), '}')
}

// appendCount writes a number. One beyond 2^53 has no canonical form, and no meter gets there.
func appendCount(b []byte, n int64) []byte {
	if n > maxCount || n < -maxCount {
		panic("ledger: a receipt has a canonical form: " + strconv.FormatInt(n, 10) + " has none")
	}
	return strconv.AppendInt(b, n, 10)
}

// countersSorted are the counters by code point, as the canonical form wants its keys.
var countersSorted = sync.OnceValue(func() []spec.Counter { return slices.Sorted(slices.Values(spec.C().Counters)) })

// Link is SHA-256 of the body: the next receipt's prev, the chain's head, and what is signed.
func (r *Receipt) Link() [32]byte { return sha256.Sum256(r.Body()) }

// JSON is the receipt as it travels, in canonical form with its signature.
func (r *Receipt) JSON() []byte { return r.canonical(true) }

// MarshalJSON writes the wire form.
func (r *Receipt) MarshalJSON() ([]byte, error) { return r.JSON(), nil }

// UnmarshalJSON is ParseReceipt.
func (r *Receipt) UnmarshalJSON(b []byte) error {
	p, err := ParseReceipt(b)
	if err == nil {
		*r = *p
	}
	return err
}

// ParseReceipt reads a receipt. It has exactly the fields of the schema, every counter among them, so
// that its body can be built again; the signature is for Chain or Claim to check.
func ParseReceipt(b []byte) (*Receipt, error) {
	var w receiptJSON
	if err := decodeStrict(b, &w); err != nil {
		return nil, fault(BadJSON, err.Error())
	}
	r := &Receipt{Window: w.Window, Seq: w.Seq, Counters: w.Counters, At: w.At}
	grant, ok1 := parseHex32(w.Grant)
	prev, ok2 := parseHex32(w.Prev)
	r.Grant, r.Prev = grant, prev
	sig, err := hex.DecodeString(w.Sig)
	if !ok1 || !ok2 || err != nil || len(sig) != len(r.Sig) || w.Sig != strings.ToLower(w.Sig) {
		return nil, fault(BadField, "grant, prev or sig")
	}
	r.Sig = nostr.Sig(sig)
	if !isCount(w.Window) || !isCount(w.Seq) || !isCount(w.At) || w.ForwardedFor == nil || len(w.Counters) != len(spec.C().Counters) {
		return nil, fault(BadField, "window, seq, at, forwarded_for or counters")
	}
	for _, n := range spec.C().Counters {
		if v, ok := w.Counters[n]; !ok || v < 0 || v > maxCount {
			return nil, fault(BadField, "counter "+string(n))
		}
	}
	for _, s := range w.ForwardedFor {
		k, err := identity.ParseDID(s)
		if err != nil {
			return nil, fmt.Errorf("forwarded_for: %w", err)
		}
		if slices.Contains(r.ForwardedFor, k) {
			return nil, fault(BadField, "forwarded_for repeats "+s)
		}
		r.ForwardedFor = append(r.ForwardedFor, k)
	}
	return r, nil
}

func isCount(n int64) bool { return n >= 0 && n <= maxCount }

// decodeStrict decodes exactly one JSON value: names are compared octet by octet, none may
// stand twice, and none that the target does not have may stand at all.
func decodeStrict(b []byte, v any) error {
	return json.Unmarshal(b, v, json.RejectUnknownMembers(true))
}

// Triple is one signature to verify: collect them and check them in a group.
type Triple struct {
	Key    nostr.PubKey
	Digest [32]byte
	Sig    nostr.Sig
}

// Holds verifies one triple alone.
func (t Triple) Holds() bool { return identity.Verify(t.Key, t.Digest, t.Sig) }

// Triple is the receipt's signature, which the subject must have made.
func (r *Receipt) Triple(subject nostr.PubKey) Triple {
	return Triple{Key: subject, Digest: r.Link(), Sig: r.Sig}
}
