package s3

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"fleetmesh.org/fleetmesh/internal/blossom"
)

// server starts s3rver, a foreign S3 server from npm, with one bucket, and returns its address.
func server(t *testing.T) string {
	t.Helper()
	if testing.Short() {
		t.Skip("installs a server from npm")
	}
	if _, err := exec.LookPath("npm"); err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal(err)
		}
		t.Skip("npm is not installed: ./test.sh installs what the tests need")
	}
	dir := t.TempDir()
	install := exec.Command("npm", "install", "--no-audit", "--no-fund", "--no-save", "--loglevel=error", "--prefix", dir, "s3rver@3.7.1")
	if out, err := install.CombinedOutput(); err != nil {
		t.Fatalf("npm install: %v: %s", err, out)
	}
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := free.Addr().String()
	host, port, _ := net.SplitHostPort(address)
	free.Close()
	cmd := exec.Command("node", filepath.Join(dir, "node_modules/s3rver/bin/s3rver.js"), "-d", filepath.Join(dir, "data"), "-a", host, "-p", port,
		"--configure-bucket", "blobs", "--no-vhost-buckets")
	var log bytes.Buffer
	cmd.Stdout, cmd.Stderr = &log, &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("the server said:\n%s", &log)
		}
	})
	for end := time.Now().Add(60 * time.Second); ; {
		c, err := net.Dial("tcp", address)
		if err == nil {
			c.Close()
			return "http://" + address
		}
		if time.Now().After(end) {
			t.Fatal("the server does not listen")
		}
		<-time.After(50 * time.Millisecond)
	}
}

func TestBucket(t *testing.T) {
	endpoint := server(t)
	t.Setenv("AWS_ACCESS_KEY_ID", "S3RVER")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "S3RVER")
	cfg := Config{Endpoint: endpoint, Bucket: "blobs", Prefix: "mesh/", Region: "us-east-1"}
	b, err := Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Run("objects", func(t *testing.T) { objects(t, b) })
	t.Run("store", func(t *testing.T) { stored(t, b) })
	t.Run("credentials", func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "credentials")
		for id, good := range map[string]bool{"S3RVER": true, "NOBODY": false} {
			text := fmt.Sprintf("[default]\naws_access_key_id = %s\naws_secret_access_key = S3RVER\n", id)
			if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			cfg := cfg
			cfg.Credentials = file
			b, err := Open(t.Context(), cfg)
			if err == nil {
				err = b.Put(t.Context(), "signed", strings.NewReader("x"), 1, sha256.Sum256([]byte("x")))
			}
			if (err == nil) != good {
				t.Errorf("the key %q: %v", id, err)
			}
		}
	})
	t.Run("absent", func(t *testing.T) {
		cfg := cfg
		cfg.Bucket = "nowhere"
		if _, err := Open(t.Context(), cfg); err == nil || !strings.Contains(err.Error(), "make it first") {
			t.Error(err)
		}
	})
}

func objects(t *testing.T, b *Bucket) {
	ctx := t.Context()
	text := []byte("an object")
	if err := b.Put(ctx, "blobs/aa/one", bytes.NewReader(text), int64(len(text)), sha256.Sum256(text)); err != nil {
		t.Fatal(err)
	}
	o, err := b.Stat(ctx, "blobs/aa/one")
	if err != nil || o.Size != int64(len(text)) || o.Modified.IsZero() {
		t.Fatalf("%+v, %v", o, err)
	}
	for offset := range int64(len(text)) {
		r, err := b.Get(ctx, "blobs/aa/one", offset)
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(r)
		r.Close()
		if err != nil || !bytes.Equal(got, text[offset:]) {
			t.Fatalf("from %d: %q, %v", offset, got, err)
		}
	}
	if _, err := b.Stat(ctx, "blobs/aa/none"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a missing object: %v", err)
	}
	var names []string
	for o, err := range b.List(ctx, "blobs/") {
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, o.Name)
	}
	if len(names) != 1 || names[0] != "blobs/aa/one" {
		t.Errorf("listed %v", names)
	}
	for range 2 {
		if err := b.Remove(ctx, "blobs/aa/one"); err != nil {
			t.Errorf("remove: %v", err)
		}
	}
}

func stored(t *testing.T, b *Bucket) {
	ctx := context.Background()
	open := func(dir string) *blossom.Disk {
		t.Helper()
		d, err := blossom.OpenBucket(dir, b, 0, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	big := make([]byte, 20<<20) // more than one part of a multipart upload
	_, _ = rand.Read(big)
	dir := t.TempDir()
	d := open(dir)
	m, created, err := d.Put(ctx, bytes.NewReader(big), blossom.Incoming{Size: int64(len(big)), Type: "application/zip", Now: 1})
	if err != nil || !created || m.Hash != sha256.Sum256(big) {
		t.Fatal(m, created, err)
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{dir, t.TempDir()} { // the same directory, and a lost one
		d = open(dir)
		if err := d.Verify(ctx, m.Hash); err != nil {
			t.Fatal(err)
		}
		f, _, err := d.Open(ctx, m.Hash)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.Seek(-5, io.SeekEnd); err != nil {
			t.Fatal(err)
		}
		if got, err := io.ReadAll(f); err != nil || !bytes.Equal(got, big[len(big)-5:]) {
			t.Fatalf("the end is %x, %v", got, err)
		}
		f.Close()
		if err := d.Close(); err != nil {
			t.Fatal(err)
		}
	}
	d = open(dir)
	defer d.Close()
	if _, err := d.Remove(ctx, m.Hash, false); err != nil {
		t.Fatal(err)
	}
	for o, err := range b.List(ctx, "blobs/") {
		t.Errorf("left in the bucket: %v %v", o, err)
	}
}
