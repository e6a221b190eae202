package daemon

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"fleetmesh.org/fleetmesh/internal/manifest"
)

// intention is what an apply is about to do: written before its first step and removed after its last, so that a process that ended in between is
// followed by one that undoes what was begun. What decides is the record of what was applied, which is the last step: where that is written, the
// apply is done.
type intention struct {
	Steps   []manifest.Step `json:"steps"`
	Written []byte          `json:"written"` // node.yaml as it was, to the octet
	Writes  []byte          `json:"writes"`  // as it shall be, empty where it stays
}

func newIntention(steps []manifest.Step, written []byte) *intention {
	i := &intention{Steps: steps, Written: written}
	for _, s := range steps {
		if s.Do.Verb == manifest.WriteConfig {
			i.Writes = manifest.ConfigYAML(s.Do.Config)
		}
	}
	return i
}

func (d Dir) intention() string { return filepath.Join(string(d), "manifests.applying") }

// intend writes an intention down.
func (d Dir) intend(i *intention) error {
	text, err := json.Marshal(i)
	if err == nil {
		err = writeFile(d.intention(), text, 0o600)
	}
	if err != nil {
		return fmt.Errorf("write down what is about to be applied: %w", err)
	}
	return nil
}

// settle removes it.
func (d Dir) settle() error {
	if err := os.Remove(d.intention()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("forget what was about to be applied: %w", err)
	}
	return nil
}

// interrupted returns the intention of an apply that did not come to its end, nil if there is none.
func (d Dir) interrupted() (*intention, error) {
	text, err := os.ReadFile(d.intention())
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var i intention
	if err == nil {
		err = json.Unmarshal(text, &i)
	}
	if err != nil {
		return nil, fmt.Errorf("read what was about to be applied: %s: %w", d.intention(), err)
	}
	done, err := d.recorded(&i)
	if err != nil {
		return nil, err
	}
	if done {
		return nil, d.settle()
	}
	return &i, nil
}

// recorded says whether the last step of an intention was taken.
func (d Dir) recorded(i *intention) (bool, error) {
	last := i.Steps[max(0, len(i.Steps)-1):]
	if len(last) == 0 || last[0].Do.Verb != manifest.Record {
		return false, nil
	}
	text, err := os.ReadFile(d.manifestRecord())
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, fmt.Errorf("read what was applied: %w", err)
	}
	return err == nil && bytes.Equal(text, last[0].Do.Applied), nil
}

// rollBackConfig undoes what an interrupted apply did to the configuration, before that is read.
func (d Dir) rollBackConfig() error {
	i, err := d.interrupted()
	if err != nil || i == nil {
		return err
	}
	now, err := os.ReadFile(d.Config())
	if err != nil || !bytes.Equal(now, i.Writes) {
		return nil // it was not written yet, or was edited since, which is the operator's last word
	}
	if err := writeFile(d.Config(), i.Written, 0o644); err != nil {
		return fmt.Errorf("undo an apply that was interrupted: %w", err)
	}
	return nil
}

// rollBack undoes the rest of it, once there is a host to do it with. What cannot be undone is said in the log, and shown as drift.
func (m *manifests) rollBack(ctx context.Context) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.rollBackFirst(ctx)
}

// rollBackFirst is rollBack where m.mu is held: nothing new is applied before.
func (m *manifests) rollBackFirst(ctx context.Context) {
	if m.interrupted == nil {
		return
	}
	_, err := m.n.fed.get(ctx)
	if ctx.Err() != nil {
		return
	}
	if err == nil {
		err = m.undo(context.WithoutCancel(ctx), m.interrupted.Steps)
	}
	if err == nil {
		err = m.n.opt.Dir.settle()
	}
	m.interrupted = nil
	if err != nil {
		m.n.log.Error("an apply was interrupted, and not all that it did could be undone: meshctl get shows the drift, meshctl apply mends it", "err", err)
		return
	}
	m.n.log.Warn("an apply was interrupted: what it had begun is undone, and nothing of it is in force")
}

// undo takes back what was done about peerings, the last first.
func (m *manifests) undo(ctx context.Context, steps []manifest.Step) (err error) {
	for _, s := range slices.Backward(steps) {
		if s.Do.Verb != manifest.AddPeer && s.Do.Verb != manifest.EndPeer {
			continue
		}
		if back := m.perform(ctx, s.Undo, nil); back != nil {
			err = errors.Join(err, fmt.Errorf("%s: %w", s.Undo, back))
		}
	}
	return err
}
