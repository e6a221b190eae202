package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"time"

	"fleetmesh.org/fleetmesh/internal/control"
	"fleetmesh.org/fleetmesh/internal/policy"
	"fleetmesh.org/fleetmesh/internal/store"
	"fleetmesh.org/fleetmesh/internal/store/sqlite"
	"fleetmesh.org/fleetmesh/nostr"
)

// ImportParams are those of events.import.
type ImportParams struct {
	Lines    []Line `json:"lines"`
	NoVerify bool   `json:"no_verify,omitempty"`
}

// Line is one line of an import, with its number in the input, so that what is wrong with it can be found there.
type Line struct {
	No   int    `json:"no"`
	Text string `json:"text"`
}

// Imported counts what became of imported lines. Examples name the first few that were not taken, without their content.
type Imported struct {
	Lines     int      `json:"lines"`
	Stored    int      `json:"stored"`
	Duplicate int      `json:"duplicate"`
	Obsolete  int      `json:"obsolete"` // superseded, deleted or expired
	Refused   int      `json:"refused"`  // by policy
	Invalid   int      `json:"invalid"`
	Examples  []string `json:"examples,omitempty"`
}

const maxExamples = 5

// Add sums up batches.
func (i *Imported) Add(j Imported) {
	for _, e := range j.Examples {
		i.example(e)
	}
	i.Lines += j.Lines
	i.Stored += j.Stored
	i.Duplicate += j.Duplicate
	i.Obsolete += j.Obsolete
	i.Refused += j.Refused
	i.Invalid += j.Invalid
}

func (i *Imported) example(text string) {
	if len(i.Examples) < maxExamples {
		i.Examples = append(i.Examples, text)
	}
}

func (i *Imported) count(o store.Outcome) {
	switch o {
	case store.Stored, store.Ephemeral:
		i.Stored++
	case store.Duplicate:
		i.Duplicate++
	case store.Superseded, store.Deleted, store.Expired:
		i.Obsolete++
	default:
		i.Refused++
	}
}

// parse reads lines into events; those that are none are counted.
func (i *Imported) parse(lines []Line) (events []*nostr.Event) {
	for _, line := range lines {
		i.Lines++
		e, err := nostr.ParseEvent([]byte(line.Text))
		if err != nil {
			i.Invalid++
			i.example(fmt.Sprintf("line %d: %v", line.No, err))
			continue
		}
		events = append(events, e)
	}
	return events
}

// importEvents is events.import: the same path as a client's event, but for rates.
func (n *node) importEvents(ctx context.Context, p ImportParams) (got Imported, err error) {
	events := got.parse(p.Lines)
	verdicts, err := n.relay.Publish(ctx, events, policy.FromImport)
	if err != nil {
		return got, fmt.Errorf("import: %w", err)
	}
	for i, v := range verdicts {
		if v.Outcome == 0 {
			got.Refused++
			got.example(fmt.Sprintf("%s: %s", events[i].ID, v.Reason))
			continue
		}
		got.count(v.Outcome)
	}
	return got, nil
}

// ExportParams are those of events.export.
type ExportParams struct {
	Filter json.RawMessage `json:"filter"`
	After  uint64          `json:"after"`
}

// ExportPage is one page of an export; the next begins after Next.
type ExportPage struct {
	Lines   []string `json:"lines"`
	Next    uint64   `json:"next"`
	End     bool     `json:"end"`
	Damaged int64    `json:"damaged,omitempty"` // events that are known to be damaged and were left out; the last page says it
}

const exportPageBytes = 4 << 20

func exportPage(ctx context.Context, s store.Store, p ExportParams, now int64) (page ExportPage, err error) {
	f := nostr.Filter{}
	if len(p.Filter) > 0 {
		if f, err = nostr.ParseFilter(p.Filter); err != nil {
			return page, control.BadParams("filter: %v", err)
		}
	}
	page.Next = p.After
	size := 0
	for a, err := range s.Arrivals(ctx, p.After, now) {
		if err != nil {
			return page, fmt.Errorf("read the store: %w", err)
		}
		page.Next = a.Seq
		if !f.Matches(a.Event) {
			continue
		}
		line := string(a.Event.JSON())
		page.Lines = append(page.Lines, line)
		if size += len(line); size >= exportPageBytes {
			return page, nil
		}
	}
	page.End = true
	stats, err := s.Stats(ctx)
	if err != nil {
		return page, fmt.Errorf("ask the store for damage: %w", err)
	}
	page.Damaged = stats.Damaged
	return page, nil
}

// Offline is the store of a stopped node, opened by a verb.
type Offline struct {
	store    store.Store
	verifier nostr.Verifier
	policy   policy.Chain
	seams    seams
}

