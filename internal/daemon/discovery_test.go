package daemon

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"fleetmesh.org/fleetmesh/internal/identity"
	"fleetmesh.org/fleetmesh/nostr"
)

const someNode = "did:nostr:79be667ef9dcbbac55a06295ce870b07029bfcdb2dce28d959f2815b16f81798"

func TestBootstrapFile(t *testing.T) {
	if seeds, err := parseBootstrap([]byte(emptyBootstrap)); err != nil || len(seeds) != 0 {
		t.Errorf("as it ships: %v, %v", seeds, err)
	}
	seeds, err := parseBootstrap([]byte("[[node]]\nrelay = \"wss://A.example.org/\" # first\ndid = '" + someNode + "'\noperator = \"some \\\"one\\\"\"\n\n[[node]] # second\nrelay=\"ws://127.0.0.1:7\"\n"))
	if err != nil || len(seeds) != 2 || identity.FormatDID(seeds[0].Node) != someNode || seeds[0].Operator != `some "one"` || !strings.HasPrefix(seeds[1].Relay, "ws://127.0.0.1:7") {
		t.Errorf("%+v, %v", seeds, err)
	}
	for _, bad := range []string{
		"relay = \"wss://a\"", "[node]\nrelay = \"wss://a\"", "[[node]]", "[[node]]\nrelay = wss://a", "[[node]]\nrelay = \"wss://a", "[[node]]\nrelay = \"wss://a\" x",
		"[[node]]\nrelay = \"http//a\"", "[[node]]\nrelay = \"wss://a\"\nrelay = \"wss://b\"", "[[node]]\nrelay = \"wss://a\"\nx = \"y\"", "[[node]]\ndid = \"did:nostr:1\"",
		"[[node]]\n[[node]]\nrelay = \"wss://a\"", "[[peer]]",
	} {
		if _, err := parseBootstrap([]byte(bad)); err == nil || !strings.Contains(err.Error(), "node") && !strings.Contains(err.Error(), "line ") {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

func FuzzBootstrapFile(f *testing.F) {
	f.Add(emptyBootstrap)
	f.Add("[[node]]\nrelay = \"wss://a.example.org\"\ndid = '" + someNode + "' # x\n")
	f.Fuzz(func(t *testing.T, text string) {
		seeds, err := parseBootstrap([]byte(text))
		for _, s := range seeds {
			if err == nil && s.Relay == "" {
				t.Error("a seed without a relay")
			}
		}
	})
}

func FuzzParseSeed(f *testing.F) {
	f.Add("wss://relay.example.org")
	f.Add(someNode + "@wss://relay.example.org")
	f.Fuzz(func(t *testing.T, text string) {
		if s, err := ParseSeed(text); err == nil && s.Relay == "" {
			t.Error("a seed without a relay")
		}
	})
}

type fakeTXT map[string][]string

func (f fakeTXT) LookupTXT(_ context.Context, name string) ([]string, error) {
	if f[name] == nil {
		return nil, errors.New("no such name")
	}
	return f[name], nil
}

func TestDNSSeeds(t *testing.T) {
	r := fakeTXT{"seed.example.org": {"v=spf1 -all", "fleetmesh=wss://a.example.org", "fleetmesh=" + someNode + "@wss://b.example.org", "fleetmesh=nonsense"}}
	seeds, err := dnsSeeds(t.Context(), r, []string{"gone.example.org", "seed.example.org"})
	if len(seeds) != 2 || identity.FormatDID(seeds[1].Node) != someNode || err == nil || !strings.Contains(err.Error(), "gone.example.org") {
		t.Errorf("%+v, %v", seeds, err)
	}
	many := make([]string, 200)
	for i := range many {
		many[i] = "fleetmesh=wss://a.example.org"
	}
	if seeds, err := dnsSeeds(t.Context(), fakeTXT{"x": many}, []string{"x"}); err != nil || len(seeds) != maxDNSSeeds {
		t.Errorf("%d seeds of one name, %v", len(seeds), err)
	}
}

func TestKnownNodes(t *testing.T) {
	path := filepath.Join(t.TempDir(), "known.json")
	k, err := openKnown(path, quiet())
	if err != nil {
		t.Fatal(err)
	}
	node := nostr.SecretKey{31: 3}.PubKey()
	d := &identity.Descriptor{Subject: node, CreatedAt: 100, Expiration: 1000, Class: "edge", Endpoints: []identity.Endpoint{{Scheme: "wss", Address: "wss://old.example.org"}}}
	e := &nostr.Event{ID: nostr.ID{1}}
	if !k.learn(d, e, "relay wss://r", 110) || k.learn(d, e, "this relay", 111) {
		t.Error("a descriptor is news once")
	}
	older := &identity.Descriptor{Subject: node, CreatedAt: 50, Expiration: 900}
	if k.learn(older, &nostr.Event{ID: nostr.ID{2}}, "peer x", 112) {
		t.Error("an older descriptor took the place of a newer")
	}
	moved := *d
	moved.CreatedAt, moved.Endpoints = 200, []identity.Endpoint{{Scheme: "wss", Address: "wss://new.example.org"}}
	if !k.learn(&moved, &nostr.Event{ID: nostr.ID{3}}, "peer x", 210) {
		t.Error("a newer descriptor is no news")
	}
	list := k.list(220)
	if len(list) != 1 || list[0].From != "relay wss://r" || list[0].Endpoints[0].Address != "wss://new.example.org" || !list[0].Live || len(k.descriptors(10, 220)) != 1 {
		t.Errorf("%+v", list)
	}
	if len(k.descriptors(10, 1000)) != 0 || k.list(1000)[0].Live {
		t.Error("an expired descriptor is told of")
	}
	if !k.revoke(&identity.Revocation{Subject: node, At: 230, Reason: "retired"}, "relay wss://r", 231) || k.revoke(&identity.Revocation{Subject: node, At: 230}, "x", 232) {
		t.Error("a revocation is news once")
	}
	k.save()
	again, err := openKnown(path, quiet())
	if err != nil || !again.revoked(node) || again.list(240)[0].Live || len(again.descriptors(10, 240)) != 0 {
		t.Errorf("after a restart: %v", err)
	}
	for i := range maxKnown + 5 {
		key := nostr.PubKey{9, byte(i), byte(i >> 8)}
		k.learn(&identity.Descriptor{Subject: key, CreatedAt: 1, Expiration: int64(i)}, &nostr.Event{ID: nostr.ID{9, byte(i), byte(i >> 8)}}, "relay x", 1)
	}
	if n := len(k.list(1)); n != maxKnown || !k.revoked(node) {
		t.Errorf("%d are known; the revoked one is remembered: %v", n, k.revoked(node))
	}
}

func TestInvitationIsGoodOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "invitations.json")
	v, err := openInvitations(path)
	if err != nil {
		t.Fatal(err)
	}
	one, two := nostr.SecretKey{31: 3}.PubKey(), nostr.SecretKey{31: 4}.PubKey()
	for _, id := range []string{"used", "late", "revoked"} {
		if err := v.add(Invitation{ID: id, Created: 100, Expires: 200}); err != nil {
			t.Fatal(err)
		}
	}
	if v.redeem("nobody's", one, 150) || v.redeem("late", one, 200) {
		t.Error("an invitation that is not good was redeemed")
	}
	if !v.redeem("used", one, 150) || v.redeem("used", two, 151) || !v.redeem("used", one, 500) {
		t.Error("an invitation belongs to the first who shows it, and to nobody else")
	}
	if ok, err := v.revoke("revoked", 160); !ok || err != nil || v.redeem("revoked", one, 161) {
		t.Error("a revoked invitation was redeemed")
	}
	if ok, _ := v.revoke("nobody's", 160); ok {
		t.Error("what is not there was revoked")
	}
	again, err := openInvitations(path)
	if err != nil || again.redeem("used", two, 152) {
		t.Errorf("after a restart: %v", err)
	}
	states := map[string]string{}
	for _, i := range again.all(300) {
		states[i.ID] = i.State
	}
	if states["used"] != "used" || states["late"] != "expired" || states["revoked"] != "revoked" {
		t.Errorf("%v", states)
	}
}

func TestInvitationThatCannotBeWrittenIsNotRedeemed(t *testing.T) {
	v := &invitations{path: filepath.Join(t.TempDir(), "gone", "invitations.json"), list: []*Invitation{{ID: "x", Expires: 200}}}
	if v.redeem("x", nostr.SecretKey{31: 3}.PubKey(), 100) || v.list[0].UsedBy != "" {
		t.Error("an invitation was redeemed, and a restart would redeem it again")
	}
	if err := v.add(Invitation{ID: "y", Created: 100, Expires: 200}); err == nil || len(v.list) != 1 {
		t.Errorf("an invitation that is not on disk was given out: %v", err)
	}
	if _, err := v.revoke("x", 100); err == nil || v.list[0].Revoked != 0 {
		t.Errorf("a revocation that is not on disk was told of as done: %v", err)
	}
}

func TestOutboxSendsEachOnceAndRevocationsFirst(t *testing.T) {
	o := newOutbox()
	at := time.Unix(1_800_000_000, 0)
	o.put(&nostr.Event{ID: nostr.ID{1}, Kind: 11801, CreatedAt: at.Unix()})
	o.put(&nostr.Event{ID: nostr.ID{2}, Kind: 11802, CreatedAt: at.Unix() + 5})
	o.put(&nostr.Event{ID: nostr.ID{3}, Kind: 21801, CreatedAt: at.Unix() - 3600})
	list, more := o.pending(map[nostr.ID]bool{}, at)
	if len(list) != 2 || list[0].Kind != 11802 {
		t.Errorf("%d pending, the first of kind %d", len(list), list[0].Kind)
	}
	o.put(&nostr.Event{ID: nostr.ID{4}, Kind: 11801, CreatedAt: at.Unix() + 9})
	select {
	case <-more:
	default:
		t.Error("a newer descriptor was not announced")
	}
	if list, _ = o.pending(map[nostr.ID]bool{{2}: true}, at); len(list) != 1 || list[0].ID != (nostr.ID{4}) {
		t.Errorf("then %d pending", len(list))
	}
}

func TestNetworkOf(t *testing.T) {
	for address, want := range map[string]string{"wss://relay.example.org": "clearnet", "ws://abc.onion:80": "tor", "ws://x.i2p": "i2p"} {
		if got := networkOf(address); got != want {
			t.Errorf("%s is on %s", address, got)
		}
	}
}

func FuzzReadInvitation(f *testing.F) {
	f.Add("didcomm://invite?_oob=eyJpZCI6IjEiLCJ0eXBlIjoiaHR0cHM6Ly9kaWRjb21tLm9yZy9vdXQtb2YtYmFuZC8yLjAvaW52aXRhdGlvbiIsImZyb20iOiIifQ")
	f.Add("https://example.org/?_oob=e30")
	f.Fuzz(func(t *testing.T, link string) {
		if i, err := ReadInvitation(link, time.Unix(1_800_000_000, 0)); err == nil {
			if _, err := identity.ParseDID(i.DID); err != nil {
				t.Errorf("an invitation from %q", i.DID)
			}
		}
	})
}

func TestHeartbeatThatContradictsMakesUsLook(t *testing.T) {
	k, err := openKnown(filepath.Join(t.TempDir(), "known.json"), quiet())
	if err != nil {
		t.Fatal(err)
	}
	node := nostr.SecretKey{31: 3}.PubKey()
	at := []identity.Endpoint{{Scheme: "wss", Address: "wss://old.example.org"}}
	e := &nostr.Event{ID: nostr.ID{1}}
	k.learn(&identity.Descriptor{Subject: node, CreatedAt: 100, Expiration: 1 << 40, Endpoints: at}, e, "relay x", 110)
	now := int64(10_000)
	if d, seek := k.heard(&identity.Heartbeat{Subject: node, Endpoints: identity.EndpointsDigest(at)}, now); d != e || seek {
		t.Error("a heartbeat that agrees makes us look")
	}
	moved := &identity.Heartbeat{Subject: node, Endpoints: identity.EndpointsDigest(nil)}
	if _, seek := k.heard(moved, now); !seek {
		t.Error("a heartbeat of changed doors does not")
	}
	if _, seek := k.heard(moved, now+1); seek {
		t.Error("every heartbeat makes us look")
	}
	if d, _ := k.heard(&identity.Heartbeat{Subject: nostr.PubKey{7}}, now); d != nil {
		t.Error("a heartbeat of nobody known")
	}
	if k.list(now)[0].Heard != now+1 {
		t.Errorf("last heard at %d", k.list(now)[0].Heard)
	}
}
