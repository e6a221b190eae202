// Command rely serves a rely relay on a given address: a peer for bench to be compared with. rely keeps no events itself; here
// it has khatru's LMDB store (or its BoltDB store in a build without cgo), whose events differ in type, so that each is converted field by field.
// It is a module of its own, so that its dependencies stay out of the node's.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"fiatjaf.com/nostr/eventstore"
	"fiatjaf.com/nostr/eventstore/boltdb"
	gonostr "github.com/nbd-wtf/go-nostr"
	"github.com/pippellia-btc/rely"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "rely:", err)
		os.Exit(1)
	}
}

// open makes the store; a file with a build tag replaces it.
var open = func(dir string) eventstore.Store {
	return &boltdb.BoltBackend{Path: filepath.Join(dir, "bolt.db")}
}

func run() error {
	listen := flag.String("listen", "127.0.0.1:0", "address to serve on")
	dir := flag.String("dir", "", "where the store lives; a temporary directory if empty")
	limit := flag.Int("limit", 5000, "most events of one filter, as meshnode's default")
	flag.Parse()
	if *dir == "" {
		tmp, err := os.MkdirTemp("", "rely")
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
		return fmt.Errorf("open the store: %w", err)
	}
	defer db.Close()
	return serve(db, *dir, *listen, *limit)
}

// serve runs the relay until it is told to end. One line of JSON tells where it is.
func serve(db eventstore.Store, dir, listen string, limit int) error {
	l, err := net.Listen("tcp", listen)
	if err != nil {
		return err
	}
	// Its defaults shed a client that asks for more than 100 answers at once, and overload at 1,024 requests; a benchmark does both.
	relay := rely.NewRelay(rely.WithDomain(l.Addr().String()), rely.WithLogger(slog.New(slog.NewTextHandler(io.Discard, nil))),
		rely.WithQueueCapacity(1<<16), rely.WithClientResponseLimit(1<<16))
	relay.On.Event = func(_ rely.Client, e *gonostr.Event) error { return save(db, e) }
	relay.On.Req = func(ctx context.Context, _ rely.Client, filters gonostr.Filters) ([]gonostr.Event, error) {
		return query(ctx, db, filters, limit)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	relay.Start(ctx)
	fmt.Printf("{\"event\":\"ready\",\"relay\":\"ws://%s\",\"pid\":%d,\"dir\":%q}\n", l.Addr(), os.Getpid(), dir)
	server := &http.Server{Handler: relay, ReadHeaderTimeout: 10 * time.Second}
	go func() {
		<-ctx.Done()
		_ = server.Close()
	}()
	if err := server.Serve(l); err != nil && ctx.Err() == nil {
		return err
	}
	relay.Wait()
	return nil
}
