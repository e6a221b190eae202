//go:build !lmdb || !cgo

package lmdb

import (
	"context"
	"errors"

	"fleetmesh.org/fleetmesh/internal/store"
)

// ErrAbsent is the answer of a binary without the engine.
var ErrAbsent = errors.New("this binary was built without LMDB, which is a C library: build it with CGO_ENABLED=1 go build -tags " + Tag +
	" ./cmd/meshnode, or let spec.storage.engine be eventlog, sqlite or postgres")

// Open fails with ErrAbsent.
func Open(context.Context, string, Options) (store.Store, error) { return nil, ErrAbsent }
