package nostr

import (
	"bytes"
	"os"
	"testing"

	"fleetmesh.org/fleetmesh/internal/vectors"
)

// realEvents returns the lines of the real, signed, public events.
func realEvents(t testing.TB) [][]byte {
	b, err := os.ReadFile(vectors.Path(t, "nostr-events", "valid-dev.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	return bytes.Split(bytes.TrimSpace(b), []byte("\n"))
}

// usualEvents leaves out the few very long follow lists, which would hide what
// an event of usual size costs.
func usualEvents(t testing.TB) [][]byte {
	var out [][]byte
	for _, l := range realEvents(t) {
		if len(l) < 4096 {
			out = append(out, l)
		}
	}
	return out
}

func BenchmarkParseEvent(b *testing.B) {
	lines := usualEvents(b)
	n := 0
	for _, l := range lines {
		n += len(l)
	}
	b.SetBytes(int64(n / len(lines)))
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		if _, err := ParseEvent(lines[i%len(lines)]); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkParseEventMessage(b *testing.B) {
	lines := usualEvents(b)
	for i, l := range lines {
		lines[i] = append(append([]byte(`["EVENT",`), l...), ']')
	}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		if m, err := ParseClientMessage(lines[i%len(lines)]); err != nil || m.(*EventMessage).Err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkParseReq(b *testing.B) {
	msg := []byte(`["REQ","sub:1",{"kinds":[1,6,7],"authors":["f9308a019258c31049344f85f89d5229b531c845836f99b08601f113bce036f9"],"since":1700000000,"limit":100}]`)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := ParseClientMessage(msg); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkMatch(b *testing.B) {
	var events []*Event
	for _, l := range usualEvents(b) {
		e, err := ParseEvent(l)
		if err != nil {
			b.Fatal(err)
		}
		events = append(events, e)
	}
	f, err := ParseFilter([]byte(`{"kinds":[1,6,7],"#p":["f9308a019258c31049344f85f89d5229b531c845836f99b08601f113bce036f9"]}`))
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		f.Matches(events[i%len(events)])
	}
}

func BenchmarkVerify(b *testing.B) {
	var events []*Event
	for _, l := range usualEvents(b) {
		e, err := ParseEvent(l)
		if err != nil {
			b.Fatal(err)
		}
		events = append(events, e)
	}
	v := NewVerifier()
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		at := i % len(events)
		if !v.Verify(events[at : at+1])[0] {
			b.Fatal(at)
		}
	}
}

func BenchmarkAppendOK(b *testing.B) {
	id := "f9308a019258c31049344f85f89d5229b531c845836f99b08601f113bce036f9"
	var buf []byte
	b.ReportAllocs()
	for b.Loop() {
		buf = AppendOK(buf[:0], id, true, "")
	}
}

func BenchmarkVerifyGroup64(b *testing.B) {
	var events []*Event
	for _, l := range usualEvents(b) {
		e, err := ParseEvent(l)
		if err != nil {
			b.Fatal(err)
		}
		events = append(events, e)
	}
	v := NewVerifier()
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		at := i * 64 % (len(events) - 64)
		for _, ok := range v.Verify(events[at : at+64]) {
			if !ok {
				b.Fatal(at)
			}
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*64), "ns/sig")
}

// A follow feed: a thousand authors, the event's not among them.
func BenchmarkMatchManyAuthors(b *testing.B) {
	f := Filter{Kinds: []Kind{1}}
	for i := range 1000 {
		f.Authors = append(f.Authors, PubKey((&Event{CreatedAt: int64(i)}).ComputeID()))
	}
	e := &Event{Kind: 1, PubKey: PubKey((&Event{Content: "x"}).ComputeID())}
	for b.Loop() {
		if f.Matches(e) {
			b.Fatal("matches")
		}
	}
}

func BenchmarkSign(b *testing.B) {
	e := &Event{Kind: 1, CreatedAt: caseTime, Content: "x"}
	k := secret(3)
	for b.Loop() {
		if err := e.Sign(k); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkAppendEvent(b *testing.B) {
	e, err := ParseEvent(usualEvents(b)[0])
	if err != nil {
		b.Fatal(err)
	}
	var buf []byte
	b.ReportAllocs()
	for b.Loop() {
		buf = AppendEvent(buf[:0], "sub:1", e.JSON())
	}
}

func BenchmarkEncryptDecrypt(b *testing.B) {
	key, err := ConversationKey(secret(3), secret(5).PubKey())
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		s, err := Encrypt("hello", key)
		if err != nil {
			b.Fatal(err)
		}
		if _, err := Decrypt(s, key); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkMatcherManyAuthors(b *testing.B) {
	f := Filter{Kinds: []Kind{1}}
	for i := range 1000 {
		f.Authors = append(f.Authors, PubKey((&Event{CreatedAt: int64(i)}).ComputeID()))
	}
	e := &Event{Kind: 1, PubKey: PubKey((&Event{Content: "x"}).ComputeID())}
	m := NewMatcher(f)
	for b.Loop() {
		if m.Matches(e) {
			b.Fatal("matches")
		}
	}
}

func BenchmarkParseKept(b *testing.B) {
	lines := usualEvents(b)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		if _, err := ParseKept(lines[i%len(lines)]); err != nil {
			b.Fatal(err)
		}
	}
}
