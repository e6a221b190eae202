package didcomm

import (
	"bytes"
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"
)

// sent is a message after the trip to the other end.
func sent(t *testing.T) func(*Message, error) *Message {
	return func(m *Message, err error) *Message {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		b, err := m.JSON()
		if err != nil {
			t.Fatal(err)
		}
		if m, err = ParseMessage(b); err != nil {
			t.Fatal(err)
		}
		return m
	}
}

func wantAnswer(t *testing.T, m, to *Message) {
	t.Helper()
	if m.ThreadID != to.ID || len(m.To) != 1 || m.To[0] != to.From {
		t.Errorf("%s: thread %q to %v, wanted thread %q to %s", m.Type, m.ThreadID, m.To, to.ID, to.From)
	}
}

func TestTrustPing(t *testing.T) {
	ping := sent(t)(NewPing("1", alice, bob, 5, true))
	if want, err := ParsePing(ping); !want || err != nil {
		t.Errorf("ping: %v, %v", want, err)
	}
	wantAnswer(t, sent(t)(NewPingResponse("2", bob, 6, ping), nil), ping)
	quiet := sent(t)(NewPing("1", alice, bob, 5, false))
	if want, _ := ParsePing(quiet); want {
		t.Error("response_requested false was not heard")
	}
	quiet.Body = nil
	if want, _ := ParsePing(quiet); !want {
		t.Error("without the member an answer is wanted")
	}
}

func TestDiscoverFeatures(t *testing.T) {
	q := sent(t)(NewQueries("1", alice, bob, 5, Query{"protocol", "https://x.org/*"}, Query{"goal-code", "a.b"}))
	have := []Feature{{FeatureType: "protocol", ID: "https://x.org/p/1.0", Roles: []string{"r"}}, {FeatureType: "protocol", ID: "https://y.org/p/1.0"},
		{FeatureType: "goal-code", ID: "a.b"}, {FeatureType: "goal-code", ID: "a.b.c"}}
	d := sent(t)(NewDisclose("2", bob, 6, q, have))
	wantAnswer(t, d, q)
	if got, err := ParseDisclose(d); err != nil || !reflect.DeepEqual(got, []Feature{have[0], have[2]}) {
		t.Errorf("disclosed %v, %v", got, err)
	}
	none := sent(t)(NewDisclose("2", bob, 6, sent(t)(NewQueries("1", alice, bob, 5, Query{"protocol", "z"})), have))
	if !strings.Contains(string(none.Body), `"disclosures":[]`) {
		t.Errorf("nothing to disclose: %s", none.Body)
	}
}

func TestProblemReport(t *testing.T) {
	cause := letter()
	p := Problem{Code: "e.p.capacity", Comment: "{1} of {2}, {3} {x} {", Args: []string{"5", "4"}}
	m := sent(t)(NewProblemReport("2", bob, 6, cause, p))
	if m.ParentThreadID != cause.ID || m.ThreadID != "" {
		t.Errorf("threads: %q under %q", m.ThreadID, m.ParentThreadID)
	}
	got, err := ParseProblemReport(m)
	if err != nil || !reflect.DeepEqual(got, p) || got.Text() != "5 of 4, ? {x} {" {
		t.Errorf("%+v %q, %v", got, got.Text(), err)
	}
	if _, err := NewProblemReport("2", bob, 6, cause, Problem{Code: "oops"}); err == nil {
		t.Error("a code without a sorter was taken")
	}
}

func TestInvitation(t *testing.T) {
	m := sent(t)(NewInvitation("1", alice, 5, Invitation{Goal: "peer with us", Accept: []string{"didcomm/v2"}}))
	link, err := InvitationURL("https://example.org/join?lang=de", m)
	if err != nil {
		t.Fatal(err)
	}
	_, bare, _ := strings.Cut(link, "_oob=")
	bare, _, _ = strings.Cut(bare, "&")
	for _, text := range []string{link, bare, bare + "="} {
		got, err := InvitationFromURL(text)
		if err != nil || got.From != alice || got.ID != "1" {
			t.Errorf("%.60s: %+v, %v", text, got, err)
		}
	}
	anonymous := *m
	anonymous.From = ""
	for name, link := range map[string]string{
		"no parameter": "https://example.org/", "not base64": "https://example.org/?_oob=%25", "not JSON": "AAAA",
		"another message": b64.EncodeToString(must(t)(letter().JSON())), "nobody invites": b64.EncodeToString(must(t)(anonymous.JSON())),
		"too long": strings.Repeat("A", maxInvitation+1),
	} {
		if m, err := InvitationFromURL(link); !errors.Is(err, ErrSyntax) {
			t.Errorf("%s: %+v, %v", name, m, err)
		}
	}
}

