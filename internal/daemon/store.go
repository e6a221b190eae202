package daemon

import (
	"context"
	"errors"
	"log/slog"

	"fleetmesh.org/fleetmesh/internal/store"
	"fleetmesh.org/fleetmesh/internal/store/eventlog"
)

// openStore opens the configured engine. urls are those under which a vanish request (NIP-62) can name this relay.
func openStore(dir Dir, c *Config, urls []string, log *slog.Logger) (store.Store, error) {
	return eventlog.Open(dir.Store(c), eventlog.Options{OwnURLs: urls, MaxBytes: c.Spec.Storage.MaxBytes, Log: log})
}

// Compact gives the space of dead records back to the file system.
func (o *Offline) Compact(ctx context.Context) error {
	s, ok := o.store.(*eventlog.Store)
	if !ok {
		return errors.New("this engine does not compact")
	}
	return s.Compact(ctx)
}
