package daemon

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"fleetmesh.org/fleetmesh/internal/control"
	"fleetmesh.org/fleetmesh/internal/identity"
	"fleetmesh.org/fleetmesh/nostr"
)

// The node key can be kept by an agent: a process of its own, perhaps of another user or in another sandbox, that signs and agrees over a Unix
// socket. Then the node directory holds no secret that can sign: with a stolen directory nobody speaks for the node once its
// descriptor has run out.

// agentPatience is how long a node waits for its agent.
const agentPatience = 10 * time.Second

type (
	agentDigest struct {
		Digest string `json:"digest"` // 64 hex digits
	}
	agentSig struct {
		Sig string `json:"sig"` // 128 hex digits
	}
	agentKey struct {
		Key string `json:"key"` // 64 hex digits
	}
)

// ServeAgent keeps a node key and serves it on a socket of mode 0600, until ctx ends.
func ServeAgent(ctx context.Context, socket string, k nostr.SecretKey) error {
	agent, err := identity.NewKeyAgent(k)
	if err != nil {
		return err
	}
	s, err := control.Listen(socket, map[string]control.Handler{
		"agent.pubkey": method(func(context.Context, none) (agentKey, error) { return agentKey{agent.PubKey().String()}, nil }),
		"agent.sign": method(func(_ context.Context, p agentDigest) (agentSig, error) {
			digest, err := parseHexKey(p.Digest)
			if err != nil {
				return agentSig{}, control.BadParams("digest: %v", err)
			}
			sig, err := agent.Sign(digest)
			return agentSig{sig.String()}, err
		}),
		"agent.shared": method(func(_ context.Context, p agentKey) (agentKey, error) {
			with, err := nostr.ParsePubKey(p.Key)
			if err != nil {
				return agentKey{}, control.BadParams("key: %v", err)
			}
			x, err := agent.SharedX(with)
			return agentKey{hex.EncodeToString(x[:])}, err
		}),
	})
	if err != nil {
		return err
	}
	<-ctx.Done()
	return s.Close()
}

// remoteAgent asks the agent behind a socket. Each call is a connection of its own, so an agent that was restarted is simply there again.
type remoteAgent struct {
	socket string
	key    nostr.PubKey
}

var _ identity.Agent = (*remoteAgent)(nil)

func (a *remoteAgent) call(name string, params, result any) error {
	ctx, cancel := context.WithTimeout(context.Background(), agentPatience)
	defer cancel()
	c, err := control.Dial(ctx, a.socket)
	if err != nil {
		return fmt.Errorf("reach the agent that keeps the node key: %w", err)
	}
	defer c.Close()
	if err := c.Call(ctx, name, params, result, nil); err != nil {
		return fmt.Errorf("the agent that keeps the node key: %w", err)
	}
	return nil
}

// PubKey implements identity.Agent.
func (a *remoteAgent) PubKey() nostr.PubKey { return a.key }

// Sign implements identity.Agent. What comes back is verified: a wrong signature would be found by every peer.
func (a *remoteAgent) Sign(digest [32]byte) (sig nostr.Sig, err error) {
	var r agentSig
	if err := a.call("agent.sign", agentDigest{hex.EncodeToString(digest[:])}, &r); err != nil {
		return sig, err
	}
	if n, err := hex.Decode(sig[:], []byte(r.Sig)); err != nil || n != len(sig) || len(r.Sig) != 2*len(sig) {
		return nostr.Sig{}, errors.New("the agent that keeps the node key answers with no signature")
	}
	if !identity.Verify(a.key, digest, sig) {
		return nostr.Sig{}, errors.New("the agent that keeps the node key signs with another key")
	}
	return sig, nil
}

// SharedX implements identity.Agent.
func (a *remoteAgent) SharedX(with nostr.PubKey) (x [32]byte, err error) {
	var r agentKey
	if err := a.call("agent.shared", agentKey{with.String()}, &r); err != nil {
		return x, err
	}
	return parseHexKey(r.Key)
}

func dialAgent(socket string) (*remoteAgent, error) {
	a := &remoteAgent{socket: socket}
	var r agentKey
	if err := a.call("agent.pubkey", none{}, &r); err != nil {
		return nil, err
	}
	var err error
	a.key, err = nostr.ParsePubKey(r.Key)
	return a, err
}

// agentFile names the socket of the agent, where there is one.
func (d Dir) agentFile() string { return filepath.Join(d.Keys(), "agent") }

// agentSocket returns the agent's socket, "" where the directory itself holds the node key.
func (d Dir) agentSocket() (string, error) {
	if _, err := os.Stat(d.agentFile()); errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	socket, err := d.secretText(d.agentFile(), "agent's socket")
	if err != nil {
		return "", err
	}
	if _, err := os.Stat(d.keyFile("node")); err == nil {
		return "", fmt.Errorf("read the node key: %s says that an agent keeps it, and %s is still here: move it away", d.agentFile(), d.keyFile("node"))
	}
	return socket, nil
}

// openAgent returns who signs for the node. secret is nil where that is a process of its own.
func (d Dir) openAgent() (a identity.Agent, secret *nostr.SecretKey, err error) {
	socket, err := d.agentSocket()
	if err != nil {
		return nil, nil, err
	}
	if socket == "" {
		k, err := d.readNodeKey()
		if err != nil {
			return nil, nil, err
		}
		local, err := identity.NewKeyAgent(k)
		return local, &k, err
	}
	remote, err := dialAgent(socket)
	if err != nil {
		return nil, nil, err
	}
	if key, err := d.PublicKey(); err != nil || key != remote.key {
		return nil, nil, fmt.Errorf("the agent at %s keeps the key of %s, which is not this node's", socket, identity.FormatDID(remote.key))
	}
	return remote, nil, nil
}

// Attach makes a node use the agent behind a socket. The node key must have been moved out of the directory before.
func (d Dir) Attach(socket string) (nostr.PubKey, error) {
	socket, err := filepath.Abs(socket)
	if err != nil {
		return nostr.PubKey{}, err
	}
	if _, err := os.Stat(d.keyFile("node")); err == nil {
		return nostr.PubKey{}, fmt.Errorf("attach an agent: %s is still here: move it to where the agent runs", d.keyFile("node"))
	}
	a, err := dialAgent(socket)
	if err != nil {
		return nostr.PubKey{}, err
	}
	if err := writeFile(d.publicFile(), []byte(a.key.String()+"\n"), 0o600); err != nil {
		return nostr.PubKey{}, fmt.Errorf("attach an agent: %w", err)
	}
	if err := writeFile(d.agentFile(), []byte(socket+"\n"), 0o600); err != nil {
		return nostr.PubKey{}, fmt.Errorf("attach an agent: %w", err)
	}
	return a.key, nil
}
