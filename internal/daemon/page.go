package daemon

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/netip"
	"regexp"
	"slices"
	"strings"

	"fleetmesh.org/fleetmesh/internal/control"
	"fleetmesh.org/fleetmesh/internal/relay"
	"fleetmesh.org/fleetmesh/internal/web"
	"fleetmesh.org/fleetmesh/spec"
)

// PageSpec configures the pages that the node serves to people on its own address.
type PageSpec struct {
	Off   []string `yaml:"off,omitempty"`   // pages switched off: landing, operator
	Hosts []string `yaml:"hosts,omitempty"` // more names under which the operator's page is used
}

const (
	pageLanding  = "landing"
	pageOperator = "operator"
)

var hostName = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?$`)

func (p *PageSpec) check() (errs []error) {
	for _, o := range p.Off {
		if o != pageLanding && o != pageOperator {
			errs = append(errs, fmt.Errorf("spec.page.off has %q, want some of %s, %s", o, pageLanding, pageOperator))
		}
	}
	for _, h := range p.Hosts {
		if !hostName.MatchString(h) {
			errs = append(errs, fmt.Errorf("spec.page.hosts has %q, want a host name without port, such as relay.example.org", h))
		}
	}
	return errs
}

// pageOrigin is the origin of the face's page, as this machine reaches it.
func (n *node) pageOrigin() string { return "http" + strings.TrimPrefix(n.url, "ws") }

// openPage makes the page, before the relay face that shows it.
func (n *node) openPage(face *relay.Config) {
	n.page = web.New(web.Config{
		Node: pageNode{n}, PublicURLs: n.cfg().Spec.Relay.PublicURLs, Hosts: n.cfg().Spec.Page.Hosts, Log: n.log,
		ClientAddr: func(r *http.Request) netip.Addr { return n.relay.ClientAddr(r) },
		HTTPS:      func(r *http.Request) bool { return n.relay.OverTLS(r) },
	})
	if !slices.Contains(n.cfg().Spec.Page.Off, pageLanding) {
		face.Page = n.page.Landing()
	}
}

// mountPages puts on the face what is served beside the relay: the operator's page, the counters, the DID document.
func (n *node) mountPages() {
	n.relay.Handle("/metrics", n.guardMetrics(n.metrics()))
	n.relay.Handle("/ready", n.readiness())
	n.relay.Handle("/.well-known/did/", n.didHandler())
	if !slices.Contains(n.cfg().Spec.Page.Off, pageOperator) {
		n.relay.Handle("/ui/", n.page)
	}
}

// pageMethods adds the control methods of the page.
func (n *node) pageMethods(into map[string]control.Handler) map[string]control.Handler {
	into["relay.info"] = method(func(context.Context, none) (RelayInfo, error) {
		return RelayInfo{Document: n.relay.InfoDocument(), URLs: append([]string{}, n.cfg().Spec.Relay.PublicURLs...)}, nil
	})
	into["page.code"] = method(func(context.Context, none) (web.Code, error) {
		return n.page.MakeCode(n.pageOrigin()), n.pageOff()
	})
	into["page.sessions"] = method(func(context.Context, none) ([]web.Session, error) { return n.page.SignIns(), n.pageOff() })
	into["page.end"] = method(func(context.Context, none) (web.Ended, error) { return n.page.SignOutAll(), n.pageOff() })
	return into
}

// pageOff is the refusal where the operator's page is switched off, else nil.
func (n *node) pageOff() error {
	if slices.Contains(n.cfg().Spec.Page.Off, pageOperator) {
		return control.Refuse(string(spec.CodePolicy), "the operator's page is switched off: take %q out of spec.page.off and restart", pageOperator)
	}
	return nil
}

// RelayInfo is what the relay face tells everybody of itself.
type RelayInfo struct {
	Document json.RawMessage `json:"document"` // NIP-11
	URLs     []string        `json:"urls"`     // public ones, as configured
}

// pageNode lets the page call the methods that the control socket offers, and nothing else.
type pageNode struct{ n *node }

// Call runs one method.
func (p pageNode) Call(ctx context.Context, method string, params, result any, onStep func(json.RawMessage)) error {
	return control.Local(p.n.methods()).Call(ctx, method, params, result, onStep)
}
