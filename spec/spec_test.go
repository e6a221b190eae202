package spec

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
)

// A field that the file has and the struct lacks is refused on decoding; one
// that the struct has and the file lacks, or that decodes to something else,
// shows as a different canonical form here.
func TestFilesAndStructsAgree(t *testing.T) {
	for _, f := range []struct {
		name string
		text []byte
		v    any
	}{
		{"constants.json", constantsJSON, C()},
		{"kinds.json", kindsJSON, kinds()},
		{"messages.json", messagesJSON, Messages()},
	} {
		want, err := Canonical(f.text)
		if err != nil {
			t.Fatalf("%s: %v", f.name, err)
		}
		b, err := json.Marshal(f.v)
		if err != nil {
			t.Fatalf("%s: %v", f.name, err)
		}
		got, err := Canonical(b)
		if err != nil {
			t.Fatalf("%s: %v", f.name, err)
		}
		if !bytes.Equal(got, want) {
			n := 0
			for n < min(len(got), len(want)) && got[n] == want[n] {
				n++
			}
			t.Errorf("%s: the file and its struct differ\nfile   …%.80s\nstruct …%.80s", f.name, want[max(0, n-20):], got[max(0, n-20):])
		}
	}
}

func TestConstants(t *testing.T) {
	c := C()
	for _, x := range []struct {
		name      string
		got, want any
	}{
		{"protocol", c.Protocol.Name, ProtocolName},
		{"base", c.Protocol.PIURIBase, PIURIBase},
		{"topic", c.Protocol.AnnounceTopic, AnnounceTopic},
		{"stream", c.Protocol.StreamProtocol, StreamProtocol},
		{"alpn", c.Protocol.ALPN, ALPN},
		{"subprotocol", c.Protocol.WebSocketSubprotocol, WebSocketSubprotocol},
		{"media type", c.Protocol.EncryptedMediaType, EncryptedMediaType},
		{"depth", c.Canonical.MaxDepth, maxCanonicalDepth},
		{"integer", c.Canonical.MaxInteger, int64(maxExactInteger)},
		{"member events", c.Ceiling(LimitEventsIn, TierMember), int64(3000)},
		{"member events open", c.Open(LimitEventsIn, TierMember), int64(750)},
		{"probation events open", c.Open(LimitEventsIn, TierProbation), int64(187)},
		{"blobs open", c.Open(LimitBlobBytes, TierAnchor), int64(0)},
		{"errors open", c.Open(LimitErrors, TierTrusted), int64(160)},
		{"revoked", c.Ceiling(LimitReq, TierRevoked), int64(0)},
		{"conn_rate counter", c.CounterOf(LimitConnRate), CounterConnOpen},
		{"req counter", c.CounterOf(LimitReq), CounterReq},
		{"weight", c.Weight(TierTrusted), R(3, 5)},
		{"weight of revoked", c.Weight(TierRevoked), R(0, 1)},
		{"rank", c.TierRank(TierAnchor), 3},
		{"S1 from", c.Schedule[0].OverrunThreshold(), R(1, 10)},
		{"S2 from", c.Schedule[1].OverrunThreshold(), R(1, 1)},
		{"S3 from", c.Schedule[2].OverrunThreshold(), R(4, 1)},
		{"never", c.Boundary.Never(24133), true},
		{"may", c.Boundary.Never(1), false},
	} {
		if x.got != x.want {
			t.Errorf("%s: got %v, want %v", x.name, x.got, x.want)
		}
	}
	for _, l := range c.Limits {
		for i := 1; i < len(c.Tiers); i++ {
			if l.Ceiling[c.Tiers[i].Name] < l.Ceiling[c.Tiers[i-1].Name] {
				t.Errorf("%s: the ceiling falls from %s to %s", l.Name, c.Tiers[i-1].Name, c.Tiers[i].Name)
			}
		}
	}
}

func TestKindsAreOfTheirRange(t *testing.T) {
	last := 0
	for _, k := range Kinds() {
		if int(k.Kind) <= last {
			t.Errorf("kind %d: not ascending", k.Kind)
		}
		last = int(k.Kind)
		want := map[int]string{1: "replaceable", 2: "ephemeral", 3: "addressable"}[int(k.Kind)/10000]
		if k.Class != want {
			t.Errorf("kind %d: class %s, want %s", k.Kind, k.Class, want)
		}
		names := map[string]bool{}
		for _, tag := range slices.Concat(k.Required, k.Optional) {
			if names[tag.Name] {
				t.Errorf("kind %d: tag %s twice", k.Kind, tag.Name)
			}
			names[tag.Name] = true
		}
		if (k.Content == ContentJSON || k.Content == ContentNIP44) != (k.ContentSchema != nil) {
			t.Errorf("kind %d: content %s and its schema do not agree", k.Kind, k.Content)
		}
		if k.Class == "addressable" && !names["d"] {
			t.Errorf("kind %d: addressable without d", k.Kind)
		}
	}
}

