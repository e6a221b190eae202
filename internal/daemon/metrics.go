package daemon

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"fleetmesh.org/fleetmesh/internal/mesh"
	"fleetmesh.org/fleetmesh/internal/monitor"
	"fleetmesh.org/fleetmesh/spec"
)

// page collects metrics in the text form that Prometheus reads. Nothing in it names a peer, a client or a key: whoever can reach the face may read it.
type page struct{ bytes.Buffer }

// put writes one metric; labels is "" or such as `{stage="active"}`.
func (p *page) put(kind, name, labels string, v any) {
	if !strings.Contains(p.String(), "# TYPE meshnode_"+name+" ") {
		fmt.Fprintf(p, "# TYPE meshnode_%s %s\n", name, kind)
	}
	fmt.Fprintf(p, "meshnode_%s%s %v\n", name, labels, v)
}

const (
	gauge   = "gauge"
	counter = "counter"
)

// metrics serves the counters of the node.
func (n *node) metrics() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p := new(page)
		f, err := n.health(r.Context(), monitor.Params{})
		if err == nil {
			err = n.faceMetrics(p)
		}
		if err != nil {
			http.Error(w, "no counters", http.StatusInternalServerError)
			return
		}
		nodeMetrics(p, &f)
		if h := n.fed.running(); h != nil {
			peerMetrics(p, h.Peers(), len(h.Sessions()), time.Now().Unix())
		} else {
			peerMetrics(p, nil, 0, time.Now().Unix())
		}
		w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
		_, _ = w.Write(p.Bytes()) // a lost client is its own business
	})
}

// faceMetrics are the counters of the relay face, under their own names.
func (n *node) faceMetrics(p *page) error {
	raw, err := json.Marshal(n.relay.Metrics())
	if err != nil {
		return err
	}
	var flat map[string]json.RawMessage
	if err := json.Unmarshal(raw, &flat); err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(flat)) {
		var v int64
		if json.Unmarshal(flat[name], &v) != nil {
			continue
		}
		kind := counter
		if strings.HasPrefix(name, "open_") || name == "outbound_bytes_owed" || name == "watched_values" {
			kind = gauge
		}
		p.put(kind, name, "", v)
	}
	return nil
}

func nodeMetrics(p *page, f *monitor.Facts) {
	p.put(gauge, "build_info", fmt.Sprintf("{version=%q,protocol=%q}", f.Build, spec.C().Protocol.Name), 1)
	p.put(gauge, "uptime_seconds", "", f.Uptime)
	p.put(gauge, "max_connections", "", f.Face.MaxConnections)
	p.put(gauge, "store_events", "", f.Store.Events)
	p.put(gauge, "store_bytes", "", f.Store.Bytes)
	p.put(gauge, "store_max_bytes", "", f.Store.Max)
	p.put(gauge, "store_dead_bytes", "", f.Store.Dead)
	p.put(gauge, "store_damaged_events", "", f.Store.Damaged)
	p.put(gauge, "disk_free_bytes", "", f.Disk.Free)
	p.put(gauge, "disk_total_bytes", "", f.Disk.Total)
	p.put(gauge, "memory_bytes", "", f.Memory)
	p.put(gauge, "open_files", "", f.Files.Open)
	p.put(gauge, "max_open_files", "", f.Files.Max)
	p.put(gauge, "pending_keys", "", f.Pending)
	for _, state := range []string{"starting", "up", "off", "retired"} {
		p.put(gauge, "federation", fmt.Sprintf("{state=%q}", state), map[bool]int{true: 1}[f.Federation == state])
	}
	if d := f.Descriptor; d != nil {
		p.put(gauge, "descriptor_expires_seconds", "", d.Expires-f.At)
	}
	if s := f.Strain; s != nil {
		p.put(gauge, "strain_pressure", "", s.Pressure)
		p.put(gauge, "strain_rung", "", s.Rung)
	}
	level := monitor.Judge(f, monitor.Defaults()).Level
	p.put(gauge, "health", "", int(level))
}

// peerMetrics are sums and extremes over all peers.
func peerMetrics(p *page, peers []mesh.Peer, sessions int, now int64) {
	stages := map[string]int{"known": 0, "asked": 0, "granting": 0, "active": 0, "refused": 0, "ended": 0}
	worst := map[spec.Limit][2]float64{} // share used: of what we may cause, of what they may
	windows, recent := map[string]int{}, now-24*3600
	expires := int64(0)
	for i := range peers {
		stages[peers[i].Stage]++
		for side, b := range []*mesh.Budget{peers[i].Held, peers[i].Issued} {
			if b == nil || peers[i].Stage != "active" {
				continue
			}
			if left := b.Expires - now; expires == 0 || left < expires {
				expires = left
			}
			for name, of := range b.Limits {
				if of > 0 {
					w := worst[name]
					w[side] = max(w[side], float64(b.Used.Of(name))/float64(of))
					worst[name] = w
				}
			}
		}
		for _, w := range peers[i].Windows {
			if w.At >= recent {
				windows[w.Severity]++
			}
		}
	}
	for _, s := range slices.Sorted(maps.Keys(stages)) {
		p.put(gauge, "peers", fmt.Sprintf("{stage=%q}", s), stages[s])
	}
	p.put(gauge, "peer_sessions", "", sessions)
	for _, s := range []spec.Severity{spec.S0, spec.S1, spec.S2, spec.S3, spec.S4} {
		p.put(gauge, "windows_closed_last_day", fmt.Sprintf("{severity=%q}", s.String()), windows[s.String()])
	}
	for _, l := range spec.C().Limits {
		for side, way := range []string{"ours", "theirs"} {
			p.put(gauge, "budget_used_ratio", fmt.Sprintf("{limit=%q,use=%q}", l.Name, way), worst[l.Name][side])
		}
	}
	p.put(gauge, "grant_expires_seconds", "", cmp.Or(expires, 0))
}

// readiness says 200 when the node serves all that it is meant to: /health says only that the process does.
func (n *node) readiness() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		state, _ := n.fed.state()
		_, err := n.store.Stats(r.Context())
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		switch {
		case err != nil:
			w.WriteHeader(http.StatusServiceUnavailable)
			_, _ = w.Write([]byte("the store does not answer\n"))
		case state == "starting":
			w.WriteHeader(http.StatusServiceUnavailable)
			_, _ = w.Write([]byte("federation is starting\n"))
		default:
			_, _ = w.Write([]byte("ready\n"))
		}
	})
}
