package selftest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"fleetmesh.org/fleetmesh/internal/gateway"
	"fleetmesh.org/fleetmesh/nostr"
)

const kindMessage, kindInbox nostr.Kind = 14, 10050 // NIP-17

// wrapped publishes a message from the author to a new recipient.
func (p *probe) wrapped(text string) (wrap *nostr.Event, to nostr.SecretKey, err error) {
	if to, err = p.other(); err != nil {
		return nil, to, err
	}
	now := time.Now().Unix()
	rumor := &nostr.Event{CreatedAt: now, Kind: kindMessage, Tags: []nostr.Tag{{"p", to.PubKey().String()}}, Content: text}
	wrap, err = nostr.Wrap(rumor, p.author, to.PubKey(), nostr.KindGiftWrap, now, nil)
	if err != nil {
		return nil, to, err
	}
	if p.info.Limitation.MinPoWDifficulty > 0 {
		return nil, to, skip("wraps with proof of work")
	}
	c, err := p.conn()
	if err != nil {
		return nil, to, err
	}
	a, err := p.send(c, wrap)
	switch {
	case err != nil:
		return nil, to, err
	case !a.OK && p.closedShop(a):
		return nil, to, skip("writing is restricted: %q", a.Reason)
	case !a.OK:
		return nil, to, fmt.Errorf("a gift wrap is refused: %q", a.Reason)
	}
	return wrap, to, nil
}

// reader connects as a key, and authenticates at once where the relay lets it.
func (p *probe) reader(key nostr.SecretKey) (*gateway.Conn, error) {
	c, err := p.dial(&key)
	if err != nil {
		return nil, err
	}
	if p.info.Supports(42) {
		// Where no challenge comes unasked, the connection authenticates when refused.
		ctx, cancel := context.WithTimeout(p.ctx, 2*time.Second)
		defer cancel()
		if err := c.Auth(ctx, key); err != nil && c.Challenge() != "" {
			return nil, fmt.Errorf("authenticate: %w", err)
		}
	}
	return c, nil
}

func toKey(key nostr.SecretKey, kind nostr.Kind) nostr.Filter {
	return nostr.Filter{Kinds: []nostr.Kind{kind}, Tags: []nostr.TagFilter{{Letter: 'p', Values: []string{key.PubKey().String()}}}}
}

// received checks that the recipient gets a wrap and can read it.
func (p *probe) received(wrap *nostr.Event, to nostr.SecretKey, text string) error {
	c, err := p.reader(to)
	if err != nil {
		return err
	}
	es, err := p.served(c, toKey(to, nostr.KindGiftWrap))
	if err != nil {
		return fmt.Errorf("the recipient: %w", err)
	}
	if len(es) != 1 || es[0].ID != wrap.ID {
		return fmt.Errorf("the recipient gets %d wraps, 1 expected", len(es))
	}
	rumor, err := nostr.Unwrap(es[0], to)
	if err != nil {
		return fmt.Errorf("what the recipient gets: %w", err)
	}
	if rumor.Content != text || rumor.PubKey != p.author.PubKey() {
		return errors.New("the recipient gets another message")
	}
	return nil
}

func probeMessages(p *probe) (string, error) {
	c, err := p.conn()
	if err != nil {
		return "", err
	}
	if err := p.replaceable(c, kindInbox, "", nostr.Tag{"relay", c.URL()}); err != nil {
		return "", fmt.Errorf("the list of inboxes: %w", err)
	}
	text := word()
	wrap, to, err := p.wrapped(text)
	if err != nil {
		return "", err
	}
	if err := p.received(wrap, to, text); err != nil {
		return "", err
	}
	return "a message reaches its recipient, who can read it", nil
}

// probePayload: NIP-44 asks nothing of a relay, but that it passes payloads on as they are.
func probePayload(p *probe) (string, error) {
	text := strings.Repeat("\u00e9\U0001f510", 200)
	wrap, to, err := p.wrapped(text)
	if err != nil {
		return "", err
	}
	if err := p.received(wrap, to, text); err != nil {
		return "", err
	}
	return "a payload comes back whole", nil
}

