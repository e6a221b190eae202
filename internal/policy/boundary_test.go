package policy

import (
	"context"
	"strconv"
	"strings"
	"testing"

	"fleetmesh.org/fleetmesh/nostr"
	"fleetmesh.org/fleetmesh/spec"
)

func TestBoundary(t *testing.T) {
	secret, err := nostr.GenerateKey()
	if err != nil {
		t.Fatal(err)
	}
	cipher := "Ag" + strings.Repeat("A", 146) // version 2, 111 octets
	const now = 1_800_000_000
	cases := map[string]struct {
		e    nostr.Event
		want string
	}{
		"a note":                          {nostr.Event{Kind: 1, Content: "nsec1 is how a key begins"}, ""},
		"a list without a private half":   {nostr.Event{Kind: 10000, Content: ""}, ""},
		"a list with one":                 {nostr.Event{Kind: 10000, Content: cipher}, StopPrivate},
		"a list with one, NIP-04":         {nostr.Event{Kind: 30000, Content: "AAAAAAAAAAAAAAAAAAAAAA==?iv=AAAAAAAAAAAAAAAAAAAAAA=="}, StopPrivate},
		"a grant":                         {nostr.Event{Kind: spec.KindGrant, Content: cipher}, ""},
		"protected":                       {nostr.Event{Kind: 1, Tags: []nostr.Tag{{"-"}}}, StopProtected},
		"expired":                         {nostr.Event{Kind: 1, Tags: []nostr.Tag{{"expiration", "1700000000"}}}, StopExpired},
		"not yet expired":                 {nostr.Event{Kind: 1, Tags: []nostr.Tag{{"expiration", "1900000000"}}}, ""},
		"a wrap":                          {nostr.Event{Kind: 1059, Tags: []nostr.Tag{{"p", alice.String()}}}, StopWrap},
		"a live wrap":                     {nostr.Event{Kind: 21059, Tags: []nostr.Tag{{"p", alice.String()}}}, StopWrap},
		"a secret key":                    {nostr.Event{Kind: 1, Content: "mine is " + nostr.EncodeNsec(secret) + "."}, StopSecret},
		"a secret key in a tag":           {nostr.Event{Kind: 1, Tags: []nostr.Tag{{"r", nostr.EncodeNsec(secret)}}}, StopSecret},
		"a repost of a protected event":   {nostr.Event{Kind: 6, Content: `{"kind":1,"tags":[["-"]]}`}, StopProtected},
		"a repost of a message":           {nostr.Event{Kind: 16, Content: ` {"kind":4,"tags":[]}`}, StopNever},
		"a repost of an expired event":    {nostr.Event{Kind: 6, Content: `{"kind":1,"tags":[["expiration","1"]]}`}, StopExpired},
		"a repost of a note":              {nostr.Event{Kind: 6, Content: `{"kind":1,"tags":[],"content":"x"}`}, ""},
		"a repost that holds no event":    {nostr.Event{Kind: 6, Content: `{"kind":"x"}`}, ""},
		"a repost of a repost, and so on": {nostr.Event{Kind: 6, Content: `{"kind":6,"tags":[]}`}, ""},
	}
	for _, k := range spec.C().Boundary.NeverKinds {
		cases["kind "+strconv.Itoa(int(k))] = struct {
			e    nostr.Event
			want string
		}{nostr.Event{Kind: k}, StopNever}
	}
	for name, tc := range cases {
		if got := new(Boundary).Stops(t.Context(), &tc.e, now); got != tc.want {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
	}
	mail := &Boundary{Mailbox: func(_ context.Context, k nostr.PubKey) bool { return k == alice }}
	wrap := func(to ...nostr.PubKey) *nostr.Event {
		e := &nostr.Event{Kind: 1059}
		for _, k := range to {
			e.Tags = append(e.Tags, nostr.Tag{"p", k.String()})
		}
		return e
	}
	for want, e := range map[string]*nostr.Event{"": wrap(alice), StopWrap: wrap(alice, bob)} {
		if got := mail.Stops(t.Context(), e, now); got != want {
			t.Errorf("a wrap to %d: %q, want %q", len(e.Tags), got, want)
		}
	}
	if got := mail.Stops(t.Context(), wrap(), now); got != StopWrap {
		t.Errorf("a wrap to nobody: %q", got)
	}
}

func FuzzBoundary(f *testing.F) {
	f.Add(uint16(6), `{"kind":1,"tags":[["-"]]}`)
	f.Add(uint16(1), "nsec1nsec1qqq")
	f.Add(uint16(10000), "AAAA?iv=AAAA")
	f.Fuzz(func(_ *testing.T, kind uint16, content string) {
		new(Boundary).Stops(context.Background(), &nostr.Event{Kind: nostr.Kind(kind), Content: content}, 1)
	})
}