// OpenDump opens a file of events to import: JSONL as it is, and the SQLite database of a nostr-rs-relay as if it were. size is what there is
// to read, in octets.
func OpenDump(ctx context.Context, path string) (lines io.ReadCloser, size int64, err error) {
	database, err := sqlite.IsDatabase(path)
	if err != nil {
		return nil, 0, err
	}
	if database {
		return sqlite.ReadRelayDatabase(ctx, path)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, 0, err
	}
	fi, err := f.Stat()
	if err != nil {
		return nil, 0, errors.Join(err, f.Close())
	}
	return f, fi.Size(), nil
}

// OpenOffline opens a stopped node's store, making the node first if there is none. A running node holds the lock.
func OpenOffline(dir Dir) (*Offline, error) {
	if !dir.Exists() {
		if err := dir.Init(DefaultConfig("127.0.0.1:7777")); err != nil {
			return nil, err
		}
	}
	if _, err := dir.Migrate(); err != nil {
		return nil, err
	}
	c, err := LoadConfig(dir.Config())
	if err != nil {
		return nil, err
	}
	chain, err := rules(&c.Spec.Relay)
	if err != nil {
		return nil, err
	}
	s, err := openStore(context.Background(), dir, c, c.Spec.Relay.PublicURLs, slog.New(slog.DiscardHandler))
	if err != nil {
		return nil, err
	}
	seams, err := newSeams(dir, &c.Spec)
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return &Offline{store: s, verifier: nostr.NewVerifier(), policy: append(chain, seams.in.Policies()...), seams: seams}, nil
}

// Close makes everything durable.
func (o *Offline) Close() error { return errors.Join(o.seams.close(), o.store.Close()) }

// Store is the opened store.
func (o *Offline) Store() store.Store { return o.store }

// Import takes lines as a running node would.
func (o *Offline) Import(ctx context.Context, lines []Line, noVerify bool) (got Imported, err error) {
	events := got.parse(lines)
	welcome := events[:0]
	var verdicts []bool
	if !noVerify {
		verdicts = o.verifier.Verify(events)
	}
	now := time.Now().Unix()
	for i, e := range events {
		if verdicts != nil && !verdicts[i] {
			got.Invalid++
			got.example(fmt.Sprintf("%s: the signature does not hold", e.ID))
			continue
		}
		r := &policy.Request{Event: e, Source: policy.FromImport, Now: now}
		if no := o.admit(ctx, r); no != nil {
			got.Refused++
			got.example(fmt.Sprintf("%s: %s", e.ID, no))
			continue
		}
		welcome = append(welcome, e)
	}
	outcomes, err := o.store.Insert(ctx, welcome, now)
	if err != nil {
		return got, fmt.Errorf("import: %w", err)
	}
	for _, out := range outcomes {
		got.count(out)
	}
	return got, nil
}

func (o *Offline) admit(ctx context.Context, r *policy.Request) *policy.Rejection {
	if no := o.policy.Precheck(ctx, r); no != nil {
		return no
	}
	return o.policy.Admit(ctx, r)
}

// Export reads one page.
func (o *Offline) Export(ctx context.Context, p ExportParams) (ExportPage, error) {
	return exportPage(ctx, o.store, p, time.Now().Unix())
}

// Fingerprint is the NIP-77 fingerprint of what a filter matches.
type Fingerprint struct {
	Fingerprint string `json:"fingerprint"`
	Count       int    `json:"count"`
}

func fingerprintOf(ctx context.Context, s store.Store, raw json.RawMessage, now int64) (fp Fingerprint, err error) {
	f := nostr.Filter{}
	if len(raw) > 0 {
		if f, err = nostr.ParseFilter(raw); err != nil {
			return fp, control.BadParams("filter: %v", err)
		}
	}
	sum, err := s.FingerprintRange(ctx, f, 0, maxTime, now)
	if err != nil {
		return fp, fmt.Errorf("fingerprint: %w", err)
	}
	if fp.Count, err = s.Count(ctx, []nostr.Filter{f}, store.View{}, now); err != nil {
		return fp, fmt.Errorf("fingerprint: %w", err)
	}
	fp.Fingerprint = fmt.Sprintf("%x", sum)
	return fp, nil
}

// maxTime is past every created_at that parses.
const maxTime = 1<<53 - 1

// Fingerprint of what a filter matches.
func (o *Offline) Fingerprint(ctx context.Context, filter json.RawMessage) (Fingerprint, error) {
	return fingerprintOf(ctx, o.store, filter, time.Now().Unix())
}
