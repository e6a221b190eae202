package interop

import (
	"bufio"
	"os/exec"
	"path/filepath"
	"strings"
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

// TestBlossomKhatru moves blobs between a node and a foreign Blossom server.
func TestBlossomKhatru(t *testing.T) {
	need(t, "npm")
	need(t, "node")
	js, err := npmInstall()
	if err != nil {
		t.Fatalf("npm install: %v", err)
	}
	server := filepath.Join(t.TempDir(), "khatru")
	build := exec.Command("go", "build", "-o", server, ".")
	build.Dir = "khatru"
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build khatru: %v\n%s", err, out)
	}
	foreign := exec.Command(server)
	stdin, err := foreign.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := foreign.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := foreign.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		stdin.Close()
		_ = foreign.Wait()
	})
	url, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil {
		t.Fatalf("khatru does not serve: %v", err)
	}
	dir := newDir(t)
	mustRun(t, "", "--dir", dir, "init")
	edit(t, dir, "  relay:\n", "  blobs: {enabled: true, withoutEvent: true, mirrorLocal: true}\n  relay:\n")
	n := up(t, dir)
	cmd := exec.Command("node", filepath.Join(js, "blossom-khatru.mjs"), n.url, strings.TrimSpace(url))
	cmd.Dir = js
	report(t, n, cmd)
	n.stop(t)
}
