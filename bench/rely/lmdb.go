//go:build cgo

package main

import (
	"fiatjaf.com/nostr/eventstore"
	"fiatjaf.com/nostr/eventstore/lmdb"
)

func init() {
	open = func(dir string) eventstore.Store { return &lmdb.LMDBBackend{Path: dir} }
}
