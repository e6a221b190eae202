package eventlog

import (
	"encoding/binary"
	"encoding/hex"
	"testing"

	"fleetmesh.org/fleetmesh/nostr"
)

// TestSipHash checks the published vectors of SipHash-2-4 with 128 bits.
func TestSipHash(t *testing.T) {
	var key [16]byte
	for i := range key {
		key[i] = byte(i)
	}
	h := newHasher(key)
	for n, want := range map[int]string{
		0: "a3817f04ba25a8e66df67214c7550293",
		1: "da87c1d86b99af44347659119b22fc45",
		8: "3b62a9ba6258f5610f83e264f31497b4",
	} {
		msg := make([]byte, n)
		for i := range msg {
			msg[i] = byte(i)
		}
		got := h.sum(msg)
		b := binary.LittleEndian.AppendUint64(nil, got.hi)
		if b = binary.LittleEndian.AppendUint64(b, got.lo); hex.EncodeToString(b) != want {
			t.Fatalf("%d bytes: %x, want %s", n, b, want)
		}
	}
}

func TestTermsOnce(t *testing.T) {
	e := &nostr.Event{Kind: 30023, Tags: []nostr.Tag{{"d", "x"}, {"t", "a"}, {"t", "a"}, {"t"}, {"title", "no"}, {"T", "a"}, {"1", "no"}}}
	if got := newHasher([16]byte{}).terms(nil, e); len(got) != 3+1+3 {
		t.Fatalf("%d terms", len(got))
	}
	for i := range 40 {
		e.Tags = append(e.Tags, nostr.Tag{"p", string(rune('a' + i%20))})
	}
	if got := newHasher([16]byte{}).terms(nil, e); len(got) != 3+1+3+20 {
		t.Fatalf("%d terms", len(got))
	}
}

func TestCacheBound(t *testing.T) {
	c := newPartCache(10_000)
	for i := range 100 {
		c.put(partKey{uint64(i), ""}, &part{docs: make([]uint32, 300)}, nil)
		if c.used > c.limit || len(c.byKey) != c.age.Len() {
			t.Fatalf("%d bytes in %d parts", c.used, len(c.byKey))
		}
	}
	if p, _ := c.get(partKey{99, ""}); p == nil {
		t.Fatal("the newest part is gone")
	}
	if p, _ := c.get(partKey{0, ""}); p != nil {
		t.Fatal("the oldest part is still there")
	}
}
