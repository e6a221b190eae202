package negentropy_test

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"os"
	"slices"
	"testing"

	"fleetmesh.org/fleetmesh/internal/vectors"
	"fleetmesh.org/fleetmesh/nostr"
	"fleetmesh.org/fleetmesh/nostr/negentropy"
)

type transcript struct {
	Name        string    `json:"name"`
	LimitClient int       `json:"frame_limit_client"`
	LimitServer int       `json:"frame_limit_server"`
	Client      []wireItm `json:"client_items"`
	Server      []wireItm `json:"server_items"`
	Messages    []struct {
		From string `json:"from"`
		Hex  string `json:"hex"`
	} `json:"messages"`
	Have []string `json:"have"`
	Need []string `json:"need"`
}

type wireItm struct{ negentropy.Item }

func (w *wireItm) UnmarshalJSON(b []byte) error {
	var id string
	if err := json.Unmarshal(b, &[]any{&w.Time, &id}); err != nil {
		return err
	}
	_, err := hex.Decode(w.ID[:], []byte(id))
	return err
}

func vector(ws []wireItm) *negentropy.Vector {
	items := make([]negentropy.Item, len(ws))
	for i, w := range ws {
		items[i] = w.Item
	}
	return negentropy.NewVector(items)
}

// TestTranscripts plays whole recorded sessions of the reference and compares
// every message, of both sides, byte for byte.
func TestTranscripts(t *testing.T) {
	raw, err := os.ReadFile(vectors.Path(t, "negentropy", "transcripts-dev.json"))
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Cases []transcript `json:"cases"`
	}
	if err := json.Unmarshal(raw, &file); err != nil {
		t.Fatal(err)
	}
	if len(file.Cases) == 0 {
		t.Fatal("no cases")
	}
	for _, tc := range file.Cases {
		t.Run(tc.Name, func(t *testing.T) { play(t, tc) })
	}
}

func play(t *testing.T, tc transcript) {
	client := negentropy.NewClient(vector(tc.Client), tc.LimitClient)
	server := negentropy.NewServer(vector(tc.Server), tc.LimitServer)
	var have, need []nostr.ID
	msg := client.Initiate()
	for i, want := range tc.Messages {
		wantBytes, err := hex.DecodeString(want.Hex)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(msg, wantBytes) {
			t.Fatalf("message %d (%s) is\n%x, want\n%x", i, want.From, msg, wantBytes)
		}
		if want.From == "client" {
			if msg, err = server.Reconcile(msg); err != nil {
				t.Fatal(err)
			}
			continue
		}
		next, h, n, err := client.Reconcile(msg)
		if err != nil {
			t.Fatal(err)
		}
		msg, have, need = next, append(have, h...), append(need, n...)
	}
	if msg != nil {
		t.Errorf("after %d messages the client goes on: %x", len(tc.Messages), msg)
	}
	compareIDs(t, "have", have, tc.Have)
	compareIDs(t, "need", need, tc.Need)
}

func compareIDs(t *testing.T, what string, got []nostr.ID, want []string) {
	t.Helper()
	g := make([]string, len(got))
	for i, id := range got {
		g[i] = id.String()
	}
	slices.Sort(g)
	w := slices.Clone(want)
	slices.Sort(w)
	w = slices.Compact(w)
	if !slices.Equal(g, w) {
		t.Errorf("%s: got %d ids %v, want %d ids %v", what, len(g), g, len(w), w)
	}
}
