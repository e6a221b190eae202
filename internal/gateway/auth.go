package gateway

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"fleetmesh.org/fleetmesh/nostr"
)

// ErrAuthRequired says that the relay wants authentication (NIP-42) and there
// is no key to do it with, or no challenge came.
var ErrAuthRequired = errors.New("the relay requires authentication")

// authState is guarded by Conn.mu, but for the gate.
type authState struct {
	challenge string
	changed   chan struct{} // closed and renewed with every challenge
	done      map[authDone]bool
	gate      sync.Mutex // one authentication at a time
}

type authDone struct {
	key       nostr.PubKey
	challenge string
}

func (c *Conn) onChallenge(challenge string) {
	c.mu.Lock()
	c.auth.challenge = challenge
	close(c.auth.changed)
	c.auth.changed = make(chan struct{})
	c.mu.Unlock()
}

// Challenge returns the latest challenge, "" if none came yet.
func (c *Conn) Challenge() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.auth.challenge
}

// Auth authenticates with a key (NIP-42). It waits for a challenge if none has come. A
// connection may authenticate with several keys, one after the other; with the same key
// and challenge it does so once.
func (c *Conn) Auth(ctx context.Context, key nostr.SecretKey) error {
	c.auth.gate.Lock()
	defer c.auth.gate.Unlock()
	ctx, cancel := context.WithTimeout(ctx, c.opt.ReplyTimeout)
	defer cancel()
	challenge, err := c.awaitChallenge(ctx)
	if err != nil {
		return err
	}
	mark := authDone{key.PubKey(), challenge}
	c.mu.Lock()
	known := c.auth.done[mark]
	c.mu.Unlock()
	if known {
		return nil
	}
	if err := c.AuthWith(ctx, key, c.url, challenge); err != nil {
		return err
	}
	c.mu.Lock()
	if c.auth.done == nil {
		c.auth.done = map[authDone]bool{}
	}
	c.auth.done[mark] = true
	c.mu.Unlock()
	return nil
}

// AuthWith sends one authentication for a relay URL and a challenge of the caller's choice. It is
// for trying out what a relay accepts; see Auth. A refusal wraps ErrAuthRequired.
func (c *Conn) AuthWith(ctx context.Context, key nostr.SecretKey, relay, challenge string) error {
	e := &nostr.Event{
		CreatedAt: time.Now().Unix(),
		Kind:      nostr.KindClientAuth,
		Tags:      []nostr.Tag{{"relay", relay}, {"challenge", challenge}},
	}
	if err := e.Sign(key); err != nil {
		return fmt.Errorf("sign the authentication: %w", err)
	}
	a, err := c.roundTrip(ctx, e, nostr.AppendAuthEvent(nil, e))
	if err != nil {
		return fmt.Errorf("authenticate: %w", err)
	}
	if !a.OK {
		return fmt.Errorf("%w, and refused ours: %q", ErrAuthRequired, a.Reason)
	}
	return nil
}

func (c *Conn) awaitChallenge(ctx context.Context) (string, error) {
	for {
		c.mu.Lock()
		challenge, changed := c.auth.challenge, c.auth.changed
		c.mu.Unlock()
		if challenge != "" {
			return challenge, nil
		}
		select {
		case <-changed:
		case <-c.done:
			return "", c.Err()
		case <-ctx.Done():
			return "", fmt.Errorf("%w, but sent no challenge", ErrAuthRequired)
		}
	}
}

// satisfy answers a refusal for want of authentication, if the options hold a key. It
// returns nil if the request may be sent again.
func (c *Conn) satisfy(ctx context.Context) error {
	if c.opt.Key == nil {
		return ErrAuthRequired
	}
	return c.Auth(ctx, *c.opt.Key)
}
