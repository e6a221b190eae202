package identity

import (
	"bytes"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"fleetmesh.org/fleetmesh/nostr"
	"fleetmesh.org/fleetmesh/spec"
)

func TestNewKeysAreIndependent(t *testing.T) {
	a, err := NewKeys(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	d, err := DeriveKeys(a.Node, 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	if d.Agreement == a.Agreement || d.Transport == a.Transport || [32]byte(d.Agreement) == [32]byte(d.Transport) {
		t.Fatal("keys depend on each other")
	}
	if !x25519OK(a.Agreement.Public()) || !ed25519OK(a.Transport.Public()) || !OnCurve(a.Node.PubKey()) {
		t.Fatal("a fresh key is no point of its curve")
	}
	if _, err := NewKeys(bytes.NewReader(make([]byte, 40))); err == nil {
		t.Fatal("keys from a source that ran dry")
	}
}

func TestNoVerbPrintsASecret(t *testing.T) {
	k := vectorKeys("one")
	var raw []string
	for _, b := range [][32]byte{k.Node, k.Agreement, k.Transport} {
		raw = append(raw, hex.EncodeToString(b[:4]), fmt.Sprint(b[:3])[1:11], fmt.Sprintf("%#v", b[:2])[7:16])
	}
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q"} {
		for _, v := range []any{k, *k, k.Agreement, k.Transport, agentOf(t, "one")} {
			text := fmt.Sprintf(verb, v)
			for _, secret := range raw {
				if strings.Contains(text, secret) {
					t.Errorf("%s of %T prints a secret: %s", verb, v, text)
				}
			}
		}
	}
}

func TestSharedXIsTheSameFromBothEnds(t *testing.T) {
	a, b := agentOf(t, "one"), agentOf(t, "two")
	x, err1 := a.SharedX(b.PubKey())
	y, err2 := b.SharedX(a.PubKey())
	if err1 != nil || err2 != nil || x != y || x == [32]byte{} {
		t.Fatal(x, y, err1, err2)
	}
	if _, err := a.SharedX(nostr.PubKey{31: 5}); CodeOf(err) != OffCurve {
		t.Fatal(err)
	}
}

func TestSmallOrderTransportKeys(t *testing.T) {
	// y = -1 has order two, y = 0 order four; both signs where x is not zero.
	minusOne := [32]byte{0: 0xec, 31: 0x7f}
	for i := 1; i < 31; i++ {
		minusOne[i] = 0xff
	}
	for _, k := range [][32]byte{minusOne, {}, {31: 0x80}, {0: 1}, {0: 1, 31: 0x80}} {
		if ed25519OK(k) {
			t.Errorf("%x passes", k)
		}
	}
	tooBig := minusOne
	tooBig[0] = 0xed // y = p
	if ed25519OK(tooBig) {
		t.Error("a y that is not reduced passes")
	}
}

func TestMineResumes(t *testing.T) {
	const bits = 10
	whole := anchorDescriptor("one").Event()
	_, done, err := Mine(whole, bits, 0, 1<<20)
	if err != nil || !done {
		t.Fatal(done, err)
	}
	pieces := anchorDescriptor("one").Event()
	before := len(pieces.Tags)
	for next := uint64(0); ; {
		if next, done, err = Mine(pieces, bits, next, 7); err != nil {
			t.Fatal(err)
		}
		if done {
			break
		}
		if len(pieces.Tags) != before {
			t.Fatal("an unfinished step changed the event")
		}
	}
	if pieces.ID != whole.ID {
		t.Fatal("pieces find another nonce than the whole")
	}
	if nostr.PoWDifficulty(pieces.ID) < bits || pieces.ComputeID() != pieces.ID {
		t.Fatal("the work is not done")
	}
	if _, err := CheckDescriptor(signed(t, "one", pieces), Rules{Now: vectorNow, PoWBits: bits}); err != nil {
		t.Fatal(err)
	}
}

func TestMineIsNotMisledByContent(t *testing.T) {
	e := anchorDescriptor("one").Event()
	e.Content = `["nonce","0","6"]],"` // looks like the tag, but escaped
	e.Tags = append(e.Tags, nostr.Tag{"x", `["nonce","0","6"]`})
	if _, done, err := Mine(e, 6, 0, 1<<16); !done || err != nil {
		t.Fatal(done, err)
	}
}

func TestRotationOverlap(t *testing.T) {
	d := anchorDescriptor("one")
	old, fresh := d.Agreement[0], BoundKey{Key: vectorKeys("fresh").Agreement.Public()}
	d.Agreement = []BoundKey{fresh, old}
	if k, _ := d.AgreementAt(vectorNow); k != fresh.Key {
		t.Fatal("peers should write to the new key")
	}
	doc := NodeDocument(d, vectorNow)
	if len(doc.KeyAgreement) != 2 || len(NodeDocument(d, old.Expires).KeyAgreement) != 1 {
		t.Fatal("both keys during the overlap, one after", doc.KeyAgreement)
	}
	if len(NodeDocument(d, d.Expiration).KeyAgreement) != 0 {
		t.Fatal("an expired descriptor resolved as live")
	}
}

func TestVersions(t *testing.T) {
	d := anchorDescriptor("one")
	d.Protocols = append(d.Protocols, "https://fleetmesh.org/compute/1.1", "https://fleetmesh.org/compute/2.0")
	for _, c := range []struct {
		want string
		ok   bool
	}{{"sync/1.0", true}, {"sync/1.1", false}, {"compute/1.0", true}, {"compute/1.1", true}, {"compute/2.0", true}, {"compute/3.0", false}, {"gossip/1.0", false}, {"sync/01.0", false}} {
		if _, ok := d.Speaks(c.want); ok != c.ok {
			t.Errorf("%s: %v", c.want, ok)
		}
	}
}

func TestMediatorsOfDistinctOperators(t *testing.T) {
	a, b, c := anchorDescriptor("one"), anchorDescriptor("two"), anchorDescriptor("three")
	b.Operator = a.Operator
	got := ChooseMediators([]*Descriptor{a, b, c}, 2)
	if len(got) != 2 || got[0] != a || got[1] != c {
		t.Fatal(got)
	}
	c.Operator = nostr.PubKey{}
	if len(ChooseMediators([]*Descriptor{a, b, c}, 2)) != 1 || DistinctOperators(a, c) {
		t.Fatal("a node that declares no operator is independent of nobody")
	}
	c.Operator = a.Subject // the operator key is the other node's key
	if DistinctOperators(a, c) {
		t.Fatal("shadow node")
	}
	if i := Compare(a, anchorDescriptor("four"), map[nostr.PubKey]uint32{a.Subject: 64500}, ""); !i.Operators || i.ASNs != nil {
		t.Fatal("an unmeasured layer was claimed", i)
	}
}

func TestCoverageClaims(t *testing.T) {
	for _, c := range []struct {
		class    spec.Class
		what     string
		meshOnly bool
		code     Code
	}{{spec.ClassAnchor, Asserted, false, ""}, {spec.ClassAnchor, Asserted, true, MeshOnly}, {spec.ClassEdge, BestEffort, true, ""}, {spec.ClassLeaf, BestEffort, false, LeafCoverage}} {
		if err := MayClaim(c.class, c.what, c.meshOnly); CodeOf(err) != c.code {
			t.Errorf("%v: %v", c, err)
		}
	}
}

func TestFaceStatus(t *testing.T) {
	e := FaceStatus(anchorDescriptor("one"), Face{Endpoint: "wss://relay.example.org", Network: "clearnet", NIPs: []int{77, 1, 11, 1}, PoW: true, Shards: []string{"bristol"}, Info: "{}"}, vectorNow)
	got, _ := json.Marshal(e.Tags)
	want := `[["d","wss://relay.example.org"],["n","clearnet"],["N","1"],["N","11"],["N","77"],["R","!auth"],["R","!payment"],["R","!writes"],["R","pow"],["t","bristol"],["expiration","1787604800"]]`
	if string(got) != want || e.Content != "{}" {
		t.Fatal(string(got))
	}
}

func TestBindTransport(t *testing.T) {
	d := anchorDescriptor("one")
	if d.RefreshAt() <= d.CreatedAt || d.RefreshAt() >= d.Expiration {
		t.Fatal(d.RefreshAt())
	}
	if err := d.BindTransport(d.Transport[0], vectorNow); err != nil {
		t.Fatal(err)
	}
	if err := d.BindTransport(vectorKeys("two").Transport.Public(), vectorNow); CodeOf(err) != UnknownWire {
		t.Fatal(err)
	}
}

func TestBase58RoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := rapid.SliceOfN(rapid.Byte(), 0, 60).Draw(t, "b")
		got, err := decodeBase58(encodeBase58(b), maxBase58Key)
		if err != nil || !bytes.Equal(got, b) {
			t.Fatalf("%x comes back as %x, %v", b, got, err)
		}
	})
}

