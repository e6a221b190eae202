package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"fleetmesh.org/fleetmesh/internal/daemon"
	"fleetmesh.org/fleetmesh/internal/gateway"
	"fleetmesh.org/fleetmesh/nostr"
	"fleetmesh.org/fleetmesh/spec"
)

// signer chooses the key of a client verb.
type signer struct {
	Sec string `help:"Secret key to sign with: hex or nsec. Without it a key is made for this one call." env:"NOSTR_SECRET_KEY" placeholder:"KEY"`
	As  string `help:"Sign with the node's own key." name:"as" enum:",node" default:"" placeholder:"node"`
}

func (s *signer) key(dir daemon.Dir) (nostr.SecretKey, error) {
	switch {
	case s.As == "node":
		k, err := dir.LoadKeys()
		if err != nil {
			return nostr.SecretKey{}, err
		}
		return k.Node, nil
	case s.Sec != "":
		k, err := nostr.ParseSecretKey(s.Sec)
		if err != nil {
			return k, &exit{spec.ExitUsage, fmt.Sprintf("--sec: %v", err)}
		}
		return k, nil
	}
	return nostr.GenerateKey()
}

type eventCmd struct {
	signer
	Relay   []string `help:"Publish here; without it the event is only printed." placeholder:"URL"`
	Kind    uint16   `help:"The kind." default:"1"`
	Content string   `help:"The content." default:""`
	Tag     []string `help:"A tag: name=value, or name=value;second;third." placeholder:"NAME=VALUE" sep:"none"`
	At      int64    `help:"created_at in unix seconds; now if absent."`
	Pow     int      `help:"Mine this many leading zero bits (NIP-13)."`
	Stdin   bool     `help:"Publish the signed events that come as JSONL on stdin instead of making one."`
}

func (c *eventCmd) Help() string {
	return `Examples:
  meshnode event --content hello --relay ws://127.0.0.1:7777
  meshnode event --kind 30023 --tag d=post --tag 'r=https://example.org;x' --content "# Title" --as node --relay ws://127.0.0.1:7777
  meshnode export | meshnode event --stdin --relay wss://relay.example.org`
}

func (c *eventCmd) Run(a *app) error {
	if c.Stdin {
		return c.publishStdin(a)
	}
	e, err := c.make(a.dir)
	if err != nil {
		return err
	}
	fmt.Fprintf(a.out, "%s\n", e.JSON())
	worst := spec.ExitOK
	for _, url := range c.Relay {
		ans, err := c.publish(a.ctx, url, e)
		switch {
		case err != nil:
			fmt.Fprintf(a.err, "%s: %v\n", url, err)
			worst = max(worst, exitOf(err))
		case !ans.OK:
			fmt.Fprintf(a.err, "%s refused it: %s\n", url, ans.Reason)
			worst = max(worst, spec.ExitRefused)
		default:
			fmt.Fprintf(a.err, "%s took it %s\n", url, ans.Reason)
		}
	}
	if worst != spec.ExitOK {
		return &exit{code: worst}
	}
	return nil
}

func (c *eventCmd) make(dir daemon.Dir) (*nostr.Event, error) {
	key, err := c.key(dir)
	if err != nil {
		return nil, err
	}
	e := &nostr.Event{PubKey: key.PubKey(), Kind: nostr.Kind(c.Kind), Content: c.Content, CreatedAt: c.At}
	if c.At == 0 {
		e.CreatedAt = time.Now().Unix()
	}
	for _, t := range c.Tag {
		name, values, found := strings.Cut(t, "=")
		tag := nostr.Tag{name}
		if found {
			tag = append(tag, strings.Split(values, ";")...)
		}
		e.Tags = append(e.Tags, tag)
	}
	if c.Pow > 0 {
		mine(e, c.Pow)
	}
	return e, e.Sign(key)
}

// mine appends a nonce tag and counts it up until the id has the bits.
func mine(e *nostr.Event, bits int) {
	e.Tags = append(e.Tags, nostr.Tag{"nonce", "", fmt.Sprint(bits)})
	nonce := e.Tags[len(e.Tags)-1]
	for i := uint64(0); ; i++ {
		nonce[1] = fmt.Sprint(i)
		if nostr.PoWDifficulty(e.ComputeID()) >= bits {
			return
		}
	}
}

func (c *eventCmd) publish(ctx context.Context, url string, e *nostr.Event) (gateway.Answer, error) {
	conn, err := c.dial(ctx, url)
	if err != nil {
		return gateway.Answer{}, err
	}
	defer conn.Close()
	return conn.Publish(ctx, e)
}

// dial connects to a relay. An error has chosen the status of the verb.
func (s *signer) dial(ctx context.Context, url string) (*gateway.Conn, error) {
	key, err := s.authKey()
	if err != nil {
		return nil, &exit{spec.ExitUsage, fmt.Sprintf("--sec: %v", err)}
	}
	conn, err := gateway.Dial(ctx, url, gateway.Options{Key: key})
	if err != nil {
		return nil, &exit{gateway.ExitCode(err), err.Error()}
	}
	return conn, nil
}

// exitOf is the status that an error of a client verb stands for.
func exitOf(err error) int {
	var chosen *exit
	if errors.As(err, &chosen) {
		return chosen.code
	}
	return gateway.ExitCode(err)
}

// authKey answers NIP-42 challenges with a key that the user named, never with one made for the call.
func (s *signer) authKey() (*nostr.SecretKey, error) {
	if s.Sec == "" {
		return nil, nil
	}
	k, err := nostr.ParseSecretKey(s.Sec)
	return &k, err
}

