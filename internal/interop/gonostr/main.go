// Command gonostr is go-nostr as a foreign client: publish, query, subscribe, count,
// auth and negentropy against the relay at the URL it is given. It prints "ok STEP" a step
// and ends with status 1 at the first failure.
package main

import (
	"context"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/nbd-wtf/go-nostr"
	"github.com/nbd-wtf/go-nostr/nip77"
)

type client struct {
	ctx   context.Context
	url   string
	relay *nostr.Relay
	sk    string
	pk    string
	began nostr.Timestamp
	notes []nostr.Event
}

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: gonostr ws://HOST:PORT")
		os.Exit(2)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	sk := nostr.GeneratePrivateKey()
	pk, _ := nostr.GetPublicKey(sk)
	c := &client{ctx: ctx, url: os.Args[1], sk: sk, pk: pk, began: nostr.Now()}
	for _, step := range []struct {
		name string
		run  func() error
	}{
		{"connect", c.connect}, {"publish", c.publish}, {"query", c.query}, {"subscribe live", c.live},
		{"count", c.count}, {"auth and a protected event", c.auth}, {"negentropy", c.negentropy},
	} {
		if err := step.run(); err != nil {
			fmt.Printf("FAIL %s: %v\n", step.name, err)
			os.Exit(1)
		}
		fmt.Println("ok", step.name)
	}
}

// make signs a note that is at seconds older than the run, so that a second that ends in the middle makes no two alike.
func (c *client) make(content string, at int, tags ...nostr.Tag) nostr.Event {
	e := nostr.Event{Kind: 1, CreatedAt: c.began - nostr.Timestamp(at), Content: content, Tags: append(nostr.Tags{}, tags...)}
	_ = e.Sign(c.sk)
	return e
}

func (c *client) connect() (err error) {
	c.relay, err = nostr.RelayConnect(c.ctx, c.url)
	return err
}

func (c *client) publish() error {
	for i := range 30 {
		e := c.make(fmt.Sprintf("go-nostr %d <&>", i), i, nostr.Tag{"t", "gonostr"})
		if err := c.relay.Publish(c.ctx, e); err != nil {
			return err
		}
		c.notes = append(c.notes, e)
	}
	return nil
}

func (c *client) query() error {
	got, err := c.relay.QuerySync(c.ctx, nostr.Filter{Authors: []string{c.pk}, Kinds: []int{1}})
	if err != nil {
		return err
	}
	if len(got) != len(c.notes) || got[0].ID != c.notes[0].ID {
		return fmt.Errorf("got %d events, want %d, newest first", len(got), len(c.notes))
	}
	for _, e := range got {
		if ok, _ := e.CheckSignature(); !ok {
			return fmt.Errorf("signature of %s", e.ID)
		}
	}
	return nil
}

func (c *client) live() error {
	sub, err := c.relay.Subscribe(c.ctx, nostr.Filters{{Tags: nostr.TagMap{"t": {"live"}}, Authors: []string{c.pk}}})
	if err != nil {
		return err
	}
	defer sub.Unsub()
	<-sub.EndOfStoredEvents
	e := c.make("live", 0, nostr.Tag{"t", "live"})
	if err := c.relay.Publish(c.ctx, e); err != nil {
		return err
	}
	select {
	case got := <-sub.Events:
		if got.ID != e.ID {
			return fmt.Errorf("got %s", got.ID)
		}
		c.notes = append(c.notes, e)
		return nil
	case <-c.ctx.Done():
		return c.ctx.Err()
	}
}

func (c *client) count() error {
	n, _, err := c.relay.Count(c.ctx, nostr.Filters{{Authors: []string{c.pk}}})
	if err == nil && int(n) != len(c.notes) {
		return fmt.Errorf("count %d, want %d", n, len(c.notes))
	}
	return err
}

func (c *client) auth() error {
	e := c.make("protected", 1, nostr.Tag{"-"})
	if err := c.relay.Publish(c.ctx, e); err == nil {
		return fmt.Errorf("a protected event passed without auth")
	}
	if err := c.relay.Auth(c.ctx, func(a *nostr.Event) error { return a.Sign(c.sk) }); err != nil {
		return err
	}
	c.notes = append(c.notes, e)
	return c.relay.Publish(c.ctx, e)
}

// negentropy pulls everything into an empty local set with go-nostr's own NIP-77 client.
func (c *client) negentropy() error {
	local := &memory{}
	if err := nip77.NegentropySync(c.ctx, local, c.url, nostr.Filter{Authors: []string{c.pk}}, nip77.Down); err != nil {
		return err
	}
	var want []string
	for _, e := range c.notes {
		want = append(want, e.ID)
	}
	slices.Sort(want)
	slices.Sort(local.ids)
	if !slices.Equal(want, local.ids) {
		return fmt.Errorf("pulled %d events, want %d", len(local.ids), len(want))
	}
	return nil
}

type memory struct{ ids []string }

func (m *memory) Init() error { return nil }
func (m *memory) Close()      {}
func (m *memory) Publish(_ context.Context, e nostr.Event) error {
	m.ids = append(m.ids, e.ID)
	return nil
}
func (m *memory) QueryEvents(context.Context, nostr.Filter) (chan *nostr.Event, error) {
	ch := make(chan *nostr.Event)
	close(ch)
	return ch, nil
}
func (m *memory) QuerySync(context.Context, nostr.Filter) ([]*nostr.Event, error) { return nil, nil }
