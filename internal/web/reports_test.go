package web

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"strings"
	"testing"
)

// TestPeerPageShowsReportsAndSetsALimit shows complaints and what others said, with whatever they wrote as text, and sets one limit for the operator alone.
func TestPeerPageShowsReportsAndSetsALimit(t *testing.T) {
	b := newBench(t)
	h := quote(hostile)
	b.node.Local["report.list"] = says(`{"cases":[{"peer":"` + peerKey + `","ours":[{"stage":"unproven","outcome":"S4","first_window":7,"last_window":9,"at":1700000000,"why":` + h + `}],"theirs":[{"thread":"x"}]}],"findings":[{"reporter":"` + strings.Repeat("ab", 32) + `","subject":"` + peerKey + `","severity":"S3","support":"supported","at":1700000000},{"subject":"` + strings.Repeat("cd", 32) + `","severity":"S2","support":"nobody's"}]}`)
	var asked []string
	b.node.Local["peer.amend"] = func(_ context.Context, p json.RawMessage, _ func(any)) (any, error) {
		asked = append(asked, string(p))
		return map[string]any{}, nil
	}
	cookie, csrf := b.signIn()
	page := b.ask("GET", "/ui/peers/"+url.PathEscape("did:nostr:"+peerKey), cookie, "").Body.String()
	for _, want := range []string{"ours, unproven, windows 7 to 9", "said by", "supported", "complains of this node: 1 case", `action="/ui/do/peer-limit"`, `value="events_in"`} {
		if !strings.Contains(page, want) {
			t.Errorf("the page lacks %q", want)
		}
	}
	if strings.Contains(page, hostile) || strings.Contains(page, "nobody&#39;s") {
		t.Error("what others wrote is no text, or a report about somebody else is shown")
	}
	form := url.Values{"did": {"did:nostr:" + peerKey}, "limit": {"events_in"}, "value": {"500"}}
	post := func(cookie string) int { return b.ask("POST", "/ui/do/peer-limit", cookie, form.Encode()).Code }
	if code := post(cookie); code != http.StatusForbidden {
		t.Errorf("without the token: %d", code)
	}
	form.Set("csrf", csrf)
	if code := post(""); code != http.StatusUnauthorized && code != http.StatusForbidden {
		t.Errorf("nobody: %d", code)
	}
	if len(asked) != 0 {
		t.Fatalf("it was set: %q", asked)
	}
	if code := post(cookie); code != http.StatusSeeOther || len(asked) != 1 || !strings.Contains(asked[0], `"limits":{"events_in":500}`) {
		t.Errorf("the operator: %d, %q", code, asked)
	}
	form.Set("value", "")
	if code := post(cookie); code != http.StatusSeeOther || len(asked) != 2 || !strings.Contains(asked[1], `"free":["events_in"]`) {
		t.Errorf("given back: %d, %q", code, asked)
	}
	form.Set("value", "lots")
	if code := post(cookie); code != http.StatusUnprocessableEntity || len(asked) != 2 {
		t.Errorf("no number: %d, %q", code, asked)
	}
}