func TestMessageTypes(t *testing.T) {
	all := []MessageType{
		MsgPeeringPropose, MsgPeeringAccept, MsgPeeringDecline, MsgPeeringAmend, MsgPeeringEnd, MsgPeeringPeersQuery, MsgPeeringPeers,
		MsgBudgetReceipt, MsgBudgetReceiptAck, MsgBudgetClose,
		MsgSyncOpen, MsgSyncFrame, MsgSyncWant, MsgSyncDeliver, MsgSyncDelivered, MsgSyncDone, MsgSyncRefuse,
		MsgComplaintNotice, MsgComplaintResponse, MsgComplaintWithdrawn,
		MsgStandingQuery, MsgStandingAnswer, MsgStandingDecline,
		MsgComputeQuote, MsgComputeAccept, MsgComputeProgress, MsgComputeSealed, MsgComputeSettled, MsgComputeResult, MsgComputeRefuse,
		MsgCompute11StreamOpen, MsgCompute11Chunk, MsgCompute11StreamClose,
		MsgGossipGraft, MsgGossipPrune, MsgGossipPublish, MsgGossipIhave, MsgGossipIwant,
	}
	var listed []MessageType
	for _, p := range Messages().Protocols {
		if p.PIURI != PIURIBase+p.Name+"/"+p.Version {
			t.Errorf("%s: identifier, name and version do not agree", p.PIURI)
		}
		if p.Required != slices.Contains(C().Protocol.Required, p.PIURI) {
			t.Errorf("%s: required here and in constants.json do not agree", p.PIURI)
		}
		for _, c := range p.Codes {
			if !c.Known() {
				t.Errorf("%s: code %s is not in the list", p.PIURI, c)
			}
		}
		for _, m := range p.Messages {
			listed = append(listed, p.Type(m.Name))
			for _, r := range m.Replies {
				if _, ok := p.Message(r); !ok {
					t.Errorf("%s: reply %s is no message of the protocol", p.Type(m.Name), r)
				}
			}
			for _, c := range m.Counts {
				if !slices.Contains(C().Counters, c) {
					t.Errorf("%s: no counter %s", p.Type(m.Name), c)
				}
			}
		}
	}
	slices.Sort(all)
	slices.Sort(listed)
	if !slices.Equal(all, listed) {
		t.Errorf("constants and messages.json differ:\n%v\n%v", all, listed)
	}
	if _, m, ok := LookupMessage(MsgSyncDeliver); !ok || m.Attachment == nil {
		t.Error("deliver carries no envelope")
	}
	for _, bad := range []MessageType{"", "propose", MsgForward, "https://fleetmesh.org/peering/1.0/", "https://fleetmesh.org/peering/2.0/propose"} {
		if _, _, ok := LookupMessage(bad); ok {
			t.Errorf("%q was found", bad)
		}
	}
}

func TestCodes(t *testing.T) {
	prefixes := []string{"duplicate", "pow", "blocked", "rate-limited", "invalid", "restricted", "mute", "error", "auth-required", "unsupported"}
	codes, problems := map[Code]bool{}, map[string]bool{}
	for _, r := range Refusals() {
		if codes[r.Code] || problems[r.Problem] {
			t.Errorf("%s: the code or its problem report is not unique", r.Code)
		}
		codes[r.Code], problems[r.Problem] = true, true
		if !slices.Contains(prefixes, r.Prefix) {
			t.Errorf("%s: prefix %q is not a NIP-01 or NIP-42 one", r.Code, r.Prefix)
		}
		if !strings.HasPrefix(r.Problem, "e.p.") || r.HTTP < 400 || r.HTTP > 599 || r.Meaning == "" {
			t.Errorf("%s: incomplete row %+v", r.Code, r)
		}
		if r.Exit < ExitOK || r.Exit > ExitUnreachable || r.Exit == ExitUsage || r.Exit == ExitOK && r.Code != CodeDuplicate {
			t.Errorf("%s: exit code %d", r.Code, r.Exit)
		}
		if r.Code.Refusal() != r || !r.Code.Known() {
			t.Errorf("%s: the lookup finds another row", r.Code)
		}
		if c, ok := CodeOfProblem(r.Problem); !ok || c != r.Code {
			t.Errorf("%s: problem report leads to %s", r.Code, c)
		}
	}
	if r := Code("NEWER").Refusal(); r.Code != "NEWER" || r.Prefix != "error" || Code("NEWER").Known() {
		t.Errorf("an unknown code reads as %+v", r)
	}
	if got := CodeOverBudget.Reason("try in 60 s"); got != "rate-limited: try in 60 s" {
		t.Errorf("reason %q", got)
	}
}
