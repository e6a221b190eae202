package nostr

import (
	"strings"
	"testing"
)

// Every writer's frame is read back by the reader of the other side.
func TestFramesRoundTrip(t *testing.T) {
	key, err := GenerateKey()
	if err != nil {
		t.Fatal(err)
	}
	e := &Event{CreatedAt: 1700000000, Kind: 1, Tags: []Tag{{"t", "a\x00\"b"}}, Content: "x\n\x01\u2028é"}
	if err := e.Sign(key); err != nil {
		t.Fatal(err)
	}
	f, err := ParseFilter([]byte(`{"kinds":[1],"#t":["a"],"limit":0}`))
	if err != nil {
		t.Fatal(err)
	}
	client := [][]byte{
		AppendPublish(nil, e), AppendAuthEvent(nil, e), AppendReq(nil, "s\"1", f, f), AppendCountRequest(nil, "q", f),
		AppendClose(nil, "s"), AppendNegOpen(nil, "n", f, []byte{0x61}), AppendNegMsg(nil, "n", []byte{0x61}), AppendNegClose(nil, "n"),
	}
	for _, b := range client {
		m, err := ParseClientMessage(b)
		if err != nil {
			t.Fatalf("%s: %v", b, err)
		}
		if !strings.Contains(string(b), `"`+m.Label()+`"`) {
			t.Errorf("%s was read as %s", b, m.Label())
		}
		switch m := m.(type) {
		case *EventMessage:
			if m.Err != nil {
				t.Error(m.Err)
			}
		case *AuthMessage:
			if m.Err != nil {
				t.Error(m.Err)
			}
		}
	}
	server := [][]byte{
		AppendEvent(nil, "s", e.JSON()), AppendOK(nil, e.ID.String(), true, ""), AppendEOSE(nil, "s"), AppendEOSE(nil, "s", "finish"),
		AppendClosed(nil, "s", "error: x"), AppendNotice(nil, "hi"), AppendAuth(nil, "c"), AppendCount(nil, "q", 3, nil),
		AppendCount(nil, "q", 3, make([]byte, 256)), AppendNegMsg(nil, "n", []byte{0x61}), AppendNegErr(nil, "n", "blocked: x", 5),
	}
	for _, b := range server {
		m, err := ParseServerMessage(b)
		if err != nil {
			t.Fatalf("%s: %v", b, err)
		}
		if !strings.Contains(string(b), `"`+m.Label()+`"`) {
			t.Errorf("%s was read as %s", b, m.Label())
		}
	}
}
