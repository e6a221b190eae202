package web

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"sync"
	"time"

	"fleetmesh.org/fleetmesh/spec"
)

// publicFacts is what a stranger sees: the information document, the descriptor's own facts, and sums to two figures. Nothing of it names a peer, an
// address of a client or a user agent.
type publicFacts struct {
	mu    sync.Mutex
	at    time.Time
	facts facts
}

// publicAge is how old the facts may be: strangers cost the node one look in so long.
const publicAge = 10 * time.Second

// publicPatience is how long strangers wait for a node that is coming up: then they see what there is.
const publicPatience = time.Second

type facts struct {
	Info      info
	URLs      []string
	ID        nodeID
	Enrolment string
	PoW       int
	Policy    string
	Events    int64 // rounded to two significant figures
	Problem   string
}

type info struct {
	Name, Description, Contact, Version, Software string
	PubKey                                        string `json:"pubkey"`
	Self                                          string
	Terms                                         string `json:"terms_of_service"`
	NIPs                                          []int  `json:"supported_nips"`
	Limitation                                    struct {
		MaxMessageLength int    `json:"max_message_length"`
		MaxSubscriptions int    `json:"max_subscriptions"`
		MaxFilters       int    `json:"max_filters"`
		MaxLimit         int    `json:"max_limit"`
		DefaultLimit     int    `json:"default_limit"`
		MaxEventTags     int    `json:"max_event_tags"`
		MaxContentLength int    `json:"max_content_length"`
		MinPoW           int    `json:"min_pow_difficulty"`
		AuthRequired     bool   `json:"auth_required"`
		PaymentRequired  bool   `json:"payment_required"`
		RestrictedWrites bool   `json:"restricted_writes"`
		CreatedAtLower   int64  `json:"created_at_lower_limit"`
		CreatedAtUpper   *int64 `json:"created_at_upper_limit"`
	}
}

// facts looks, at most every so often.
func (w *Web) facts(ctx context.Context) facts {
	p := &w.public
	p.mu.Lock()
	defer p.mu.Unlock()
	if now := w.now(); p.at.IsZero() || now.Sub(p.at) >= publicAge || now.Before(p.at) {
		// The look is for everybody: it does not end with the request that came first.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), publicPatience)
		defer cancel()
		p.facts, p.at = w.lookPublic(ctx), now
	}
	return p.facts
}

func (w *Web) lookPublic(ctx context.Context) (f facts) {
	var doc struct {
		Document json.RawMessage
		URLs     []string
	}
	if f.Problem = w.ask(ctx, "relay.info", nil, &doc); f.Problem != "" {
		return f
	}
	_ = json.Unmarshal(doc.Document, &f.Info) // the relay's own text
	f.URLs = doc.URLs
	var st nodeStatus
	var m runningManifests
	_ = w.ask(ctx, "node.id", nil, &f.ID) // the page shows what it has
	_ = w.ask(ctx, "node.status", nil, &st)
	_ = w.ask(ctx, "manifest.get", nil, &m)
	f.Events, f.Enrolment = coarse(st.Store.Events), st.Enrolment
	f.PoW, f.Policy = m.InForce.Spec.Federation.DescriptorPow, m.InForce.Spec.Operator.PolicyUrl
	if f.PoW == 0 {
		f.PoW = spec.C().PoW.DefaultBits
	}
	return f
}

// coarse rounds a count that is published down to as many figures as the privacy rules allow.
func coarse(n int64) int64 {
	most, p := int64(1), int64(1)
	for range spec.C().Privacy.PublishedSignificantFigures {
		most *= 10
	}
	for n/p >= most {
		p *= 10
	}
	return n / p * p
}

// serveLanding is the page at the node's own address. Other paths where a relay lives show it too; the rest is not found.
func (w *Web) serveLanding(rw http.ResponseWriter, r *http.Request) {
	if !w.relayPath(r.URL.Path) {
		w.render(rw, http.StatusNotFound, "problem", map[string]any{"Title": "Not found", "Name": "meshnode", "Text": "There is nothing here."})
		return
	}
	f := w.facts(r.Context())
	urls := w.cfg.PublicURLs
	if len(urls) == 0 {
		scheme := "ws"
		if w.secure(r) {
			scheme = "wss"
		}
		urls = []string{(&url.URL{Scheme: scheme, Host: r.Host}).String()}
	}
	rw.Header().Set("Vary", "Accept")
	w.render(rw, http.StatusOK, "landing", map[string]any{"Title": f.Info.Name, "Name": f.Info.Name, "Facts": &f, "URLs": urls})
}

// relayPath says whether the relay has an address with this path.
func (w *Web) relayPath(path string) bool {
	if path == "/" || path == "" {
		return true
	}
	for _, u := range w.cfg.PublicURLs {
		if p, err := url.Parse(u); err == nil && p.Path == path {
			return true
		}
	}
	return false
}
