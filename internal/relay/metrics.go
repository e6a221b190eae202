package relay

import (
	"maps"
	"sync"
	"sync/atomic"

	"fleetmesh.org/fleetmesh/internal/policy"
	"fleetmesh.org/fleetmesh/internal/store"
)

// metrics counts. Events are counted when the store has decided, not when they arrive.
type metrics struct {
	Connections, Open, Subscriptions, NegSessions    atomic.Int64
	Messages, BytesIn, BytesOut, EventsIn, EventsOut atomic.Int64
	Requests, Counts, NegOpens, NegMessages          atomic.Int64
	Auths, AuthFailed, WrongURL, Notices, Shed       atomic.Int64
	Verified, Groups, Commits                        atomic.Int64
	Stored, Duplicates, Superseded, Deleted, Expired atomic.Int64
	Ephemeral, Refused                               atomic.Int64

	mu        sync.Mutex
	refusedBy map[policy.Prefix]int64
	badSubIDs map[string]int64 // by user agent
}

// maxAgents bounds the table of user agents.
const maxAgents = 64

func (m *metrics) refused(p policy.Prefix) {
	m.mu.Lock()
	m.refusedBy[p]++
	m.mu.Unlock()
}

func (m *metrics) badSubID(agent string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, known := m.badSubIDs[agent]; !known && len(m.badSubIDs) >= maxAgents {
		agent = "others"
	}
	m.badSubIDs[agent]++
}

func (m *metrics) outcome(out store.Outcome) {
	switch out {
	case store.Stored:
		m.Stored.Add(1)
	case store.Duplicate:
		m.Duplicates.Add(1)
	case store.Superseded:
		m.Superseded.Add(1)
	case store.Deleted:
		m.Deleted.Add(1)
	case store.Expired:
		m.Expired.Add(1)
	case store.Refused:
		m.Refused.Add(1)
	}
}

// Snapshot is the relay's counters at one moment. Those under "at present" go up and down;
// the others only up, from zero at the start of the process.
type Snapshot struct {
	// At present.
	Open          int64 `json:"open_connections"`
	Subscriptions int64 `json:"open_subscriptions"`
	NegSessions   int64 `json:"open_neg_sessions"`
	Owed          int64 `json:"outbound_bytes_owed"`
	Watched       int64 `json:"watched_values"`

	Connections int64 `json:"connections"`
	Messages    int64 `json:"messages_in"`
	BytesIn     int64 `json:"bytes_in"`
	BytesOut    int64 `json:"bytes_out"`
	EventsIn    int64 `json:"events_in"`
	EventsOut   int64 `json:"events_out"`
	Requests    int64 `json:"reqs"`
	Counts      int64 `json:"counts"`
	NegOpens    int64 `json:"neg_opens"`
	NegMessages int64 `json:"neg_messages"`
	Auths       int64 `json:"auths"`
	AuthFailed  int64 `json:"auths_failed"`
	WrongURL    int64 `json:"auths_wrong_url"`
	Notices     int64 `json:"notices"`
	Shed        int64 `json:"clients_shed"`
	Verified    int64 `json:"signatures_checked"`
	Groups      int64 `json:"signature_groups"`
	Commits     int64 `json:"commits"`

	// Outcomes of the store.
	Stored     int64 `json:"events_stored"`
	Duplicates int64 `json:"events_duplicate"`
	Superseded int64 `json:"events_superseded"`
	Deleted    int64 `json:"events_deleted"`
	Expired    int64 `json:"events_expired"`
	Ephemeral  int64 `json:"events_ephemeral"`
	Refused    int64 `json:"events_refused_before"`

	RefusedBy map[policy.Prefix]int64 `json:"refused_by_prefix"`
	BadSubIDs map[string]int64        `json:"bad_subscription_ids_by_agent"`
}

// Metrics returns the counters.
func (r *Relay) Metrics() Snapshot {
	m := &r.m
	s := Snapshot{
		Owed: r.owed.Load(), Watched: r.watched.Load(),
		Open: m.Open.Load(), Subscriptions: m.Subscriptions.Load(), NegSessions: m.NegSessions.Load(),
		Connections: m.Connections.Load(), Messages: m.Messages.Load(),
		BytesIn: m.BytesIn.Load(), BytesOut: m.BytesOut.Load(),
		EventsIn: m.EventsIn.Load(), EventsOut: m.EventsOut.Load(),
		Requests: m.Requests.Load(), Counts: m.Counts.Load(),
		NegOpens: m.NegOpens.Load(), NegMessages: m.NegMessages.Load(),
		Auths: m.Auths.Load(), AuthFailed: m.AuthFailed.Load(), WrongURL: m.WrongURL.Load(),
		Notices: m.Notices.Load(), Shed: m.Shed.Load(),
		Verified: m.Verified.Load(), Groups: m.Groups.Load(), Commits: m.Commits.Load(),
		Stored: m.Stored.Load(), Duplicates: m.Duplicates.Load(), Superseded: m.Superseded.Load(),
		Deleted: m.Deleted.Load(), Expired: m.Expired.Load(), Ephemeral: m.Ephemeral.Load(), Refused: m.Refused.Load(),
	}
	m.mu.Lock()
	s.RefusedBy, s.BadSubIDs = maps.Clone(m.refusedBy), maps.Clone(m.badSubIDs)
	m.mu.Unlock()
	return s
}

// Owed is the number of octets that are queued or held for all connections at present.
func (r *Relay) Owed() int { return int(r.owed.Load()) }
