package didcomm

import (
	"bytes"
	"errors"
	"testing"
)

// FuzzUnpack: any input ends in a message or in one of the named errors, and a
// plaintext that was read is read the same after being written.
func FuzzUnpack(f *testing.F) {
	w := newTown(f)
	to := []PublicKey{w.public(bob)}
	for _, o := range []PackOptions{
		{To: to}, {To: to, From: w.sender(alice)}, {To: to, From: w.sender(alice), ShowSender: true},
		{To: to, Sign: w.signer(alice)},
		{To: to, Via: []PublicKey{w.public(mia)}, ForwardID: func() string { return "f" }},
	} {
		f.Add(mustPack(f, letter(), o))
	}
	f.Add(mustPack(f, wordy(3000), PackOptions{To: to, From: w.sender(alice), ShowSender: true, Zip: true}))
	f.Add(zipped(f, w, deflated(f, make([]byte, 1<<20))))
	plain, _ := letter().JSON()
	f.Add(plain)
	f.Add(must(f)(Sign(plain, *w.signer(alice))))
	keys := Keys{bob + "#agree": w.keys[bob+"#agree"], mia + "#agree": w.keys[mia+"#agree"]}
	f.Fuzz(func(t *testing.T, b []byte) {
		u, err := Unpack(b, keys, w)
		if err != nil {
			for _, known := range []error{ErrSyntax, ErrOpen, ErrTooLarge, ErrAddressing, ErrRotation} {
				if errors.Is(err, known) {
					return
				}
			}
			t.Fatalf("an error of no kind: %v", err)
		}
		once, err := u.Message.JSON()
		if err != nil {
			t.Fatalf("read but not written: %v", err)
		}
		again, err := ParseMessage(once)
		if err != nil {
			t.Fatalf("written but not read: %v", err)
		}
		if twice, _ := again.JSON(); !bytes.Equal(once, twice) {
			t.Fatalf("%s became %s", once, twice)
		}
		parseBodies(u.Message)
	})
}

// parseBodies runs every body parser: none may panic, whatever the type says.
func parseBodies(m *Message) {
	for _, typ := range []string{
		m.Type, TypePing, TypeQueries, TypeDisclose, TypeProblemReport, TypeInvitation, TypeForward,
		TypeMediateGrant, TypeKeylistUpdate, TypeKeylistUpdateResponse, TypeKeylist, TypeKeylistQuery,
		TypeStatusRequest, TypeStatus, TypeDeliveryRequest, TypeDelivery, TypeMessagesReceived, TypeLiveDeliveryChange,
	} {
		c := *m
		c.Type = typ
		ParsePing(&c)
		ParseQueries(&c)
		ParseDisclose(&c)
		if p, err := ParseProblemReport(&c); err == nil {
			p.Text()
		}
		ParseInvitation(&c)
		ParseForward(&c)
		ParseMediateGrant(&c)
		ParseKeylist(&c)
		ParseKeylistQuery(&c)
		ParsePickupRequest(&c)
		ParseStatus(&c)
		ParseDelivery(&c)
		ParseMessagesReceived(&c)
		ParseLiveDeliveryChange(&c)
	}
}

// FuzzInner seals arbitrary octets, so that what lies under the encryption is
// fuzzed too.
func FuzzInner(f *testing.F) {
	w := newTown(f)
	plain, _ := letter().JSON()
	f.Add(plain)
	f.Add(must(f)(Sign(plain, *w.signer(alice))))
	f.Add(must(f)(Authcrypt(plain, *w.sender(alice), []PublicKey{w.public(bob)})))
	f.Add([]byte(`{"id":"1","type":"a/b","body":{"next":"did:x:y","code":"e.p.x","comment":"{1} {9} {"},"attachments":[{"id":"1","data":{"json":{}}}]}`))
	keys := w.of(bob)
	f.Fuzz(func(t *testing.T, b []byte) {
		sealed, err := Anoncrypt(b, []PublicKey{w.public(bob)})
		if err != nil {
			return
		}
		if u, err := Unpack(sealed, keys, w); err == nil {
			parseBodies(u.Message)
		} else if errors.Is(err, ErrOpen) && layerOf(b) == layerPlain {
			t.Fatalf("our own envelope did not open: %v", err)
		}
	})
}

// FuzzInvitation: links from strangers.
func FuzzInvitation(f *testing.F) {
	m, err := NewInvitation("1", alice, 1, Invitation{GoalCode: "peer", Accept: []string{"didcomm/v2"}})
	if err != nil {
		f.Fatal(err)
	}
	link, err := InvitationURL("https://example.org/join?x=1", m)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(link)
	f.Add("https://example.org/?_oob=e30")
	f.Add("e30")
	f.Fuzz(func(t *testing.T, link string) {
		m, err := InvitationFromURL(link)
		if err != nil {
			return
		}
		if _, err := InvitationURL("https://example.org/", m); err != nil {
			t.Fatalf("read but not written: %v", err)
		}
	})
}
