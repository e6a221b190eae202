package selftest

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"iter"
	"strconv"
	"time"

	"fleetmesh.org/fleetmesh/internal/gateway"
	"fleetmesh.org/fleetmesh/nostr"
)

// probe is what one probe works with: a fresh author, and connections that authenticate when asked to.
type probe struct {
	*session
	ctx    context.Context
	author nostr.SecretKey
	conns  []*gateway.Conn
	own    *gateway.Conn // the author's
	made   []made
}

// made is an event to ask the deletion of.
type made struct {
	key nostr.SecretKey
	e   *nostr.Event
}

func newProbe(ctx context.Context, s *session) (*probe, error) {
	key, err := nostr.GenerateKey()
	if err != nil {
		return nil, err
	}
	return &probe{session: s, ctx: ctx, author: key}, nil
}

// dial connects. The connection authenticates with the key when the relay asks; nil never does.
func (p *probe) dial(key *nostr.SecretKey) (*gateway.Conn, error) {
	o := p.opt.Gateway
	o.Key = key
	c, err := gateway.Dial(p.ctx, p.url, o)
	if err != nil {
		if errors.Is(err, gateway.ErrURL) {
			return nil, err
		}
		return nil, errors.New(unreachable)
	}
	p.conns = append(p.conns, c)
	return c, nil
}

// conn is the author's connection.
func (p *probe) conn() (*gateway.Conn, error) {
	if p.own != nil {
		return p.own, nil
	}
	c, err := p.dial(&p.author)
	p.own = c
	return c, err
}

// close asks for the deletion of what the probe has made, and hangs up. Nobody depends on either.
func (p *probe) close() {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(p.ctx), 5*time.Second)
	defer cancel()
	p.ctx = ctx
	byKey := map[nostr.SecretKey][]nostr.Tag{}
	for _, m := range p.made {
		byKey[m.key] = append(byKey[m.key], nostr.Tag{"e", m.e.ID.String()})
	}
	if p.info.Supports(9) && p.own != nil && p.own.Err() == nil {
		for key, tags := range byKey {
			if e, err := p.sign(key, nostr.KindDeletion, time.Now().Unix(), "", tags...); err == nil {
				_, _ = p.own.Publish(ctx, e)
			}
		}
	}
	for _, c := range p.conns {
		c.Close()
	}
}

// maxWork is the proof of work that a probe will do, in bits.
const maxWork = 22

// sign makes an event, with the proof of work that the relay asks for.
func (p *probe) sign(key nostr.SecretKey, kind nostr.Kind, at int64, content string, tags ...nostr.Tag) (*nostr.Event, error) {
	e := &nostr.Event{PubKey: key.PubKey(), CreatedAt: at, Kind: kind, Tags: tags, Content: content}
	if bits := p.info.Limitation.MinPoWDifficulty; bits > 0 {
		if err := p.mine(e, bits); err != nil {
			return nil, err
		}
	}
	return e, e.Sign(key)
}

// mine adds a nonce tag (NIP-13) and turns it until the id has the leading zero bits.
func (p *probe) mine(e *nostr.Event, bits int) error {
	if bits > maxWork {
		return skip("the relay asks for %d bits of work", bits)
	}
	nonce := nostr.Tag{"nonce", "", strconv.Itoa(bits)}
	e.Tags = append(e.Tags[:len(e.Tags):len(e.Tags)], nonce)
	for n := uint64(0); ; n++ {
		if n%4096 == 0 && p.ctx.Err() != nil {
			return p.ctx.Err()
		}
		nonce[1] = strconv.FormatUint(n, 10)
		if nostr.PoWDifficulty(e.ComputeID()) >= bits {
			return nil
		}
	}
}

// send publishes over a connection and returns the answer, with patience for a limited rate.
func (p *probe) send(c *gateway.Conn, e *nostr.Event) (gateway.Answer, error) {
	var got gateway.Answer
	one := func(yield func(*nostr.Event, error) bool) { yield(e, nil) }
	err := c.PublishMany(p.ctx, iter.Seq2[*nostr.Event, error](one), 1, func(_ *nostr.Event, a gateway.Answer) error {
		got = a
		return nil
	})
	if err != nil {
		return got, fmt.Errorf("publish kind %d: %w", e.Kind, err)
	}
	return got, nil
}

