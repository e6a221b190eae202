package relay_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"

	"fleetmesh.org/fleetmesh/internal/relay"
	"fleetmesh.org/fleetmesh/internal/relay/relaytest"
	"fleetmesh.org/fleetmesh/nostr"
)

// seeds are messages that the frame fuzzer starts from.
func seeds() []string {
	e := relaytest.Event(relaytest.A, relaytest.T0, 1, []nostr.Tag{{"t", "x"}, {"p", relaytest.B.PubKey().String()}}, "seed")
	k := e.PubKey.String()
	return []string{
		`["EVENT",` + string(e.JSON()) + `]`,
		`["AUTH",` + string(e.JSON()) + `]`,
		`["REQ","s",{"kinds":[1],"limit":5}]`,
		`["REQ","r",{"authors":["` + k + `"],"#t":["x","y"],"since":1,"until":2000000000},{"ids":["` + e.ID.String() + `"]}]`,
		`["COUNT","c",{"#p":["` + k + `"]}]`,
		`["CLOSE","s"]`,
		`["NEG-OPEN","n",{"kinds":[1]},"6100000200"]`,
		`["NEG-OPEN","n",{},"61000001503d8e35c22381eaca224051d3239a8a"]`,
		`["NEG-MSG","n","6100000100000000000000000000000000000000"]`,
		`["NEG-CLOSE","n"]`,
		`["REQ","q",{"search":"seed key:value","limit":0}]`,
	}
}

// mutate changes a text here and there; what it makes stays valid UTF-8.
func mutate(rng *rand.Rand, s string) string {
	b := []byte(s)
	for range rng.IntN(4) {
		if len(b) == 0 {
			break
		}
		i := rng.IntN(len(b))
		switch rng.IntN(6) {
		case 0:
			b[i] = byte(rng.IntN(128))
		case 1:
			b = append(b[:i], b[i+1:]...)
		case 2:
			b = append(b[:i], append([]byte{`[]{}",:\0`[rng.IntN(9)]}, b[i:]...)...)
		case 3:
			b = b[:i]
		case 4:
			j := rng.IntN(len(b))
			b[i], b[j] = b[j], b[i]
		case 5:
			b = append(b, b[i:]...)
		}
	}
	return strings.ToValidUTF8(string(b), "?")
}

// frames appends n fuzzed frames: mutated messages, now and then in fragments, with pings and pongs between.
func frames(rng *rand.Rand, seeds []string, n int) []byte {
	var out []byte
	for range n {
		text := []byte(mutate(rng, seeds[rng.IntN(len(seeds))]))
		switch rng.IntN(20) {
		case 0:
			out = relaytest.AppendFrame(out, true, opPing, text[:min(len(text), 125)])
		case 1:
			out = relaytest.AppendFrame(out, true, opPong, nil)
		case 2:
			out = relaytest.AppendFrame(out, true, opBinary, text)
		case 3:
			i := rng.IntN(len(text) + 1)
			out = relaytest.AppendFrame(out, false, opText, text[:i])
			out = relaytest.AppendFrame(out, true, opPing, nil)
			out = relaytest.AppendFrame(out, true, opContinuation, text[i:])
		default:
			out = relaytest.AppendFrame(out, true, opText, text)
		}
	}
	return out
}

// TestMillionFrames sends 1,000,000 fuzzed frames on one connection, which still answers afterwards.
func TestMillionFrames(t *testing.T) {
	total := 1_000_000
	if testing.Short() {
		total = 50_000
	}
	r := relaytest.Start(t, memory(t))
	c := r.Dial(t)
	c.Alive()
	const chunk = 1000
	rng := rand.New(rand.NewPCG(1, 2))
	seeds := seeds()
	var writing sync.WaitGroup
	writing.Go(func() {
		for range total / chunk {
			c.Raw(frames(rng, seeds, chunk))
		}
		c.Raw(relaytest.AppendFrame(nil, true, opText, []byte(`["REQ","the end",{"limit":1}]`)))
	})
	answered := 0
	for done := false; !done; answered++ {
		m, err := c.Read()
		if err != nil {
			t.Fatalf("after %d answers: %v", answered, err)
		}
		done = m.Label() == "EOSE" && m.String(1) == "the end"
	}
	writing.Wait()
	t.Logf("%d frames sent, %d messages answered, %s", total, answered, summary(r.Metrics()))
	c.Alive()
	r.Dial(t).Alive()
}

func summary(s relay.Snapshot) string {
	return fmt.Sprintf("%d messages, %d events in, %d stored, %d REQ, %d COUNT, %d NEG-OPEN, %d NOTICE", s.Messages, s.EventsIn, s.Stored, s.Requests, s.Counts, s.NegOpens, s.Notices)
}
