package interop

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"fleetmesh.org/fleetmesh/internal/store/pgtest"
)

// TestFaces runs two nodes on one real PostgreSQL: what a client gives to one reaches a live subscription at the other, and both answer
// with the same set.
func TestFaces(t *testing.T) {
	server, err := pgtest.Start(t.Context())
	if errors.Is(err, pgtest.ErrAbsent) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	defer server.Stop()
	dsn, err := server.Database(t.Context(), "faces")
	if err != nil {
		t.Fatal(err)
	}
	var faces []*node
	for range 2 {
		dir := newDir(t)
		mustRun(t, "", "init", "--dir", dir)
		config := fmt.Sprintf("apiVersion: fleetmesh.org/v1alpha1\nkind: MeshNode\nmetadata: {name: face}\nspec:\n  class: edge\n"+
			"  relay: {listen: \"127.0.0.1:0\", name: face}\n  storage: {engine: postgres, dsn: %q}\n  federation: {enrolment: closed}\n", dsn)
		if err := os.WriteFile(filepath.Join(dir, "node.yaml"), []byte(config), 0o600); err != nil {
			t.Fatal(err)
		}
		faces = append(faces, up(t, dir))
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	ws, _, err := websocket.Dial(ctx, faces[1].url, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer ws.CloseNow()
	if err := ws.Write(ctx, websocket.MessageText, []byte(`["REQ","live",{"kinds":[1,20001]}]`)); err != nil {
		t.Fatal(err)
	}
	await := func(what string) {
		t.Helper()
		for {
			_, frame, err := ws.Read(ctx)
			if err != nil {
				t.Fatalf("no %s: %v", what, err)
			}
			if strings.Contains(string(frame), what) {
				return
			}
		}
	}
	await("EOSE")
	for i := range 20 {
		note := fmt.Sprintf("note %d across", i)
		mustRun(t, "", "event", "--content", note, "--relay", faces[0].url)
		await(note)
	}
	ephemeral := "passing " + strings.Repeat("across ", 3000) // more than one notice of the database takes
	mustRun(t, "", "event", "--kind", "20001", "--content", ephemeral, "--relay", faces[0].url)
	await(ephemeral)
	a := mustRun(t, "", "store", "fingerprint", "--dir", faces[0].dir, `{"kinds":[1]}`)
	if b := mustRun(t, "", "store", "fingerprint", "--dir", faces[1].dir, `{"kinds":[1]}`); a != b || !strings.Contains(a, "20") {
		t.Errorf("fingerprints %q and %q", a, b)
	}
	mustRun(t, "", "selftest", faces[1].url)
}
