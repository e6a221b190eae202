package interop

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"fleetmesh.org/fleetmesh/nostr"
)

// TestBlobGoesWithItsEvent has a client publish a note, upload the blob that it names, and delete the note: the blob goes too, and the node
// shows its signed answer.
func TestBlobGoesWithItsEvent(t *testing.T) {
	dir := newDir(t)
	mustRun(t, "", "init", "--dir", dir)
	config, err := os.ReadFile(filepath.Join(dir, "node.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	config = bytes.Replace(config, []byte("  storage:\n"), []byte("  blobs: {enabled: true}\n  storage:\n"), 1)
	if err := os.WriteFile(filepath.Join(dir, "node.yaml"), config, 0o600); err != nil {
		t.Fatal(err)
	}
	n := up(t, dir)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	k, err := nostr.GenerateKey()
	if err != nil {
		t.Fatal(err)
	}
	signed := func(e *nostr.Event) *nostr.Event {
		e.CreatedAt = time.Now().Unix()
		if err := e.Sign(k); err != nil {
			t.Fatal(err)
		}
		return e
	}
	ws, _, err := websocket.Dial(ctx, n.url, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer ws.CloseNow()
	publish := func(e *nostr.Event) {
		t.Helper()
		if err := ws.Write(ctx, websocket.MessageText, fmt.Appendf(nil, `["EVENT",%s]`, e.JSON())); err != nil {
			t.Fatal(err)
		}
		for {
			_, frame, err := ws.Read(ctx)
			if err != nil {
				t.Fatal(err)
			}
			if strings.Contains(string(frame), `"OK"`) {
				if !strings.Contains(string(frame), "true") {
					t.Fatalf("%s", frame)
				}
				return
			}
		}
	}
	body := []byte("a picture of nothing")
	sum := sha256.Sum256(body)
	name := hex.EncodeToString(sum[:])
	web := strings.Replace(n.url, "ws://", "http://", 1) + "/"
	note := signed(&nostr.Event{Kind: 1, Content: "look: " + web + name})
	publish(note)
	token := signed(&nostr.Event{Kind: 24242, Content: "upload", Tags: []nostr.Tag{{"t", "upload"}, {"x", name}, {"expiration", strconv.FormatInt(time.Now().Unix()+60, 10)}}})
	do := func(method, path string, body []byte) int {
		t.Helper()
		req, err := http.NewRequestWithContext(ctx, method, web+path, bytes.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		if body != nil {
			req.Header.Set("Authorization", "Nostr "+base64.StdEncoding.EncodeToString(token.JSON()))
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		return resp.StatusCode
	}
	if code := do("PUT", "upload", body); code != http.StatusCreated {
		t.Fatalf("upload: %d", code)
	}
	if code := do("GET", name, nil); code != http.StatusOK {
		t.Fatalf("get: %d", code)
	}
	if out := mustRun(t, "", "blobs", "trace", "--dir", dir, note.ID.String()); !strings.Contains(out, name+"  here: yes") {
		t.Errorf("trace: %s", out)
	}
	publish(signed(&nostr.Event{Kind: 5, Tags: []nostr.Tag{{"e", note.ID.String()}}}))
	for do("GET", name, nil) != http.StatusNotFound {
		select {
		case <-ctx.Done():
			t.Fatal("the blob is still there")
		case <-time.After(20 * time.Millisecond):
		}
	}
	if out := mustRun(t, "", "blobs", "erasures", "--dir", dir, "--json", "--blob", name); !strings.Contains(out, `"deleted"`) || !strings.Contains(out, `"sig"`) {
		t.Errorf("erasures: %s", out)
	}
	if out := mustRun(t, "", "blobs", "--dir", dir); !strings.Contains(out, "0 blobs") {
		t.Errorf("status: %s", out)
	}
}
