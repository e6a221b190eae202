package host

import (
	"slices"
	"strings"
	"time"

	"fleetmesh.org/fleetmesh/internal/didcomm"
	"fleetmesh.org/fleetmesh/internal/mesh"
	"fleetmesh.org/fleetmesh/spec"
)

// takeStandard handles the standard protocols, used unmodified (§ Control plane); false leaves the message to mesh.
func (h *Host) takeStandard(a *arrival) bool {
	protocol, _ := didcomm.SplitType(a.m.Type)
	switch {
	case a.m.Type == didcomm.TypeProblemReport:
		h.answered(a)
		h.takeProblem(a)
	case h.answered(a):
	case protocol == didcomm.TrustPing:
		h.takePing(a)
	case protocol == didcomm.DiscoverFeatures:
		h.takeQueries(a)
	case a.m.Type == didcomm.TypeDelivery:
		h.takeDelivery(a)
	case protocol == didcomm.CoordinateMediation, protocol == didcomm.MessagePickup:
		h.takeMediation(a)
	case !strings.HasPrefix(protocol, "https://fleetmesh.org/"):
		h.unsupported(a)
	default:
		return false
	}
	return true
}

func (h *Host) takeProblem(a *arrival) {
	p, err := didcomm.ParseProblemReport(a.m)
	if err != nil || a.anonymous {
		return // never answered: two ends could report to each other for ever
	}
	h.cfg.Log.Info("a peer reports a problem", "peer", a.from.String()[:12], "code", p.Code, "comment", p.Text())
	code, ok := spec.CodeOfProblem(p.Code)
	if !ok {
		code = spec.CodeError
	}
	h.step(mesh.Problem{Peer: a.from, Code: code, Created: a.m.CreatedTime})
}

func (h *Host) takePing(a *arrival) {
	if err := h.attached(a); err != nil {
		h.cfg.Log.Info("a ping with unusable attachments", "err", err)
		return
	}
	want, err := didcomm.ParsePing(a.m)
	if err != nil || a.anonymous || !want {
		return
	}
	h.reply(a, didcomm.NewPingResponse(newID(), h.self, Now().Unix(), a.m))
}

// replyLife is how long an answer to a live question is worth sending.
const replyLife = 60 * time.Second

// reply answers on the session there is, or a new one: the ping may have come on a carrier that goes one way.
func (h *Host) reply(a *arrival, m *didcomm.Message) {
	if m == nil {
		return
	}
	h.mu.Lock()
	l := h.link(a.from)
	h.mu.Unlock()
	l.push(&outgoing{m: m, created: m.CreatedTime, until: Now().Add(replyLife).Unix()})
}

// problemTo answers a message with a problem report; nobody is told anything who did not prove who asks.
func (h *Host) problemTo(a *arrival, code spec.Code) {
	if a.anonymous {
		return
	}
	no := code.Refusal()
	m, err := didcomm.NewProblemReport(newID(), h.self, Now().Unix(), a.m, didcomm.Problem{Code: no.Problem, Comment: no.Meaning})
	if err != nil {
		h.cfg.Log.Error("build a problem report", "code", code, "err", err)
		return
	}
	h.reply(a, m)
}

func (h *Host) takeQueries(a *arrival) {
	if a.m.Type != didcomm.TypeQueries {
		return // a disclosure that nobody waits for
	}
	if a.anonymous {
		return
	}
	m, err := didcomm.NewDisclose(newID(), h.self, Now().Unix(), a.m, h.features())
	if err != nil {
		h.fault(a, spec.CodeMalformed)
		return
	}
	h.reply(a, m)
}

// fault answers a message that cannot be used. Of a peer's, mesh keeps count, and says so itself.
func (h *Host) fault(a *arrival, code spec.Code) {
	h.mu.Lock()
	peer := slices.ContainsFunc(h.node.Peers(Now()), func(p mesh.Peer) bool { return p.Key == a.from })
	h.mu.Unlock()
	if peer && !a.anonymous {
		h.step(mesh.Faulted{Peer: a.from, Thread: a.m.Thread(), Code: code})
		return
	}
	h.problemTo(a, code)
}

// features is what this node can do. It confirms what the descriptor declares, and does not go beyond it.
func (h *Host) features() (list []didcomm.Feature) {
	for _, uri := range h.cfg.Mesh.Protocols {
		list = append(list, didcomm.Feature{FeatureType: "protocol", ID: uri})
	}
	for _, uri := range []string{didcomm.TrustPing, didcomm.DiscoverFeatures, didcomm.ReportProblem} {
		list = append(list, didcomm.Feature{FeatureType: "protocol", ID: uri})
	}
	role := ""
	switch {
	case h.cfg.Mediator != nil:
		role = "mediator"
	case len(h.mediators()) > 0:
		role = "recipient"
	default:
		return list
	}
	for _, uri := range []string{didcomm.Routing, didcomm.CoordinateMediation, didcomm.MessagePickup} {
		list = append(list, didcomm.Feature{FeatureType: "protocol", ID: uri, Roles: []string{role}})
	}
	return list
}

// unsupported answers a message of a protocol that is none of ours.
func (h *Host) unsupported(a *arrival) {
	h.cfg.Log.Info("a message of a protocol that this node does not speak", "type", a.m.Type)
	h.fault(a, spec.CodeUnsupportedProtocol)
}
