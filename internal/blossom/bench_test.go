package blossom

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"

	"fleetmesh.org/fleetmesh/nostr"
)

// BenchmarkDownload compares whole blobs, which are hashed on their way, and parts of them with net/http's file server.
func BenchmarkDownload(b *testing.B) {
	for _, size := range []int{16 << 10, 4 << 20} {
		dir := b.TempDir()
		d, err := OpenDisk(dir, 0, quiet())
		if err != nil {
			b.Fatal(err)
		}
		defer d.Close()
		body := bytes.Repeat([]byte("0123456789abcdef"), size/16)
		m, _, err := d.Put(b.Context(), bytes.NewReader(body), Incoming{Size: int64(size)})
		if err != nil {
			b.Fatal(err)
		}
		f := serve(b, func(c *Config) { c.Store = d })
		plain := httptest.NewServer(http.FileServer(http.Dir(filepath.Join(dir, "blobs"))))
		defer plain.Close()
		name := m.Hash.String()
		for _, c := range []struct{ what, url, part string }{
			{"whole", f.URL + "/" + name, ""}, {"range", f.URL + "/" + name, fmt.Sprintf("bytes=1-%d", size-1)},
			{"FileServer", plain.URL + "/" + name[:2] + "/" + name, ""},
		} {
			b.Run(fmt.Sprintf("%dKiB/%s", size>>10, c.what), func(b *testing.B) {
				b.SetBytes(int64(size))
				for b.Loop() {
					req, _ := newRequest(c.url)
					if c.part != "" {
						req.Header.Set("Range", c.part)
					}
					resp, err := http.DefaultClient.Do(req)
					if err != nil || resp.StatusCode >= 300 {
						b.Fatal(resp, err)
					}
					if n, err := io.Copy(io.Discard, resp.Body); err != nil || n < int64(size)-1 {
						b.Fatal(n, err)
					}
					resp.Body.Close()
				}
			})
		}
	}
}

// BenchmarkUpload compares with a handler that writes the body to a file and syncs it, and does nothing else.
func BenchmarkUpload(b *testing.B) {
	k, err := nostr.GenerateKey()
	if err != nil {
		b.Fatal(err)
	}
	for _, size := range []int{16 << 10, 4 << 20} {
		d, err := OpenDisk(b.TempDir(), 0, quiet())
		if err != nil {
			b.Fatal(err)
		}
		defer d.Close()
		f := serve(b, func(c *Config) { c.Store = d })
		dir, n := b.TempDir(), 0
		plain := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			n++
			out, err := os.Create(filepath.Join(dir, fmt.Sprint(n)))
			if err == nil {
				_, err = io.Copy(out, r.Body)
			}
			if err != nil || out.Sync() != nil || out.Close() != nil {
				panic(err)
			}
		}))
		defer plain.Close()
		body := bytes.Repeat([]byte("0123456789abcdef"), size/16)
		serial := 0
		for what, url := range map[string]string{"blossom": f.URL + "/upload", "plain": plain.URL} {
			b.Run(fmt.Sprintf("%dKiB/%s", size>>10, what), func(b *testing.B) {
				b.SetBytes(int64(size))
				for b.Loop() {
					b.StopTimer()
					serial++
					copy(body, fmt.Sprintf("%016d", serial))
					auth := token(b, k, VerbUpload, hashed(string(body)))
					b.StartTimer()
					req, _ := http.NewRequestWithContext(context.Background(), "PUT", url, bytes.NewReader(body))
					req.Header.Set("Authorization", auth)
					resp, err := http.DefaultClient.Do(req)
					if err != nil || resp.StatusCode >= 300 {
						b.Fatal(resp, err)
					}
					resp.Body.Close()
				}
			})
		}
	}
}
