// Command khatru is a foreign Blossom server for the tests: khatru's, with its blobs in memory. It prints its URL when it serves, and ends
// when its input does.
package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"sync"

	"github.com/fiatjaf/khatru"
	"github.com/fiatjaf/khatru/blossom"
)

// memory is the least that khatru's server needs of an index.
type memory struct {
	mu    sync.Mutex
	blobs map[string]blossom.BlobDescriptor
	bytes map[string][]byte
}

func (m *memory) Keep(_ context.Context, blob blossom.BlobDescriptor, pubkey string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	blob.Owner = pubkey
	m.blobs[blob.SHA256] = blob
	return nil
}

func (m *memory) List(_ context.Context, pubkey string) (chan blossom.BlobDescriptor, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := make(chan blossom.BlobDescriptor, len(m.blobs))
	for _, b := range m.blobs {
		if b.Owner == pubkey {
			out <- b
		}
	}
	close(out)
	return out, nil
}

func (m *memory) Get(_ context.Context, sha256 string) (*blossom.BlobDescriptor, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if b, ok := m.blobs[sha256]; ok {
		return &b, nil
	}
	return nil, nil
}

func (m *memory) Delete(_ context.Context, sha256, _ string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.blobs, sha256)
	return nil
}

func main() {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	url := "http://" + ln.Addr().String()
	m := &memory{blobs: map[string]blossom.BlobDescriptor{}, bytes: map[string][]byte{}}
	relay := khatru.NewRelay()
	server := blossom.New(relay, url)
	server.Store = m
	server.StoreBlob = append(server.StoreBlob, func(_ context.Context, sha256 string, body []byte) error {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.bytes[sha256] = bytes.Clone(body)
		return nil
	})
	server.LoadBlob = append(server.LoadBlob, func(_ context.Context, sha256 string) (io.ReadSeeker, error) {
		m.mu.Lock()
		defer m.mu.Unlock()
		if b, ok := m.bytes[sha256]; ok {
			return bytes.NewReader(b), nil
		}
		return nil, errors.New("not held")
	})
	server.DeleteBlob = append(server.DeleteBlob, func(_ context.Context, sha256 string) error {
		m.mu.Lock()
		defer m.mu.Unlock()
		delete(m.bytes, sha256)
		return nil
	})
	fmt.Println(url)
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}()
	fmt.Fprintln(os.Stderr, http.Serve(ln, relay))
	os.Exit(1)
}
