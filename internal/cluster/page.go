package cluster

import (
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"time"
)

//go:embed page.html
var page []byte

// serve shows the cluster on a page of this machine, and returns what ends it.
func (c *Cluster) serve(address string) (end func(), err error) {
	ln, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("serve the page on --page: %w", err)
	}
	c.mu.Lock()
	c.page = "http://" + ln.Addr().String() + "/"
	c.mu.Unlock()
	server := &http.Server{Handler: c.handler(), ReadHeaderTimeout: 5 * time.Second}
	done := make(chan struct{})
	go func() { // until end
		defer close(done)
		_ = server.Serve(ln) // it ends when it is told to
	}()
	return func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		if server.Shutdown(ctx) != nil {
			server.Close()
		}
		<-done
	}, nil
}

// handler answers the page and what it asks for. It takes nothing.
func (c *Cluster) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		w.Header().Set("Content-Security-Policy", "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; connect-src 'self'")
		_, _ = w.Write(page) // a lost reader is its own business
	})
	mux.HandleFunc("GET /status.json", func(w http.ResponseWriter, r *http.Request) {
		text, err := json.Marshal(c.Status())
		if err != nil {
			http.Error(w, "no status", http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(text)
	})
	return mux
}
