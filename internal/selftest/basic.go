package selftest

import (
	"context"
	"errors"
	"fmt"
	"time"

	"fleetmesh.org/fleetmesh/internal/gateway"
	"fleetmesh.org/fleetmesh/nostr"
)

// probeBasic: an event is taken, stored, served and streamed; a forged one is not; filters mean what NIP-01 says.
func probeBasic(p *probe) (string, error) {
	c, err := p.conn()
	if err != nil {
		return "", err
	}
	now := time.Now().Unix()
	tag := word()
	sub, err := c.Subscribe(p.ctx, nostr.Filter{Authors: []nostr.PubKey{p.author.PubKey()}, Kinds: []nostr.Kind{1}})
	if err != nil {
		return "", err
	}
	defer sub.Close()
	if err := untilEOSE(p.ctx, sub); err != nil {
		return "", err
	}
	content := "selftest <&> \"quoted\" \\ \u2028 \u00e9"
	e, err := p.publish(p.author, nostr.KindNote, now, content, nostr.Tag{"t", tag})
	if err != nil {
		return "", err
	}
	if err := nextIs(p.ctx, sub, e); err != nil {
		return "", fmt.Errorf("live: %w", err)
	}
	got, err := p.served(c, byIDs(e))
	if err != nil {
		return "", err
	}
	if len(got) != 1 || got[0].Content != content {
		return "", errors.New("the stored event is not served as it was sent")
	}
	byTag := nostr.Filter{Tags: []nostr.TagFilter{{Letter: 't', Values: []string{tag}}}}
	if err := p.expect(c, byTag, e); err != nil {
		return "", fmt.Errorf("by tag: %w", err)
	}
	past := now - 1
	if err := p.expect(c, nostr.Filter{IDs: []nostr.ID{e.ID}, Until: &past}); err != nil {
		return "", fmt.Errorf("until: %w", err)
	}
	forged, err := p.sign(p.author, nostr.KindNote, now, "forged")
	if err != nil {
		return "", err
	}
	forged.Sig[63] ^= 1
	if err := p.refusedWith(c, forged, "invalid"); err != nil {
		return "", fmt.Errorf("an event with a bad signature: %w", err)
	}
	if err := p.replaceable(c, nostr.KindMetadata, "{}"); err != nil {
		return "", err
	}
	return "published, streamed, served by id, tag and time; forgery refused; replaced", nil
}

// replaceable checks that of two versions only the newer is served, in whatever order they come.
func (p *probe) replaceable(c *gateway.Conn, kind nostr.Kind, content string, tags ...nostr.Tag) error {
	now := time.Now().Unix()
	if _, err := p.publish(p.author, kind, now-10, content, tags...); err != nil {
		return err
	}
	newer, err := p.publish(p.author, kind, now-5, content, tags...)
	if err != nil {
		return err
	}
	old, err := p.sign(p.author, kind, now-20, content, tags...)
	if err != nil {
		return err
	}
	if _, err := p.send(c, old); err != nil { // relays differ in what they answer
		return err
	}
	if err := p.expect(c, byAuthor(p.author, kind), newer); err != nil {
		return fmt.Errorf("versions of kind %d: %w", kind, err)
	}
	return nil
}

func untilEOSE(ctx context.Context, s *gateway.Subscription) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	for {
		d, err := s.Next(ctx)
		if err != nil {
			return fmt.Errorf("wait for EOSE: %w", err)
		}
		if d.EOSE {
			return nil
		}
	}
}

func nextIs(ctx context.Context, s *gateway.Subscription, want *nostr.Event) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	for {
		d, err := s.Next(ctx)
		if err != nil {
			return fmt.Errorf("the event did not come: %w", err)
		}
		if d.Event != nil && d.Event.ID == want.ID {
			return nil
		}
	}
}

func probeFollows(p *probe) (string, error) {
	c, err := p.conn()
	if err != nil {
		return "", err
	}
	friend, err := p.other()
	if err != nil {
		return "", err
	}
	if err := p.replaceable(c, nostr.KindFollows, "", nostr.Tag{"p", friend.PubKey().String()}); err != nil {
		return "", err
	}
	byFriend := nostr.Filter{Kinds: []nostr.Kind{nostr.KindFollows}, Tags: []nostr.TagFilter{{Letter: 'p', Values: []string{friend.PubKey().String()}}}}
	es, err := p.served(c, byFriend)
	if err != nil {
		return "", err
	}
	if len(es) != 1 {
		return "", fmt.Errorf("%d follow lists name the friend, 1 expected", len(es))
	}
	return "the newest list replaces the others", nil
}

func probeRelayList(p *probe) (string, error) {
	c, err := p.conn()
	if err != nil {
		return "", err
	}
	if err := p.replaceable(c, nostr.KindRelayList, "", nostr.Tag{"r", "wss://relay.example/"}); err != nil {
		return "", err
	}
	return "the newest list replaces the others", nil
}

