package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"

	"fleetmesh.org/fleetmesh/internal/store"
	"fleetmesh.org/fleetmesh/internal/store/eventlog"
	"fleetmesh.org/fleetmesh/internal/store/lmdb"
	"fleetmesh.org/fleetmesh/internal/store/postgres"
	"fleetmesh.org/fleetmesh/internal/store/sqlite"
	"fleetmesh.org/fleetmesh/internal/store/sqlstore"
	"fleetmesh.org/fleetmesh/nostr"
)

// openStore opens the configured engine. urls are those under which a vanish request (NIP-62) can name this relay.
func openStore(ctx context.Context, dir Dir, c *Config, urls []string, log *slog.Logger) (store.Store, error) {
	tables := sqlstore.Options{OwnURLs: urls, MaxBytes: c.Spec.Storage.MaxBytes}
	switch c.Spec.Storage.Engine {
	case LMDB:
		return lmdb.Open(ctx, dir.Store(c), lmdb.Options{OwnURLs: urls, MaxBytes: c.Spec.Storage.MaxBytes})
	case SQLite:
		return some(sqlite.Open(ctx, dir.Store(c), tables))
	case Postgres:
		return some(postgres.Open(ctx, c.Spec.Storage.DSN, tables))
	}
	return some(eventlog.Open(dir.Store(c), storeOptions(c, urls, log)))
}

// some keeps a nil pointer from becoming a store.
func some[S store.Store](s S, err error) (store.Store, error) {
	if err != nil {
		return nil, err
	}
	return s, nil
}

// hear passes on what other faces of the node's database store, until ctx ends.
func (n *node) hear(ctx context.Context, parts *sync.WaitGroup) error {
	shared, ok := n.store.(*postgres.Store)
	if !ok {
		return nil
	}
	after, err := shared.LastSeq(ctx)
	if err != nil {
		return fmt.Errorf("follow the other faces of the database: %w", err)
	}
	live := func(events []*nostr.Event) {
		if err := n.relay.Announce(ctx, events); err != nil && ctx.Err() == nil {
			n.log.Warn("pass on what another face stored", "events", len(events), "err", err)
		}
	}
	parts.Go(func() {
		_ = shared.Foreign(ctx, after, live, func(err error) { n.log.Warn("the database", "err", err) }) // it ends with ctx
	})
	return nil
}

// eventLog is a stopped node's event log, or says that its engine has other means.
func eventLog(dir Dir) (*Config, error) {
	if _, err := dir.Migrations(); err != nil {
		return nil, err // of a newer build
	}
	c, err := LoadConfig(dir.Config())
	if err != nil {
		return nil, err
	}
	if e := c.Spec.Storage.Engine; e != EventLog {
		return nil, fmt.Errorf("spec.storage.engine is %s: check and mend it with the database's own tools", e)
	}
	return c, nil
}

func storeOptions(c *Config, urls []string, log *slog.Logger) eventlog.Options {
	return eventlog.Options{OwnURLs: urls, MaxBytes: c.Spec.Storage.MaxBytes, Log: log}
}

// Checked is what a check, or a rebuild, of a stopped node's store found.
type Checked struct {
	Events   int64      `json:"events"`
	Damaged  []nostr.ID `json:"damaged"`  // set aside; a sync with a peer that holds them heals them
	Problems []string   `json:"problems"` // what does not fit together; a rebuild puts it right
	Torn     int64      `json:"torn_bytes"`
}

// Sound says that nothing was wrong.
func (c Checked) Sound() bool { return len(c.Damaged)+len(c.Problems) == 0 }

// String tells a person.
func (c Checked) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d events read and found whole", c.Events)
	for _, id := range c.Damaged {
		fmt.Fprintf(&b, "\ndamaged: %s (sync with a relay that holds it)", id)
	}
	for _, p := range c.Problems {
		fmt.Fprintf(&b, "\nproblem: %s", p)
	}
	return b.String()
}

// CheckStore reads a stopped node's store whole, checks every checksum, and recounts every fingerprint.
func CheckStore(ctx context.Context, dir Dir) (Checked, error) {
	c, err := eventLog(dir)
	if err != nil {
		return Checked{}, err
	}
	r, err := eventlog.Check(ctx, dir.Store(c), storeOptions(c, c.Spec.Relay.PublicURLs, nil))
	if err != nil {
		return Checked{}, fmt.Errorf("check the store: %w", err)
	}
	return Checked{Events: r.Events, Damaged: append([]nostr.ID{}, r.Damaged...), Problems: append([]string{}, r.Problems...)}, nil
}

// RebuildStore makes all indexes of a stopped node's store anew from its log, and checks them.
func RebuildStore(ctx context.Context, dir Dir) (Checked, error) {
	c, err := eventLog(dir)
	if err != nil {
		return Checked{}, err
	}
	report, err := eventlog.Rebuild(dir.Store(c), storeOptions(c, c.Spec.Relay.PublicURLs, nil))
	if err != nil {
		return Checked{}, fmt.Errorf("rebuild the store: %w", err)
	}
	r, err := CheckStore(ctx, dir)
	r.Torn = report.TornBytes
	for _, l := range report.Lost {
		r.Problems = append(r.Problems, l.String())
	}
	return r, err
}

// Compact gives the space of dead records back to the file system.
func (o *Offline) Compact(ctx context.Context) error {
	s, ok := o.store.(*eventlog.Store)
	if !ok {
		return errors.New("this engine does not compact")
	}
	return s.Compact(ctx)
}
