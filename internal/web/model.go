package web

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	"fleetmesh.org/fleetmesh/internal/control"
	"fleetmesh.org/fleetmesh/spec"
)

// What the control methods answer, as far as the page shows it. Members that the page does not show are passed over.

type nodeStatus struct {
	DID, Relay, Class, Protocol, Digest string
	Uptime                              int64 `json:"uptime_seconds"`
	Store                               storeStats
	Enrolment                           string
	Peers                               int
	Relaying                            relaying
}

type storeStats struct {
	Events, Tombstones, Refusals, Bytes, Damaged int64
	DeadBytes                                    int64 `json:"dead_bytes"`
}

type relaying struct {
	Open          int64 `json:"open_connections"`
	Subscriptions int64 `json:"open_subscriptions"`
	NegSessions   int64 `json:"open_neg_sessions"`
	Connections   int64 `json:"connections"`
	BytesIn       int64 `json:"bytes_in"`
	BytesOut      int64 `json:"bytes_out"`
	EventsIn      int64 `json:"events_in"`
	EventsOut     int64 `json:"events_out"`
	Stored        int64 `json:"events_stored"`
	Shed          int64 `json:"clients_shed"`
}

type counts map[string]int64

// of is the count that a limit is priced against.
func (c counts) of(l spec.Limit) int64 { return c[string(spec.C().CounterOf(l))] }

type peering struct {
	Key      string
	Stage    string
	Tier     string
	Worst    string `json:"worst_severity"`
	Clean    int64  `json:"clean_windows"`
	Wants    []want
	Issued   *budget
	Held     *budget
	Windows  []windowClose
	Receipts []receiptHead
	Digest   string `json:"schema_digest"`
	Standing struct {
		ZeroUntil int64 `json:"zero_until"`
		Idle      int64 `json:"idle_windows"`
	}
}

// DID is the peer's name.
func (p *peering) DID() string { return "did:nostr:" + p.Key }

type want struct {
	Shard  string
	Filter json.RawMessage
	Mode   string
}

type budget struct {
	Grant  string
	Tier   string
	Window int64 `json:"window_seconds"`
	Epoch  int64
	Limits map[spec.Limit]int64
	Used   counts
}

type windowClose struct {
	Window   int64
	At       int64
	Severity string
	Measured counts
	Claimed  counts
	Limits   map[spec.Limit]int64
	Receipts int64
	Limit    spec.Limit
}

type receiptHead struct {
	Way    string
	Window int64
	Seq    int64
	Head   string
}

type windowReport struct {
	windowClose
	Lines   []windowLine
	Rules   []string
	Silent  bool
	Counted string
}

type windowLine struct {
	Limit                      spec.Limit
	Allowed, Measured, Claimed int64
	Severity                   string
	Diverges                   bool
	Steps                      []string
}

type happened struct {
	At                                 int64
	Peer, What, Severity, Code, Detail string
	Window                             int64
}

type nodeID struct {
	DID, Npub, Class, Operator, Protocol, Digest string
	Node                                         string   `json:"node_key"`
	Transport                                    []string `json:"transport_keys"`
	Agreement                                    []struct {
		Key   string
		Until int64
	} `json:"agreement_keys"`
	Relays     []string
	Endpoints  []endpoint
	Descriptor *struct {
		ID      string
		Created int64 `json:"created_at"`
		Expires int64 `json:"expires_at"`
		Work    int   `json:"pow_bits"`
	}
	Revoked bool
}

type endpoint struct {
	Scheme, Address string
	Priority        int
}

type knownNode struct {
	DID, Class, Operator string
	From                 string `json:"learned_from"`
	Seen                 int64  `json:"last_seen"`
	Expires              int64  `json:"expires_at"`
	Digest               string `json:"schema_digest"`
	Revoked              int64  `json:"revoked_at"`
	Live, Peer           bool
}

type runningManifests struct {
	Hash    string
	InForce struct {
		Spec nodeSpec
	} `json:"in_force"`
	Pending, Drift []change
	Applied        []struct {
		Owner  string
		Object struct {
			Kind     string
			Metadata struct{ Name string }
			Spec     struct{ Peer string }
		}
	}
}

