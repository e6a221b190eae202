// Command khatru serves a khatru relay with an embedded store on a given address: a peer for bench to be compared with.
// It is a module of its own, so that its dependencies stay out of the node's.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"fiatjaf.com/nostr/eventstore"
	"fiatjaf.com/nostr/eventstore/boltdb"
	"fiatjaf.com/nostr/eventstore/slicestore"
	"fiatjaf.com/nostr/khatru"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "khatru:", err)
		os.Exit(1)
	}
}

// stores lists the ways to keep events, by name. Files with build tags add to it.
var stores = map[string]func(dir string) eventstore.Store{
	"bolt":  func(dir string) eventstore.Store { return &boltdb.BoltBackend{Path: filepath.Join(dir, "bolt.db")} },
	"slice": func(string) eventstore.Store { return &slicestore.SliceStore{} },
}

func run() error {
	listen := flag.String("listen", "127.0.0.1:0", "address to serve on")
	dir := flag.String("dir", "", "where the store lives; a temporary directory if empty")
	name := flag.String("store", "", "lmdb (needs cgo), bolt, or slice, which is in memory; default: the best that was built in")
	limit := flag.Int("limit", 5000, "most events of one filter, as meshnode's default; khatru's reconciliation sees no more events either, so NEG wants a larger one")
	flag.Parse()
	if *name == "" {
		*name = "bolt"
		if stores["lmdb"] != nil {
			*name = "lmdb"
		}
	}
	open := stores[*name]
	if open == nil {
		return fmt.Errorf("no store %q in this build", *name)
	}
	if *dir == "" {
		tmp, err := os.MkdirTemp("", "khatru")
		if err != nil {
			return err
		}
		defer os.RemoveAll(tmp)
		*dir = tmp
	}
	if err := os.MkdirAll(*dir, 0o755); err != nil {
		return err
	}
	db := open(*dir)
	if err := db.Init(); err != nil {
		return fmt.Errorf("open the %s store: %w", *name, err)
	}
	defer db.Close()
	return serve(db, *name, *dir, *listen, *limit)
}

// serve runs the relay until it is told to end. One line of JSON tells where it is.
func serve(db eventstore.Store, name, dir, listen string, limit int) error {
	relay := khatru.NewRelay()
	relay.Log = log.New(io.Discard, "", 0)
	relay.Negentropy = true
	relay.UseEventstore(db, limit)
	l, err := net.Listen("tcp", listen)
	if err != nil {
		return err
	}
	fmt.Printf("{\"event\":\"ready\",\"relay\":\"ws://%s\",\"pid\":%d,\"store\":%q,\"dir\":%q}\n", l.Addr(), os.Getpid(), name, dir)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	server := &http.Server{Handler: relay, ReadHeaderTimeout: 10 * time.Second}
	go func() {
		<-ctx.Done()
		_ = server.Close()
	}()
	if err := server.Serve(l); err != nil && ctx.Err() == nil {
		return err
	}
	return nil
}