func TestMediation(t *testing.T) {
	req := sent(t)(NewMediateRequest("1", alice, mia, 5), nil)
	if req.ReturnRoute != "all" {
		t.Errorf("return_route %q", req.ReturnRoute)
	}
	grant := sent(t)(NewMediateGrant("2", mia, 6, req, mia))
	wantAnswer(t, grant, req)
	if did, err := ParseMediateGrant(grant); did != mia || err != nil {
		t.Errorf("grant: %q, %v", did, err)
	}
	wantAnswer(t, sent(t)(NewMediateDeny("2", mia, 6, req), nil), req)
	up := sent(t)(NewKeylistUpdate("3", alice, mia, 7, KeylistItem{RecipientDID: alice, Action: KeylistAdd}))
	items, err := ParseKeylist(up)
	if err != nil || len(items) != 1 || items[0] != (KeylistItem{alice, KeylistAdd, ""}) {
		t.Errorf("update: %v, %v", items, err)
	}
	items[0].Result = ResultSuccess
	resp := sent(t)(NewKeylistUpdateResponse("4", mia, 8, up, items...))
	if got, err := ParseKeylist(resp); err != nil || got[0].Result != ResultSuccess {
		t.Errorf("response: %v, %v", got, err)
	}
	q := sent(t)(NewKeylistQuery("5", alice, mia, 9, &Page{Limit: 30}))
	if p, err := ParseKeylistQuery(q); err != nil || p.Limit != 30 {
		t.Errorf("query: %v, %v", p, err)
	}
	list := sent(t)(NewKeylist("6", mia, 10, q, &Page{Count: 1}, alice))
	if got, err := ParseKeylist(list); err != nil || len(got) != 1 || got[0].RecipientDID != alice {
		t.Errorf("list: %v, %v", got, err)
	}
	for name, m := range map[string]*Message{
		"action":     {Type: TypeKeylistUpdate, Body: json.RawMessage(`{"updates":[{"recipient_did":"did:x:y","action":"burn"}]}`)},
		"no DID":     {Type: TypeKeylistUpdate, Body: json.RawMessage(`{"updates":[{"recipient_did":"y","action":"add"}]}`)},
		"other type": {Type: TypePing},
	} {
		if _, err := ParseKeylist(m); !errors.Is(err, ErrSyntax) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestPickup(t *testing.T) {
	req := sent(t)(NewDeliveryRequest("1", alice, mia, 5, alice, 10))
	if r, err := ParsePickupRequest(req); err != nil || r != (PickupRequest{alice, 10}) {
		t.Errorf("request: %+v, %v", r, err)
	}
	envelope := []byte(`{"protected":"x"}`)
	d := sent(t)(NewDelivery("2", mia, alice, 6, req, alice, []Delivered{{"m1", envelope}, {"m2", []byte("garbage")}}))
	wantAnswer(t, d, req)
	got, err := ParseDelivery(d)
	if err != nil || len(got) != 2 || got[0].ID != "m1" || !bytes.Equal(got[0].Envelope, envelope) {
		t.Fatalf("delivery: %v, %v", got, err)
	}
	if got[1].ID != "m2" || got[1].Envelope != nil {
		t.Errorf("an unreadable message must still have its id: %+v", got[1])
	}
	ack := sent(t)(NewMessagesReceived("3", alice, mia, 7, []string{"m1", "m2"}))
	if ids, err := ParseMessagesReceived(ack); err != nil || len(ids) != 2 {
		t.Errorf("ack: %v, %v", ids, err)
	}
	s := Status{MessageCount: 3, TotalBytes: 9, LiveDelivery: true}
	status := sent(t)(NewStatus("4", mia, 8, ack, s))
	if got, err := ParseStatus(status); err != nil || got != s {
		t.Errorf("status: %+v, %v", got, err)
	}
	live := sent(t)(NewLiveDeliveryChange("5", alice, mia, 9, true))
	if on, err := ParseLiveDeliveryChange(live); !on || err != nil {
		t.Errorf("live: %v, %v", on, err)
	}
	if r, err := ParsePickupRequest(sent(t)(NewStatusRequest("6", alice, mia, 9, ""))); err != nil || r != (PickupRequest{}) {
		t.Errorf("status-request: %+v, %v", r, err)
	}
	for _, limit := range []int{0, -1, MaxPickup + 1} {
		if _, err := ParsePickupRequest(sent(t)(NewDeliveryRequest("1", alice, mia, 5, "", limit))); !errors.Is(err, ErrSyntax) {
			t.Errorf("limit %d: %v", limit, err)
		}
	}
}