// nodeSpec is what the node runs with: the keys that the pages use, and every one for people to read.
type nodeSpec struct {
	Storage    struct{ MaxBytes int64 }
	Federation struct {
		Enrolment     string
		DescriptorPow int
		WindowSeconds int64
	}
	Relay    struct{ PublicUrls []string }
	Operator struct{ PolicyUrl string }
	Blobs    struct{ Enabled bool }

	Keys []specKey `json:"-"`
}

// specKey is a key of a configuration with its value as JSON.
type specKey struct{ Key, Value string }

// UnmarshalJSON reads both.
func (s *nodeSpec) UnmarshalJSON(text []byte) error {
	type plain nodeSpec
	if err := json.Unmarshal(text, (*plain)(s)); err != nil {
		return err
	}
	s.Keys = specKeys(nil, "spec", text)
	return nil
}

// specKeys lists the leaves of a value, in the order of their keys. How to get into a database is nobody's to read.
func specKeys(into []specKey, key string, text json.RawMessage) []specKey {
	var below map[string]json.RawMessage
	if key == "spec.storage.dsn" {
		text = []byte(`"…"`)
	}
	if text[0] != '{' || json.Unmarshal(text, &below) != nil {
		return append(into, specKey{key, string(text)})
	}
	for _, k := range slices.Sorted(maps.Keys(below)) {
		into = specKeys(into, key+"."+k, below[k])
	}
	return into
}

// names are what the operator's manifests call the peers.
func (m *runningManifests) names() map[string]string {
	out := map[string]string{}
	for _, a := range m.Applied {
		if a.Object.Kind == "Peering" {
			out[a.Object.Spec.Peer] = a.Object.Metadata.Name
		}
	}
	return out
}

type change struct {
	Object, Key, Action, Effect, Why string
}

type load struct {
	Declared, Used counts
	Last           counts `json:"last_window"`
	Percent        int64
	Counter        string
	Rungs          []any  // names or numbers
	DependsOn      string `json:"depends_on"`
	Strain         []struct {
		Side, Name   string
		Events, Last int64
	}
}

type why struct {
	Held    bool
	Refused string
	At      int64 `json:"refused_at"`
	Origin  *struct {
		From   string
		At     int64
		Grant  string
		Window int64
		Path   []struct {
			Node string
			At   int64
		}
	}
}

// patience is how long a page waits for one answer of the node.
const patience = 5 * time.Second

// ask calls one method and puts its result into v. What goes wrong becomes a sentence for the page.
func (w *Web) ask(ctx context.Context, method string, params, v any) string {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	return sentence(w.cfg.Node.Call(ctx, method, params, v, nil))
}

func sentence(err error) string {
	switch {
	case err == nil:
		return ""
	case errors.Is(err, context.DeadlineExceeded) || strings.Contains(err.Error(), context.DeadlineExceeded.Error()):
		return "The node has no answer yet: it may still be coming up. This page tries again by itself."
	}
	return err.Error()
}

// offers says which control methods the node has.
func (w *Web) offers(ctx context.Context) map[string]bool {
	var h control.Hello
	out := map[string]bool{}
	if w.ask(ctx, "hello", nil, &h) == "" {
		for _, m := range h.Methods {
			out[m] = true
		}
	}
	return out
}

// name is what the node calls itself in its information document.
func (w *Web) name(ctx context.Context) string {
	var info struct{ Document struct{ Name string } }
	if w.ask(ctx, "relay.info", nil, &info) != "" || info.Document.Name == "" {
		return "meshnode"
	}
	return info.Document.Name
}

func (w *Web) peers(ctx context.Context) (list []peering, problem string) {
	problem = w.ask(ctx, "peer.list", nil, &list)
	slices.SortStableFunc(list, func(a, b peering) int { return strings.Compare(stageOrder(a.Stage), stageOrder(b.Stage)) })
	return list, problem
}

func stageOrder(stage string) string {
	if stage == "active" {
		return ""
	}
	return stage
}