func probeDeletion(p *probe) (string, error) {
	c, err := p.conn()
	if err != nil {
		return "", err
	}
	now := time.Now().Unix()
	e, err := p.publish(p.author, nostr.KindNote, now-2, "to be deleted")
	if err != nil {
		return "", err
	}
	stranger, err := p.other()
	if err != nil {
		return "", err
	}
	tag := nostr.Tag{"e", e.ID.String()}
	foreign, err := p.sign(stranger, nostr.KindDeletion, now-1, "", tag)
	if err != nil {
		return "", err
	}
	if _, err := p.send(c, foreign); err != nil { // accepted or not, it must have no effect
		return "", err
	}
	if err := p.expect(c, byIDs(e), e); err != nil {
		return "", fmt.Errorf("after a stranger's request: %w", err)
	}
	request, err := p.sign(p.author, nostr.KindDeletion, now, "", tag, nostr.Tag{"k", "1"})
	if err != nil {
		return "", err
	}
	if a, err := p.send(c, request); err != nil || !a.OK {
		return "", fmt.Errorf("the author's request is refused: %q %w", a.Reason, err)
	}
	if err := p.missing(c, e); err != nil {
		return "", fmt.Errorf("the deleted event: %w", err)
	}
	if _, err := p.send(c, e); err != nil {
		return "", err
	}
	if err := p.missing(c, e); err != nil {
		return "", fmt.Errorf("the deleted event, sent again: %w", err)
	}
	return "gone at its author's request, not at a stranger's, and does not come back", nil
}

func probeInfo(p *probe) (string, error) {
	if p.infoErr != nil {
		return "", p.infoErr
	}
	if len(p.info.SupportedNIPs) == 0 {
		return "", errors.New("it lists no supported NIPs")
	}
	if !p.info.CORS {
		return "", errors.New("it lacks the header Access-Control-Allow-Origin")
	}
	by := ""
	if p.info.Software != "" {
		by = fmt.Sprintf(", by %.60q %.20q", p.info.Software, p.info.Version)
	}
	return fmt.Sprintf("%d NIPs listed%s", len(p.info.SupportedNIPs), by), nil
}

func probeExpiration(p *probe) (string, error) {
	c, err := p.conn()
	if err != nil {
		return "", err
	}
	now := time.Now().Unix()
	expiration := func(at int64) nostr.Tag { return nostr.Tag{"expiration", fmt.Sprint(at)} }
	past, err := p.sign(p.author, nostr.KindNote, now-20, "expired", expiration(now-10))
	if err != nil {
		return "", err
	}
	if _, err := p.send(c, past); err != nil {
		return "", err
	}
	if err := p.missing(c, past); err != nil {
		return "", fmt.Errorf("an event that came expired: %w", err)
	}
	end := time.Now().Unix() + 2
	soon, err := p.publish(p.author, nostr.KindNote, now, "expires soon", expiration(end))
	if err != nil {
		return "", err
	}
	if err := p.expect(c, byIDs(soon), soon); err != nil && time.Now().Unix() < end {
		return "", fmt.Errorf("before its time: %w", err)
	}
	if err := p.wait(time.Until(time.Unix(end+1, 0))); err != nil {
		return "", err
	}
	if err := p.missing(c, soon); err != nil {
		return "", fmt.Errorf("after its time: %w", err)
	}
	return "served before its time, not after", nil
}

// wait lets time pass.
func (p *probe) wait(d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-p.ctx.Done():
		return p.ctx.Err()
	}
}

// probeVanish has the relay forget a key that was made for it.
func probeVanish(p *probe) (string, error) {
	c, err := p.conn()
	if err != nil {
		return "", err
	}
	now := time.Now().Unix()
	e, err := p.publish(p.author, nostr.KindNote, now-2, "vanishes")
	if err != nil {
		return "", err
	}
	by := "by name"
	for _, relay := range []string{c.URL(), "ALL_RELAYS"} {
		request, err := p.sign(p.author, nostr.KindVanish, now, "", nostr.Tag{"relay", relay})
		if err != nil {
			return "", err
		}
		a, err := p.send(c, request)
		if err != nil {
			return "", err
		}
		if a.OK && p.missing(c, e) == nil {
			break
		}
		if relay == "ALL_RELAYS" {
			return "", fmt.Errorf("the author's events are served after the request (%q)", a.Reason)
		}
		by = "by ALL_RELAYS; it does not know itself under this URL"
	}
	if _, err := p.send(c, e); err != nil {
		return "", err
	}
	if err := p.missing(c, e); err != nil {
		return "", fmt.Errorf("an event of before the request, sent again: %w", err)
	}
	return "vanished " + by + ", and does not come back", nil
}

func probeWork(p *probe) (string, error) {
	c, err := p.conn()
	if err != nil {
		return "", err
	}
	bits := p.info.Limitation.MinPoWDifficulty
	if bits > 0 {
		lazy := &nostr.Event{CreatedAt: time.Now().Unix(), Kind: nostr.KindNote, Content: "lazy"}
		if err := lazy.Sign(p.author); err != nil {
			return "", err
		}
		if nostr.PoWDifficulty(lazy.ID) < bits {
			if err := p.refusedWith(c, lazy, "pow"); err != nil {
				return "", fmt.Errorf("an event without work: %w", err)
			}
		}
		if _, err := p.publish(p.author, nostr.KindNote, time.Now().Unix(), "worked for"); err != nil {
			return "", err
		}
		return fmt.Sprintf("%d bits asked for, and enough", bits), nil
	}
	e := &nostr.Event{PubKey: p.author.PubKey(), CreatedAt: time.Now().Unix(), Kind: nostr.KindNote, Content: "worked for"}
	if err := p.mine(e, 12); err != nil {
		return "", err
	}
	if err := e.Sign(p.author); err != nil {
		return "", err
	}
	if err := p.accepted(c, p.author, e); err != nil {
		return "", err
	}
	if err := p.expect(c, byIDs(e), e); err != nil {
		return "", err
	}
	return "no work is asked for; an event with work is taken", nil
}
