package host

import (
	"encoding/hex"
	"encoding/json"

	"fleetmesh.org/fleetmesh/internal/identity"
	"fleetmesh.org/fleetmesh/internal/ledger"
	"fleetmesh.org/fleetmesh/internal/mesh"
	"fleetmesh.org/fleetmesh/nostr"
	"fleetmesh.org/fleetmesh/spec"
)

// tamper makes a node misbehave. Nothing that ships sets one: tests do, and programs built with the tag rogue, which are for tests alone.
type tamper struct {
	silent bool                // sends no receipt
	lies   bool                // counts half of what it sends, and does not believe what the issuer counted
	boasts bool                // counts twice what it sends
	forks  bool                // signs two receipts for each place of its chain, and sends both
	forges bool                // puts another node's name before its own on what it delivers
	copies int                 // how often it delivers the same few events; 0: once, and all there is
	grant  func(*ledger.Grant) // changes what it believes to be granted
	plain  bool                // does not say that it reads what is compressed, like a program that knows nothing of it
	batch  int                 // octets of envelopes in a deliver that was not asked for; 0: as agreed
}

// tampered is the tamper of a program that was built to misbehave.
var tampered *tamper

// withholds reports whether a message stays here.
func (t *tamper) withholds(s mesh.Send) bool {
	_, ok := s.Body.(*ledger.Receipt)
	return t != nil && ok && t.silent
}

// reads reports whether a node says that it reads compressed envelopes.
func (t *tamper) reads() bool { return t == nil || !t.plain }

// believes changes a grant that came.
func (t *tamper) believes(g *ledger.Grant) {
	if t != nil && t.grant != nil {
		t.grant(g)
	}
}

// counts changes what a node's own books hear of a message.
func (t *tamper) counts(in mesh.Sending) mesh.Sending {
	if t != nil && t.lies {
		in.Octets, in.Envelopes = in.Octets/2, in.Envelopes/2
	}
	if t != nil && t.boasts {
		in.Octets, in.Envelopes = in.Octets*2, in.Envelopes*2
	}
	return in
}

// other is the second receipt for the place of the one that is being sent, nil for whoever signs but one.
func (t *tamper) other(s mesh.Send, a identity.Agent) *mesh.Send {
	r, ok := s.Body.(*ledger.Receipt)
	if t == nil || !t.forks || !ok {
		return nil
	}
	second := *r
	second.Counters = r.Counters.Clone()
	second.Counters[spec.CounterBytesIn]++
	sig, err := a.Sign(second.Link())
	if err != nil {
		return nil
	}
	second.Sig = sig
	s.ID, s.Body, s.Durable = newID(), &second, false
	return &s
}

// passes changes what is delivered: as if another node, which signed nothing, had passed it on to us.
func (t *tamper) passes(a identity.Agent, list []*ledger.Envelope, at int64) {
	if t == nil || !t.forges {
		return
	}
	for _, e := range list {
		sig, err := a.Sign(ledger.HopMessage(e.Event.ID, "", at))
		if err != nil {
			continue
		}
		e.Path = []ledger.Hop{{Node: nostr.SecretKey{31: 200}.PubKey(), At: at, Sig: sig}}
		if err := e.SignHop(a, at); err != nil {
			e.Path = nil // nothing of ours then
		}
	}
}

// repeats is what is brought of what the peer lacks.
func (t *tamper) repeats(have []nostr.ID) []nostr.ID {
	if t == nil || t.copies == 0 {
		return have
	}
	few := have[:min(len(have), 40)]
	var out []nostr.ID
	for range t.copies {
		out = append(out, few...)
	}
	return out
}

// hears changes what mesh is told of a message.
func (t *tamper) hears(in mesh.Received) mesh.Received {
	if t == nil || !t.lies || in.Type != spec.MsgBudgetReceiptAck {
		return in
	}
	var ack map[string]json.RawMessage
	if json.Unmarshal(in.Body, &ack) == nil {
		delete(ack, "measured")
		in.Body, _ = json.Marshal(ack) // what was decoded encodes
	}
	return in
}

// pushes is how many octets of envelopes go into one deliver.
func (t *tamper) pushes() int {
	if t != nil && t.batch > 0 {
		return t.batch
	}
	return pushBytes
}

// trusts is how many events a node takes the peer to have lacked before it brought any: a greedy one does not start slowly.
func (t *tamper) trusts() int {
	if t != nil && (t.batch > 0 || t.copies > 0) {
		return 100 * proven // and a few duplicates are no reason to wait
	}
	return 0
}

// greed is a node that takes its grants for ten times what they are, and spends them in one message.
func greed() *tamper {
	return &tamper{batch: 2 << 20, grant: func(g *ledger.Grant) {
		for n := range g.Limits {
			g.Limits[n] *= 10
		}
	}}
}

// pretends makes the node's own conscience believe that a receipt which stayed here was acknowledged: it would not use the grant again before.
func (t *tamper) pretends(s mesh.Send) mesh.Input {
	r, ok := s.Body.(*ledger.Receipt)
	if !ok {
		return nil
	}
	head := r.Link()
	body, err := json.Marshal(map[string]any{"head": hex.EncodeToString(head[:]), "status": ledger.Final, "grant": r.Grant, "window": r.Window, "seq": r.Seq})
	if err != nil {
		return nil
	}
	return mesh.Received{From: s.To, Type: spec.MsgBudgetReceiptAck, Thread: s.Thread, Created: Now().Unix(), Body: body}
}
