package daemon

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/goccy/go-yaml"

	"fleetmesh.org/fleetmesh/internal/control"
	"fleetmesh.org/fleetmesh/internal/gateway/border"
	"fleetmesh.org/fleetmesh/internal/store"
	"fleetmesh.org/fleetmesh/internal/store/eventlog"
	"fleetmesh.org/fleetmesh/nostr"
)

// GatewayConfig is the configuration of a gateway: a process that shares nothing with a node.
type GatewayConfig = border.Config

// LoadGateway reads a gateway's configuration strictly. A relative directory is taken relative to the file.
func LoadGateway(path string) (*GatewayConfig, error) {
	text, err := readConfig(path)
	if err != nil {
		return nil, fmt.Errorf("read the gateway's configuration: %w", err)
	}
	c := new(GatewayConfig)
	switch err := yaml.NewDecoder(bytes.NewReader(text), yaml.Strict()).Decode(c); {
	case errors.Is(err, io.EOF):
		return nil, fmt.Errorf("read the gateway's configuration: %s is empty: docs/gateway.md shows one", path)
	case err != nil:
		return nil, fmt.Errorf("read the gateway's configuration: %s: %s", path, yaml.FormatError(err, false, true))
	}
	if err := c.Check(); err != nil {
		return nil, fmt.Errorf("read the gateway's configuration: %s: %w", path, err)
	}
	if !filepath.IsAbs(c.Dir) {
		c.Dir = filepath.Join(filepath.Dir(path), c.Dir)
	}
	if _, err := os.Stat(filepath.Join(c.Dir, "node.yaml")); err == nil {
		return nil, fmt.Errorf("read the gateway's configuration: %s: dir is a node's directory: a gateway has its own, with its own key", path)
	}
	return c, nil
}

// GatewaySocket is where a running gateway listens for its operator.
func GatewaySocket(c *GatewayConfig) string { return filepath.Join(c.Dir, "control.sock") }

// gatewayKey reads the gateway's own key, and makes it at the first start.
func gatewayKey(dir string) (k nostr.SecretKey, err error) {
	path := filepath.Join(dir, "gateway.key")
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		if k, err = nostr.GenerateKey(); err != nil {
			return k, err
		}
		return k, writeFile(path, []byte(hex.EncodeToString(k[:])+"\n"), 0o600)
	}
	text, err := Dir(dir).secretText(path, "gateway's key")
	if err != nil {
		return k, err
	}
	raw, err := parseHexKey(text)
	if err != nil {
		return k, fmt.Errorf("%s %w", path, err)
	}
	return nostr.SecretKey(raw), nil
}

// GatewayReady says that a gateway runs.
type GatewayReady struct {
	Event   string `json:"event"` // "ready"
	PubKey  string `json:"pubkey"`
	Dir     string `json:"dir"`
	Control string `json:"control"`
}

// RunGateway runs a gateway until ctx ends.
func RunGateway(ctx context.Context, c *GatewayConfig, log *slog.Logger, ready func(GatewayReady)) (err error) {
	if err := os.MkdirAll(c.Dir, 0o700); err != nil {
		return fmt.Errorf("make the gateway's directory: %w", err)
	}
	key, err := gatewayKey(c.Dir)
	if err != nil {
		return fmt.Errorf("take up the gateway's key: %w", err)
	}
	var stores border.Stores
	for name, s := range map[string]*store.Store{"quarantine": &stores.Quarantine, "released": &stores.Released, "estate": &stores.Estate} {
		opened, err := eventlog.Open(filepath.Join(c.Dir, name), eventlog.Options{MaxBytes: c.Storage.MaxBytes / 3, Log: log})
		if err != nil {
			return fmt.Errorf("open the gateway's store %s: %w", name, err)
		}
		defer func() { err = errors.Join(err, opened.Close()) }()
		*s = opened
	}
	g, err := border.New(border.Options{Config: c, Stores: stores, Key: &key, Stderr: os.Stderr, Log: log})
	if err != nil {
		return err
	}
	defer g.Close()
	socket, err := control.Listen(GatewaySocket(c), gatewayMethods(g))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, socket.Close()) }()
	ready(GatewayReady{Event: "ready", PubKey: key.PubKey().String(), Dir: c.Dir, Control: GatewaySocket(c)})
	if err := g.Run(ctx); ctx.Err() == nil {
		return err
	}
	return nil
}

// CutGateway throws a switch by its file alone, for a gateway that does not run or does not answer.
func CutGateway(c *GatewayConfig, side string, cut bool) error {
	path := filepath.Join(c.Dir, "kill."+side)
	if !cut {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("take the switch back: %w", err)
		}
		return nil
	}
	if err := errors.Join(os.MkdirAll(c.Dir, 0o700), os.WriteFile(path, nil, 0o600)); err != nil {
		return fmt.Errorf("throw the switch: %w", err)
	}
	return nil
}

// What the verbs about a gateway ask.
type (
	// GatewayCut are the parameters of gateway.cut.
	GatewayCut struct {
		Side string `json:"side"` // mesh or estate
		Cut  bool   `json:"cut"`
	}
	// GatewayList are those of gateway.quarantine; 0 lists all.
	GatewayList struct {
		Limit int `json:"limit"`
	}
	// GatewayDecide are those of gateway.decide.
	GatewayDecide struct {
		IDs     []nostr.ID `json:"ids"`
		Release bool       `json:"release"` // or refuse
	}
	// GatewayDecided says how many events were decided so.
	GatewayDecided struct {
		Count int `json:"count"`
	}
)

func gatewayMethods(g *border.Gateway) map[string]control.Handler {
	return map[string]control.Handler{
		"gateway.status": method(func(ctx context.Context, _ none) (border.Status, error) { return g.Status(ctx) }),
		"gateway.cut": method(func(_ context.Context, p GatewayCut) (border.Cuts, error) {
			err := g.Cut(p.Side, p.Cut)
			return g.Cuts(), err
		}),
		"gateway.quarantine": method(func(ctx context.Context, p GatewayList) ([]border.Waits, error) { return g.Waiting(ctx, p.Limit) }),
		"gateway.decide": method(func(ctx context.Context, p GatewayDecide) (GatewayDecided, error) {
			n, err := g.Decide(ctx, p.IDs, p.Release)
			return GatewayDecided{n}, err
		}),
		"gateway.why": method(func(ctx context.Context, p WhyParams) (border.Where, error) {
			id, err := nostr.ParseID(p.ID)
			if err != nil {
				return border.Where{}, control.BadParams("%v", err)
			}
			return g.Where(ctx, id)
		}),
	}
}
