package selftest

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"fleetmesh.org/fleetmesh/nostr"
	"fleetmesh.org/fleetmesh/nostr/negentropy"
)

// probeCount counts reactions by two keys to an event that nobody else reacts to.
func probeCount(p *probe) (string, error) {
	c, err := p.conn()
	if err != nil {
		return "", err
	}
	second, err := p.other()
	if err != nil {
		return "", err
	}
	now := time.Now().Unix()
	note, err := p.publish(p.author, nostr.KindNote, now, "count the reactions")
	if err != nil {
		return "", err
	}
	tag := nostr.Tag{"e", note.ID.String()}
	var want nostr.HLL
	f := nostr.Filter{Kinds: []nostr.Kind{nostr.KindReaction}, Tags: []nostr.TagFilter{{Letter: 'e', Values: []string{note.ID.String()}}}}
	offset, _ := nostr.HLLOffset(f)
	for _, key := range []nostr.SecretKey{p.author, second} {
		if _, err := p.publish(key, nostr.KindReaction, now, "+", tag); err != nil {
			return "", err
		}
		want.Add(key.PubKey(), offset)
	}
	got, err := c.Count(p.ctx, f)
	if err != nil {
		return "", err
	}
	if got.Count != 2 && !got.Approximate {
		return "", fmt.Errorf("%d counted, there are 2", got.Count)
	}
	both, err := c.Count(p.ctx, f, byIDs(note))
	if err != nil {
		return "", fmt.Errorf("two filters: %w", err)
	}
	if both.Count != 3 && !both.Approximate {
		return "", fmt.Errorf("%d counted for two filters, there are 3", both.Count)
	}
	if got.HLL == nil {
		return "exact; no HyperLogLog", nil
	}
	if *got.HLL != want {
		return "", errors.New("the HyperLogLog is not that of the two keys")
	}
	return "exact, with the right HyperLogLog", nil
}

func probeSearch(p *probe) (string, error) {
	c, err := p.conn()
	if err != nil {
		return "", err
	}
	unique := word()
	e, err := p.publish(p.author, nostr.KindNote, time.Now().Unix(), "search for "+unique+" in here")
	if err != nil {
		return "", err
	}
	if err := p.expect(c, nostr.Filter{Kinds: []nostr.Kind{nostr.KindNote}, Search: unique}, e); err != nil {
		// Some index in the background: give it a moment.
		if err := p.wait(2 * time.Second); err != nil {
			return "", err
		}
		if err := p.expect(c, nostr.Filter{Kinds: []nostr.Kind{nostr.KindNote}, Search: unique}, e); err != nil {
			return "", err
		}
	}
	if err := p.expect(c, nostr.Filter{Kinds: []nostr.Kind{nostr.KindNote}, Search: word()}); err != nil {
		return "", fmt.Errorf("a word that is not there: %w", err)
	}
	return "found by a word, and not by another", nil
}

// probeHints checks that "finish" comes with all events and not with less.
func probeHints(p *probe) (string, error) {
	c, err := p.conn()
	if err != nil {
		return "", err
	}
	now := time.Now().Unix()
	var es []*nostr.Event
	for i := range 3 {
		e, err := p.publish(p.author, nostr.KindNote, now-int64(i), fmt.Sprintf("hint %d", i))
		if err != nil {
			return "", err
		}
		es = append(es, e)
	}
	hints := func(limit int) ([]string, error) {
		f := byIDs(es...)
		f.Limit = &limit
		sub, err := c.Subscribe(p.ctx, f)
		if err != nil {
			return nil, err
		}
		defer sub.Close()
		for {
			d, err := sub.Next(p.ctx)
			if err != nil {
				return nil, err
			}
			if d.EOSE {
				return d.Hints, nil
			}
		}
	}
	all, err := hints(10)
	if err != nil {
		return "", err
	}
	if !slices.Contains(all, "finish") {
		return "", errors.New("no \"finish\" although everything was sent")
	}
	some, err := hints(1)
	if err != nil {
		return "", err
	}
	if slices.Contains(some, "finish") {
		return "", errors.New("\"finish\" although a limit cut the answer")
	}
	if slices.Contains(some, "more") {
		return "\"finish\" with all, \"more\" with less", nil
	}
	return "\"finish\" with all, not with less", nil
}

// probeNegentropy reconciles a set of which one event is on both sides, two are theirs and one ours.
func probeNegentropy(p *probe) (string, error) {
	c, err := p.conn()
	if err != nil {
		return "", err
	}
	now := time.Now().Unix()
	var es []*nostr.Event
	for i := range 3 {
		e, err := p.publish(p.author, nostr.KindNote, now, fmt.Sprintf("reconcile %d", i))
		if err != nil {
			return "", err
		}
		es = append(es, e)
	}
	ours, err := p.sign(p.author, nostr.KindNote, now, "reconcile ours")
	if err != nil {
		return "", err
	}
	set := negentropy.NewVector([]negentropy.Item{
		{Time: uint64(now), ID: es[0].ID}, {Time: uint64(now), ID: ours.ID},
	})
	var have, need []nostr.ID
	st, err := c.Reconcile(p.ctx, byAuthor(p.author), set, 0, func(h, n []nostr.ID) (bool, error) {
		have, need = append(have, h...), append(need, n...)
		return true, nil
	})
	if err != nil {
		return "", err
	}
	if len(have) != 1 || have[0] != ours.ID {
		return "", fmt.Errorf("%d events found to be lacking there, 1 expected", len(have))
	}
	if len(need) != 2 || !slices.Contains(need, es[1].ID) || !slices.Contains(need, es[2].ID) {
		return "", fmt.Errorf("%d events found to be lacking here, 2 expected", len(need))
	}
	return fmt.Sprintf("differences found in %d messages", st.Messages), nil
}
