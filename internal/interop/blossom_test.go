package interop

import (
	"os/exec"
	"path/filepath"
	"testing"
)

// TestBlossomClient drives the blob faces of two nodes with a foreign client.
func TestBlossomClient(t *testing.T) {
	need(t, "npm")
	need(t, "node")
	js, err := npmInstall()
	if err != nil {
		t.Fatalf("npm install: %v", err)
	}
	var urls []string
	var nodes []*node
	for range 2 {
		dir := newDir(t)
		mustRun(t, "", "--dir", dir, "init")
		edit(t, dir, "  relay:\n", "  blobs: {enabled: true, path: blobs, maxBytes: 10000000, maxBlobBytes: 1000000, mirrorLocal: true}\n  relay:\n")
		n := up(t, dir)
		nodes, urls = append(nodes, n), append(urls, n.url)
	}
	cmd := exec.Command("node", filepath.Join(js, "blossom.mjs"), urls[0], urls[1])
	cmd.Dir = js
	report(t, nodes[0], cmd)
	for _, n := range nodes {
		n.stop(t)
	}
}
