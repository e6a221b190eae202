package border

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"
)

// Cuts are the kill switches: a side that is cut is neither spoken nor listened to, and nothing crosses while one is cut. They are files,
// kill.mesh and kill.estate in the gateway's directory, so that they can be thrown without the gateway, and stay thrown over a
// restart.
type Cuts struct {
	Mesh   bool `json:"mesh"`
	Estate bool `json:"estate"`
}

// Sides that can be cut.
const (
	MeshSide   = "mesh"
	EstateSide = "estate"
)

func (g *Gateway) killFile(side string) string { return g.path("kill." + side) }

// readCuts looks at the files. One that cannot be looked at counts as thrown.
func (g *Gateway) readCuts() Cuts {
	thrown := func(side string) bool {
		_, err := os.Stat(g.killFile(side))
		return !errors.Is(err, fs.ErrNotExist)
	}
	return Cuts{Mesh: thrown(MeshSide), Estate: thrown(EstateSide)}
}

// Cuts tells which switches are in force.
func (g *Gateway) Cuts() Cuts {
	g.switching.Lock()
	defer g.switching.Unlock()
	return g.cuts
}

// Cut throws a side's switch, or takes it back, and returns when that is in force.
func (g *Gateway) Cut(side string, cut bool) error {
	if side != MeshSide && side != EstateSide {
		return fmt.Errorf("side is %q, want mesh or estate", side)
	}
	var err error
	if cut {
		err = os.WriteFile(g.killFile(side), nil, 0o600)
	} else if err = os.Remove(g.killFile(side)); errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	if err != nil {
		return fmt.Errorf("throw the switch: %w", err)
	}
	return g.follow()
}

// follow brings the gateway to what the files say.
func (g *Gateway) follow() error {
	g.switching.Lock()
	defer g.switching.Unlock()
	now := g.readCuts()
	if now == g.cuts {
		return nil
	}
	if err := g.apply(now); err != nil {
		return fmt.Errorf("bring the switches into force: %w", err)
	}
	g.cuts = now
	g.opt.Log.Warn("a kill switch was moved", "mesh cut", now.Mesh, "estate cut", now.Estate)
	return nil
}

// lookEvery is how soon a file that was made by hand is noticed.
const lookEvery = 500 * time.Millisecond

func (g *Gateway) watchSwitches(ctx context.Context) {
	t := time.NewTicker(lookEvery)
	defer t.Stop()
	for {
		select {
		case <-t.C:
			if err := g.follow(); err != nil {
				g.opt.Log.Error("a kill switch", "err", err)
			}
		case <-ctx.Done():
			return
		}
	}
}