func (c *eventCmd) publishStdin(a *app) error {
	if len(c.Relay) != 1 {
		return &exit{spec.ExitUsage, "--stdin wants one --relay"}
	}
	conn, err := c.dial(a.ctx, c.Relay[0])
	if err != nil {
		return err
	}
	defer conn.Close()
	text, err := io.ReadAll(a.in)
	if err != nil {
		return fmt.Errorf("read stdin: %w", err)
	}
	taken, refused := 0, 0
	events := func(yield func(*nostr.Event, error) bool) {
		for line := range bytes.Lines(text) {
			if line = bytes.TrimSpace(line); len(line) == 0 {
				continue
			}
			e, err := nostr.ParseEvent(line)
			if !yield(e, err) || err != nil {
				return
			}
		}
	}
	err = conn.PublishMany(a.ctx, events, 64, func(e *nostr.Event, ans gateway.Answer) error {
		if ans.OK {
			taken++
			return nil
		}
		refused++
		fmt.Fprintf(a.err, "%s: %s\n", e.ID, ans.Reason)
		return nil
	})
	if perr := a.print(map[string]int{"taken": taken, "refused": refused}, func(w io.Writer) { fmt.Fprintf(w, "%d taken, %d refused\n", taken, refused) }); perr != nil {
		return perr
	}
	if err != nil {
		return &exit{gateway.ExitCode(err), err.Error()}
	}
	if refused > 0 {
		return &exit{code: spec.ExitRefused}
	}
	return nil
}

// filters reads the filters of a client verb; none means the empty filter.
func filters(args []string) ([]nostr.Filter, error) {
	if len(args) == 0 {
		args = []string{"{}"}
	}
	var out []nostr.Filter
	for _, s := range args {
		f, err := nostr.ParseFilter([]byte(s))
		if err != nil {
			return nil, &exit{spec.ExitUsage, fmt.Sprintf("filter %s: %v", s, err)}
		}
		out = append(out, f)
	}
	return out, nil
}

type reqCmd struct {
	signer
	Filter []string `arg:"" optional:"" help:"NIP-01 filters as JSON; {} if absent." sep:"none"`
	Relay  string   `help:"Where to ask: ws://127.0.0.1:7777 unless said." default:"ws://127.0.0.1:7777" placeholder:"URL"`
	All    bool     `help:"Page on until everything that matches has come."`
	Stream bool     `help:"Stay, and print what comes live."`
}

func (c *reqCmd) Help() string {
	return `Prints one event a line.

Examples:
  meshnode req '{"kinds":[1],"limit":10}'
  meshnode req --relay wss://relay.example.org --all '{"authors":["…"]}' > mine.jsonl
  meshnode req --stream '{"kinds":[1],"limit":0}'`
}

func (c *reqCmd) Run(a *app) error {
	fs, err := filters(c.Filter)
	if err != nil {
		return err
	}
	conn, err := c.dial(a.ctx, c.Relay)
	if err != nil {
		return err
	}
	defer conn.Close()
	if c.All {
		err = c.all(a, conn, fs)
	} else {
		err = c.one(a, conn, fs)
	}
	if err != nil && a.ctx.Err() == nil {
		return &exit{gateway.ExitCode(err), err.Error()}
	}
	return nil
}

func (c *reqCmd) all(a *app, conn *gateway.Conn, fs []nostr.Filter) error {
	for e, err := range conn.Query(a.ctx, fs...) {
		if err != nil {
			return err
		}
		fmt.Fprintf(a.out, "%s\n", e.JSON())
	}
	return nil
}

func (c *reqCmd) one(a *app, conn *gateway.Conn, fs []nostr.Filter) error {
	sub, err := conn.Subscribe(a.ctx, fs...)
	if err != nil {
		return err
	}
	defer sub.Close()
	for {
		d, err := sub.Next(a.ctx)
		switch {
		case err != nil:
			return err
		case d.EOSE && !c.Stream:
			return nil
		case d.Event != nil:
			fmt.Fprintf(a.out, "%s\n", d.Event.JSON())
		}
	}
}

type countCmd struct {
	signer
	Filter []string `arg:"" optional:"" help:"NIP-01 filters as JSON; {} if absent." sep:"none"`
	Relay  string   `help:"Where to ask: ws://127.0.0.1:7777 unless said." default:"ws://127.0.0.1:7777" placeholder:"URL"`
}

func (c *countCmd) Run(a *app) error {
	fs, err := filters(c.Filter)
	if err != nil {
		return err
	}
	conn, err := c.dial(a.ctx, c.Relay)
	if err != nil {
		return err
	}
	defer conn.Close()
	n, err := conn.Count(a.ctx, fs...)
	if err != nil {
		return &exit{gateway.ExitCode(err), err.Error()}
	}
	result := struct {
		Count       int64  `json:"count"`
		Approximate bool   `json:"approximate"`
		HLL         string `json:"hll,omitempty"`
	}{Count: n.Count, Approximate: n.Approximate}
	if n.HLL != nil {
		result.HLL = fmt.Sprintf("%x", *n.HLL)
	}
	return a.print(result, func(w io.Writer) { fmt.Fprintln(w, n.Count) })
}

// relayURL checks the URL of a relay before anything is opened or dialled for it.
func relayURL(s string) (string, error) {
	u, err := nostr.NormalizeRelayURL(s)
	if err != nil {
		return "", &exit{spec.ExitUsage, fmt.Sprintf("%q is not the URL of a relay: %v", s, err)}
	}
	return u, nil
}

// rawFilter checks a filter that goes on as text.
func rawFilter(s string) (json.RawMessage, error) {
	if _, err := nostr.ParseFilter([]byte(s)); err != nil {
		return nil, &exit{spec.ExitUsage, fmt.Sprintf("filter %s: %v", s, err)}
	}
	return json.RawMessage(s), nil
}
