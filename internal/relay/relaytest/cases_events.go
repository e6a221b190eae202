package relaytest

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/btcsuite/btcd/btcec/v2"
	"github.com/btcsuite/btcd/btcec/v2/schnorr"

	"fleetmesh.org/fleetmesh/nostr"
)

func init() {
	cases["01"] = case01
	cases["03"] = case03
	cases["05"] = case05
	cases["07"] = case07
	cases["09"] = case09
	cases["11"] = case11
}

// publishText sends the JSON text of an event and returns the OK for the id in it.
func (c *Client) publishText(text string) OK {
	c.t.Helper()
	id := nostr.PeekID([]byte(text))
	c.Send(`["EVENT",` + text + `]`)
	return c.AwaitOK(id)
}

// signAs signs the event over an id that is not its own.
func signAs(t testing.TB, k nostr.SecretKey, e nostr.Event, id nostr.ID) string {
	t.Helper()
	priv, _ := btcec.PrivKeyFromBytes(k[:])
	sig, err := schnorr.Sign(priv, id[:])
	if err != nil {
		t.Fatal(err)
	}
	content, _ := json.Marshal(e.Content)
	return fmt.Sprintf(`{"id":"%s","pubkey":"%s","created_at":%d,"kind":%d,"tags":[],"content":%s,"sig":"%x"}`,
		id, pub(k), e.CreatedAt, e.Kind, content, sig.Serialize())
}

// Case 1: the id is taken over verbatim text.
func case01(t *testing.T, newStore NewStore) {
	c := Start(t, newStore(t)).Dial(t)
	content := "a<b>&c 'q' /e\u2028\u0085\u00e9"
	e := Event(A, T0, 1, nil, content)
	want(t, "id", e.ID.String(), "f08ce62d644b15171e17b195eda1939d9512e510346bc63dc0023862eeae74c2")
	c.Publish(e).accepted(t, "verbatim text")
	wantList(t, "contents read back", c.Get(`{}`).Contents(), content)

	wrong, err := nostr.ParseID("d71dff78f2648eef1ae959f4e9fb1150b873658695f99cf3a3b37c31c470555a")
	if err != nil {
		t.Fatal(err)
	}
	c.publishText(signAs(t, A, *e, wrong)).refused(t, "the id of an escaping encoder", "invalid")
	c.Alive()
}

// Case 3: U+0000 inside content and tag.
func case03(t *testing.T, newStore NewStore) {
	c := Start(t, newStore(t)).Dial(t)
	long, short := Event(A, T0, 1, nil, "x\x00y"), Event(A, T0, 1, nil, "x")
	tagged := Event(A, T0, 1, []nostr.Tag{{"t", "a\x00b"}}, "")
	want(t, "first id", long.ID.String(), "65e65d575bce795bc1a6c1fcce11faf2a395da90311137d34ebe2b1949634c93")
	want(t, "second id", short.ID.String(), "e05d56fbd448c6b866616db2b9ced322e6032493a41d603b7fba4747762559e1")
	c.MustPublish(long, short, tagged)
	for _, e := range []*nostr.Event{long, short} {
		wantList(t, "content", c.Get(q(`{"ids":["%s"]}`, e.ID)).Contents(), e.Content)
	}
	want(t, "events with tag a", len(c.Get(`{"#t":["a"]}`).Events), 0)
	wantList(t, "events with tag a, U+0000, b", c.Get(`{"#t":["a\u0000b"]}`).IDs(), tagged.ID.String())
}

// Case 5: a tag with no or one element.
func case05(t *testing.T, newStore NewStore) {
	c := Start(t, newStore(t)).Dial(t)
	c.Publish(Event(A, T0, 1, []nostr.Tag{{}}, "")).refused(t, "a tag without name", "invalid")
	c.Publish(Event(A, T0, 1, []nostr.Tag{{"t"}}, "")).accepted(t, "a tag without value")
	want(t, "events with an empty t", len(c.Get(`{"#t":[""]}`).Events), 0)
	c.Alive()
}