func probeWraps(p *probe) (string, error) {
	text := word()
	wrap, to, err := p.wrapped(text)
	if err != nil {
		return "", err
	}
	nobody, err := p.dial(nil)
	if err != nil {
		return "", err
	}
	stranger, err := p.other()
	if err != nil {
		return "", err
	}
	known, err := p.reader(stranger)
	if err != nil {
		return "", err
	}
	for who, c := range map[string]*gateway.Conn{"nobody": nobody, "a stranger": known} {
		for _, f := range []nostr.Filter{toKey(to, nostr.KindGiftWrap), byIDs(wrap)} {
			es, err := c.QueryAll(p.ctx, f)
			var closed *gateway.ClosedError
			if err != nil && !errors.As(err, &closed) && !errors.Is(err, gateway.ErrAuthRequired) {
				return "", fmt.Errorf("as %s: %w", who, err)
			}
			if len(es) > 0 {
				return "", fmt.Errorf("%s can read a wrap", who)
			}
		}
	}
	if err := p.received(wrap, to, text); err != nil {
		return "", err
	}
	return "only the recipient reads a wrap", nil
}

// provoke makes the relay ask for authentication, if it has not done so on its own.
func (p *probe) provoke(c *gateway.Conn) error {
	f := nostr.Filter{Kinds: []nostr.Kind{4, nostr.KindGiftWrap}, Tags: toKey(p.author, 4).Tags}
	if _, err := c.QueryAll(p.ctx, f); err != nil {
		var closed *gateway.ClosedError
		if !errors.As(err, &closed) && !errors.Is(err, gateway.ErrAuthRequired) {
			return err
		}
	}
	if c.Challenge() != "" {
		return nil
	}
	e, err := p.sign(p.author, nostr.KindNote, time.Now().Unix(), "protected", nostr.Tag{"-"})
	if err != nil {
		return err
	}
	if _, err := p.send(c, e); err != nil {
		return err
	}
	if c.Challenge() == "" {
		return errors.New("the relay never sends a challenge")
	}
	return nil
}

func probeAuth(p *probe) (string, error) {
	c, err := p.dial(nil)
	if err != nil {
		return "", err
	}
	if err := p.provoke(c); err != nil {
		return "", err
	}
	if err := c.AuthWith(p.ctx, p.author, c.URL(), "not the challenge"); err == nil {
		return "", errors.New("a wrong challenge is accepted")
	} else if !errors.Is(err, gateway.ErrAuthRequired) {
		return "", fmt.Errorf("a wrong challenge: %w", err)
	}
	if err := c.AuthWith(p.ctx, p.author, "wss://elsewhere.example/", c.Challenge()); err == nil {
		return "", errors.New("another relay's URL is accepted")
	} else if !errors.Is(err, gateway.ErrAuthRequired) {
		return "", fmt.Errorf("another relay's URL: %w", err)
	}
	if err := c.Auth(p.ctx, p.author); err != nil {
		return "", err
	}
	second, err := p.other()
	if err != nil {
		return "", err
	}
	if err := c.Auth(p.ctx, second); err != nil {
		return "", fmt.Errorf("a second key: %w", err)
	}
	return "two keys accepted; wrong challenge and wrong relay refused", nil
}

func probeProtected(p *probe) (string, error) {
	e, err := p.sign(p.author, nostr.KindNote, time.Now().Unix(), "protected", nostr.Tag{"-"})
	if err != nil {
		return "", err
	}
	nobody, err := p.dial(nil)
	if err != nil {
		return "", err
	}
	if err := p.refusedWith(nobody, e); err != nil {
		return "", fmt.Errorf("a protected event by nobody: %w", err)
	}
	if !p.info.Supports(42) {
		return "refused, as there is no authentication", nil
	}
	stranger, err := p.other()
	if err != nil {
		return "", err
	}
	known, err := p.reader(stranger)
	if err != nil {
		return "", err
	}
	if err := p.refusedWith(known, e); err != nil {
		return "", fmt.Errorf("a protected event by a stranger: %w", err)
	}
	own, err := p.reader(p.author)
	if err != nil {
		return "", err
	}
	a, err := p.send(own, e)
	if err != nil {
		return "", err
	}
	if !a.OK {
		return "refused to everybody: " + a.Reason, nil
	}
	p.made = append(p.made, made{p.author, e})
	return "taken from its author alone", nil
}
