package ledger

import (
	"maps"
	"slices"
	"strconv"

	"fleetmesh.org/fleetmesh/nostr"
	"fleetmesh.org/fleetmesh/spec"
)

// Diagnostics are a node's counters of one day, over all peers together and naming none: which limit bound
// first, and how windows were priced. They answer what alpha is for measuring.
type Diagnostics struct {
	Binding    map[spec.Limit]int64 // windows in which the limit bound, by limit
	Severities [5]int64             // evaluated windows by severity
	Idle       int64                // windows in which nothing happened
	Transport  map[string]int64     // sessions by scheme, "" never
	Retention  string               // the operator's mode, "" if not said
	HeldP50    int64                // octets of a shard held, median and 95th of a hundred; 0 if not said
	HeldP95    int64
	Declined   map[string]int64 // coverage declined, by reason
	Dropped    map[string]int64 // shards dropped, by reason
	BlobRaised bool             // some operator's hand raised blob_bytes
}

// Window counts one window that was priced.
func (d *Diagnostics) Window(v Evaluation) {
	if !v.Evaluated {
		d.Idle++
		return
	}
	d.Severities[min(int(v.Severity), len(d.Severities)-1)]++
	if l, ok := v.Binding(); ok {
		if d.Binding == nil {
			d.Binding = map[spec.Limit]int64{}
		}
		d.Binding[l]++
	}
}

// Event builds the unsigned kind 21802, every count rounded to what may be published.
func (d *Diagnostics) Event(node nostr.PubKey, at int64) *nostr.Event {
	day := spec.C().Lifetimes.DiagnosticsWindowSeconds
	e := &nostr.Event{PubKey: node, CreatedAt: at, Kind: spec.KindDiagnostics}
	metric := func(name string, values ...string) {
		if len(values) > 0 {
			e.Tags = append(e.Tags, append(nostr.Tag{"metric", name}, values...))
		}
	}
	var binding []string
	for i := range spec.C().Limits {
		if n := spec.C().Limits[i].Name; d.Binding[n] > 0 {
			binding = append(binding, pair(string(n), d.Binding[n]))
		}
	}
	metric("grant_binding", binding...)
	metric("divergence_hist", pair("s0", d.Severities[0]), pair("s1", d.Severities[1]), pair("s2", d.Severities[2]), pair("s3", d.Severities[3]))
	metric("transport_success", pairs(d.Transport)...)
	if d.Retention != "" {
		metric("retention_mode", d.Retention)
	}
	if d.HeldP95 > 0 {
		metric("shard_bytes_held", pair("p50", d.HeldP50), pair("p95", d.HeldP95))
	}
	metric("coverage_declined", pairs(d.Declined)...)
	metric("shard_dropped", pairs(d.Dropped)...)
	metric("blob_ceiling_raised", strconv.FormatBool(d.BlobRaised))
	e.Tags = append(e.Tags, nostr.Tag{"sample_window", strconv.FormatInt(day, 10)},
		nostr.Tag{"expiration", strconv.FormatInt(at+day, 10)})
	return e
}

func pair(name string, n int64) string { return name + ":" + strconv.FormatInt(RoundFigures(n), 10) }

func pairs(m map[string]int64) []string {
	var out []string
	for _, k := range slices.Sorted(maps.Keys(m)) {
		out = append(out, pair(k, m[k]))
	}
	return out
}
