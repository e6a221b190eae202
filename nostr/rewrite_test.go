package nostr

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"unicode/utf16"
)

// rewriter writes events in JSON as oddly as JSON allows.
type rewriter struct{ r *rand.Rand }

func (w rewriter) space() string {
	var b strings.Builder
	for w.r.IntN(3) == 0 {
		b.WriteByte(" \t\r\n"[w.r.IntN(4)])
	}
	return b.String()
}

func (w rewriter) unit(u uint16) string {
	if w.r.IntN(2) == 0 {
		return fmt.Sprintf(`\u%04x`, u)
	}
	return fmt.Sprintf(`\u%04X`, u)
}

func (w rewriter) str(s string) string {
	var b strings.Builder
	for _, c := range s {
		short := ""
		if i := strings.IndexRune("\"\\/\b\f\n\r\t", c); i >= 0 {
			short = `\` + `"\/bfnrt`[i:i+1]
		}
		switch {
		case short != "" && w.r.IntN(2) == 0:
			b.WriteString(short)
		case c < 0x20 || c == '"' || c == '\\' || w.r.IntN(20) == 0:
			for _, u := range utf16.Encode([]rune{c}) {
				b.WriteString(w.unit(u))
			}
		default:
			b.WriteRune(c)
		}
	}
	return w.space() + `"` + b.String() + `"` + w.space()
}

func (w rewriter) tags(tags []Tag) string {
	var all []string
	for _, t := range tags {
		var vs []string
		for _, v := range t {
			vs = append(vs, w.str(v))
		}
		all = append(all, w.space()+"["+strings.Join(vs, ",")+"]"+w.space())
	}
	if len(all) == 0 {
		all = []string{w.space()}
	}
	return w.space() + "[" + strings.Join(all, ",") + "]" + w.space()
}

func (w rewriter) event(e *Event) string {
	number := func(n int64) string { return w.space() + fmt.Sprint(n) + w.space() }
	members := []string{
		w.str("id") + ":" + w.str(e.ID.String()),
		w.str("pubkey") + ":" + w.str(e.PubKey.String()),
		w.str("created_at") + ":" + number(e.CreatedAt),
		w.str("kind") + ":" + number(int64(e.Kind)),
		w.str("tags") + ":" + w.tags(e.Tags),
		w.str("content") + ":" + w.str(e.Content),
		w.str("sig") + ":" + w.str(e.Sig.String()),
	}
	for _, v := range []string{"null", "-1.5E+3", `{"id":"x","tags":[[]]}`, "[[],{}]", "true", `"\ud83d\ude00"`} {
		if w.r.IntN(4) == 0 {
			members = append(members, w.str(fmt.Sprint("x", len(members)))+":"+w.space()+v+w.space())
		}
	}
	w.r.Shuffle(len(members), func(i, j int) { members[i], members[j] = members[j], members[i] })
	return w.space() + "{" + strings.Join(members, ",") + "}" + w.space()
}

// However an event is written, it is the same event, kept in the same form.
func TestEveryWritingIsTheSameEvent(t *testing.T) {
	w := rewriter{rand.New(rand.NewPCG(7, 8))}
	lines := usualEvents(t)
	for i := range 3000 {
		e, err := ParseEvent(lines[i%len(lines)])
		if err != nil {
			t.Fatal(err)
		}
		text := w.event(e)
		got := parseBoth(t, text)
		if !sameEvent(e, got) {
			t.Fatalf("%s became another event", text)
		}
		m, err := ParseClientMessage([]byte(w.space() + "[" + w.str("EVENT") + "," + text + "]" + w.space()))
		if got, ok := m.(*EventMessage); err != nil || !ok || got.Err != nil || !sameEvent(e, got.Event) || got.RawID != e.ID.String() {
			t.Fatalf("%s in a message: %+v, %v", text, m, err)
		}
	}
}