// publish makes an event by a key, has it accepted, and remembers to delete it.
func (p *probe) publish(key nostr.SecretKey, kind nostr.Kind, at int64, content string, tags ...nostr.Tag) (*nostr.Event, error) {
	e, err := p.sign(key, kind, at, content, tags...)
	if err != nil {
		return nil, err
	}
	c, err := p.conn()
	if err != nil {
		return nil, err
	}
	return e, p.accepted(c, key, e)
}

// accepted publishes an event that should be taken.
func (p *probe) accepted(c *gateway.Conn, key nostr.SecretKey, e *nostr.Event) error {
	a, err := p.send(c, e)
	if err != nil {
		return err
	}
	if !a.OK {
		if p.closedShop(a) {
			return skip("writing is restricted: %q", a.Reason)
		}
		return fmt.Errorf("kind %d refused: %q", e.Kind, a.Reason)
	}
	p.made = append(p.made, made{key, e})
	return nil
}

// closedShop says whether the relay says itself that it does not take everybody's events.
func (p *probe) closedShop(a gateway.Answer) bool {
	switch gateway.Prefix(a.Reason) {
	case "restricted", "blocked", "auth-required":
		l := p.info.Limitation
		return l.RestrictedWrites || l.PaymentRequired || l.AuthRequired
	}
	return false
}

// refusedWith publishes an event that should be refused, with one of the prefixes if any are given.
func (p *probe) refusedWith(c *gateway.Conn, e *nostr.Event, prefixes ...string) error {
	a, err := p.send(c, e)
	if err != nil {
		return err
	}
	if a.OK {
		return errors.New("accepted")
	}
	got := gateway.Prefix(a.Reason)
	for _, want := range prefixes {
		if got == want {
			return nil
		}
	}
	if len(prefixes) == 0 && got != "" {
		return nil
	}
	return fmt.Errorf("refused with %q, which lacks the right prefix", a.Reason)
}

// served returns the events that a filter gets over a connection.
func (p *probe) served(c *gateway.Conn, f nostr.Filter) ([]*nostr.Event, error) {
	es, err := c.QueryAll(p.ctx, f)
	if err != nil {
		return nil, fmt.Errorf("query: %w", err)
	}
	return es, nil
}

// expect checks that a filter gets exactly these events, in any order.
func (p *probe) expect(c *gateway.Conn, f nostr.Filter, want ...*nostr.Event) error {
	es, err := p.served(c, f)
	if err != nil {
		return err
	}
	got := map[nostr.ID]bool{}
	for _, e := range es {
		got[e.ID] = true
	}
	for _, e := range want {
		if !got[e.ID] {
			return fmt.Errorf("an event of kind %d is not served", e.Kind)
		}
	}
	if len(got) != len(want) {
		return fmt.Errorf("%d events served, %d expected", len(got), len(want))
	}
	return nil
}

// missing checks that an event is not served by its id.
func (p *probe) missing(c *gateway.Conn, e *nostr.Event) error {
	es, err := p.served(c, nostr.Filter{IDs: []nostr.ID{e.ID}})
	if err != nil {
		return err
	}
	if len(es) > 0 {
		return errors.New("still served")
	}
	return nil
}

// other makes a second throw-away key.
func (p *probe) other() (nostr.SecretKey, error) { return nostr.GenerateKey() }

// word makes a word that nobody else uses.
func word() string {
	var b [8]byte
	_, _ = rand.Read(b[:])
	return "selftest" + hex.EncodeToString(b[:])
}

func byAuthor(k nostr.SecretKey, kinds ...nostr.Kind) nostr.Filter {
	return nostr.Filter{Authors: []nostr.PubKey{k.PubKey()}, Kinds: kinds}
}

func byIDs(es ...*nostr.Event) nostr.Filter {
	f := nostr.Filter{}
	for _, e := range es {
		f.IDs = append(f.IDs, e.ID)
	}
	return f
}
