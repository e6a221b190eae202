package interop

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"fleetmesh.org/fleetmesh/nostr"
)

// TestPageInChromium does in a real browser what people do at the node's pages: read, sign in by code and by extension, watch, sign out; under
// a relay name that tries to be a script.
func TestPageInChromium(t *testing.T) {
	need(t, "npm")
	need(t, "node")
	need(t, "chromium")
	js, err := npmInstall()
	if err != nil {
		t.Fatalf("npm install: %v", err)
	}
	var operator nostr.SecretKey
	operator[31] = 77
	secret := strings.Repeat("0", 62) + "4d"
	dir := newDir(t)
	mustRun(t, "", "--dir", dir, "init")
	edit(t, dir, "    enrolment: closed\n", "    enrolment: closed\n    descriptorPow: 8\n")
	edit(t, dir, "  class: edge\n", "  class: edge\n  operator:\n    pubkey: "+operator.PubKey().String()+"\n")
	edit(t, dir, "    name: meshnode\n", "    name: '<script>window.pwned=1</script>'\n")
	n := up(t, dir)
	chromium, err := exec.LookPath("chromium")
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("node", filepath.Join(js, "page.mjs"), n.url, binary, dir, chromium, secret)
	cmd.Dir = js
	report(t, n, cmd)
}