// FuzzDescriptor takes tags alone: the id is made to fit, since a hash cannot be guessed.
func FuzzDescriptor(f *testing.F) {
	for _, d := range []*Descriptor{anchorDescriptor("one"), leafDescriptor("leaf")} {
		text, err := json.Marshal(d.Event().Tags)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text, "about")
	}
	author := pubOf("one")
	f.Fuzz(func(t *testing.T, tags []byte, content string) {
		e := &nostr.Event{PubKey: author, CreatedAt: 1787000000, Kind: spec.KindDescriptor, Content: content}
		if json.Unmarshal(tags, &e.Tags) != nil {
			return
		}
		if d, err := ParseDescriptor(e); err == nil {
			again, err := ParseDescriptor(d.Event())
			if err != nil {
				t.Fatalf("%v: what was read cannot be written: %s", err, tags)
			}
			if EndpointsDigest(again.Endpoints) != EndpointsDigest(d.Endpoints) {
				t.Fatal("endpoints changed")
			}
			_ = NodeDocument(d, vectorNow)
		} else if CodeOf(err) == "" {
			t.Fatalf("no code: %v", err)
		}
		for _, k := range []nostr.Kind{spec.KindHeartbeat, spec.KindCoverage, spec.KindGossipRoster, spec.KindRevocation} {
			e.Kind = k
			_, _ = ParseHeartbeat(e)
			_, _ = ParseCoverage(e)
			_, _ = ParseRoster(e)
			_, _ = CheckRevocation(e, nil, true)
		}
	})
}

func FuzzIdentifiers(f *testing.F) {
	k := vectorKeys("one")
	p2, _ := NewDIDPeer2(k.Transport.Public(), k.Agreement.Public(), "wss://x.example.org", nil)
	p4, _ := NewDIDPeer4(MinimalDocument(k.Node.PubKey()))
	for _, s := range []string{p2, p4, FormatDID(k.Node.PubKey()) + "#agree", NodeMultikey(k.Node.PubKey()), "did:key:z6MkiTBz1ymuepAQ4HEHYSF1H8quG5GLVVQR3djdX3mDooWp"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		_, _, _ = ParseDIDURL(s)
		_, _ = ParseDIDPeer(s)
		if m, err := ParseDIDKey(s); err == nil {
			if again, err := ParseDIDKey(FormatDIDKey(m)); err != nil || again.Curve != m.Curve || !bytes.Equal(again.Key, m.Key) {
				t.Fatal(s, err)
			}
		}
	})
}