// Case 7: kind values.
func case07(t *testing.T, newStore NewStore) {
	c := Start(t, newStore(t)).Dial(t)
	c.Publish(Event(A, T0, 65535, nil, "")).accepted(t, "kind 65535")
	text := string(Event(A, T0, 1, nil, "").JSON())
	for _, kind := range []string{"65536", "-1", `"1"`, "true", "null", "1.5"} {
		c.publishText(strings.Replace(text, `"kind":1,`, `"kind":`+kind+`,`, 1)).refused(t, "kind "+kind, "invalid")
	}
	one := strings.Replace(text, `"kind":1,`, `"kind":1.0,`, 1)
	if ok := c.publishText(one); ok.OK {
		c.Send(`["REQ","k",{"kinds":[1]}]`)
		a := c.AwaitAnswer("k")
		want(t, "events of kind 1", len(a.Events), 1)
	} else {
		ok.refused(t, "kind 1.0", "invalid")
	}
	c.Alive()
}

// Case 9: the shape of the frame.
func case09(t *testing.T, newStore NewStore) {
	r := Start(t, newStore(t))
	c, other := r.Dial(t), r.Dial(t)
	c.Send(" \r\n\t" + `["REQ","w",{"limit":1}]` + "  ")
	want(t, "EOSE between white space", c.AwaitAnswer("w").EOSE, true)
	c.Send("\ufeff" + `["REQ","b",{"limit":1}]`)
	if m := c.Next(); m.Label() != "EOSE" && m.Label() != "NOTICE" {
		t.Errorf("after a byte order mark: %v", m)
	}
	for _, text := range []string{`{}`, `[]`, `null`, `["FOO","x"]`, strings.Repeat("[", 1<<20)} {
		c.Send(text)
		if m := c.Next(); m.Label() != "NOTICE" {
			t.Errorf("after %.20q: %v, want a NOTICE", text, m)
		}
	}
	c.Send(`["REQ","d1",{"limit":1}]["REQ","d2",{"limit":1}]`)
	if m := c.Next(); m.Label() != "NOTICE" {
		t.Errorf("after two arrays in one frame: %v, want a NOTICE", m)
	}
	c.Alive()
	other.Alive()
}

// Case 11: upper-case hex and wrong lengths.
func case11(t *testing.T, newStore NewStore) {
	c := Start(t, newStore(t)).Dial(t)
	e := Event(A, T0, 1, []nostr.Tag{{"p", pub(B)}}, "hex")
	text, id, key, sig := string(e.JSON()), e.ID.String(), e.PubKey.String(), e.Sig.String()
	bad := map[string]string{
		"upper-case id":     strings.Replace(text, id, strings.ToUpper(id), 1),
		"upper-case pubkey": strings.Replace(text, key, strings.ToUpper(key), 1),
		"upper-case sig":    strings.Replace(text, sig, strings.ToUpper(sig), 1),
		"sig of 127 digits": strings.Replace(text, sig, sig[:127], 1),
		"sig of 129 digits": strings.Replace(text, sig, sig+"0", 1),
		"sig with a g":      strings.Replace(text, sig, "g"+sig[1:], 1),
	}
	for what, s := range bad {
		c.publishText(s).refused(t, what, "invalid")
	}
	c.MustPublish(e)
	for _, f := range []string{
		q(`{"ids":["%s"]}`, strings.ToUpper(id)), q(`{"authors":["%s"]}`, strings.ToUpper(key)), q(`{"#p":["%s"]}`, strings.ToUpper(pub(B))),
	} {
		a := c.Get(f)
		if len(a.Events) > 0 || (!a.EOSE && !hasPrefix(a.Closed, "invalid")) {
			t.Errorf("filter %s: %d events, closed %q", f, len(a.Events), a.Closed)
		}
	}
	c.Alive()
}
