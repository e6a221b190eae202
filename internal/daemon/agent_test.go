package daemon

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"fleetmesh.org/fleetmesh/internal/identity"
	"fleetmesh.org/fleetmesh/nostr"
)

// serveAgent runs an agent and returns its socket. The directory is short: a socket's path is bounded.
func serveAgent(t *testing.T, k nostr.SecretKey) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "ag")
	if err != nil {
		t.Fatal(err)
	}
	socket := filepath.Join(dir, "s")
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- ServeAgent(ctx, socket, k) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		os.RemoveAll(dir)
	})
	for { // it is there when it answers
		if _, err := dialAgent(socket); err == nil {
			return socket
		}
		select {
		case err := <-ended:
			ended <- err
			t.Fatal(err)
		default:
		}
	}
}

func TestAgentSignsAndAgreesAsTheKeyDoes(t *testing.T) {
	k := nostr.SecretKey{31: 11}
	local, err := identity.NewKeyAgent(k)
	if err != nil {
		t.Fatal(err)
	}
	socket := serveAgent(t, k)
	if fi, err := os.Stat(socket); err != nil || fi.Mode().Perm() != 0o600 {
		t.Errorf("the socket: %v, %v", fi.Mode(), err)
	}
	remote, err := dialAgent(socket)
	if err != nil || remote.PubKey() != local.PubKey() {
		t.Fatal(err)
	}
	digest := [32]byte{1, 2, 3}
	sig, err := remote.Sign(digest)
	if err != nil || !identity.Verify(k.PubKey(), digest, sig) {
		t.Errorf("a signature: %v", err)
	}
	other := nostr.SecretKey{31: 12}.PubKey()
	want, _ := local.SharedX(other)
	if x, err := remote.SharedX(other); err != nil || x != want {
		t.Errorf("an agreement: %v", err)
	}
	if _, err := remote.SharedX(nostr.PubKey{0: 255}); err == nil {
		t.Error("it agreed with what is no key")
	}
	liar := &remoteAgent{socket: socket, key: other}
	if _, err := liar.Sign(digest); err == nil || !strings.Contains(err.Error(), "another key") {
		t.Errorf("a signature of another key was taken: %v", err)
	}
	gone := &remoteAgent{socket: socket + "x", key: other}
	if _, err := gone.Sign(digest); err == nil {
		t.Error("an agent that is gone has signed")
	}
}

func TestAttachedNodeHoldsNoKey(t *testing.T) {
	d := provision(t, Provisioning{}, nil)
	k, err := d.LoadKeys()
	if err != nil {
		t.Fatal(err)
	}
	socket := serveAgent(t, k.Node)
	if _, err := d.Attach(socket); err == nil {
		t.Error("an agent was attached while the key is in the directory")
	}
	if err := os.Remove(d.keyFile("node")); err != nil {
		t.Fatal(err)
	}
	if key, err := d.Attach(socket); err != nil || key != k.Node.PubKey() {
		t.Fatal(err)
	}
	if b, err := d.Backend(); err != nil || !strings.HasPrefix(b, "agent at") {
		t.Errorf("the back end is %q, %v", b, err)
	}
	if _, err := d.LoadKeys(); err == nil {
		t.Error("a secret key came from nowhere")
	}
	a, secret, err := d.openAgent()
	if err != nil || secret != nil || a.PubKey() != k.Node.PubKey() {
		t.Errorf("%v, %v", secret, err)
	}
	// Another node's agent on the same socket is refused.
	if err := writeFile(d.publicFile(), []byte(nostr.SecretKey{31: 9}.PubKey().String()+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, _, err := d.openAgent(); err == nil || !strings.Contains(err.Error(), "not this node's") {
		t.Errorf("another's agent: %v", err)
	}
	path := filepath.Join(t.TempDir(), "backup.tar")
	if _, err := d.Backup(path); err != nil {
		t.Fatal(err)
	}
	if err := (Dir(filepath.Join(t.TempDir(), "n"))).Restore(path); err != nil {
		t.Errorf("a node with an agent is not restored: %v", err)
	}
}
