package daemon

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// DirFormat is the version of the node directory that this build reads and writes. The store has a version of its own
// (docs/store-format.md).
const DirFormat = 2

// ErrNewerDir says that a directory was written by a build that knows more than this one. Nothing in it was touched.
var ErrNewerDir = errors.New("the node directory is newer than this build")

func (d Dir) formatFile() string { return filepath.Join(string(d), "format") }

// Format reads the version of a node directory. Version 1 had no file that says so.
func (d Dir) Format() (int, error) {
	text, err := os.ReadFile(d.formatFile())
	if errors.Is(err, fs.ErrNotExist) {
		return 1, nil
	}
	if err != nil {
		return 0, fmt.Errorf("read the version of the node directory: %w", err)
	}
	v, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil || v < 1 {
		return 0, fmt.Errorf("read the version of the node directory: %s holds %.40q, want a number such as %d", d.formatFile(), text, DirFormat)
	}
	return v, nil
}

// Migration is one step from a version of the node directory to the next. It may be done twice, since a crash may leave it half done.
type Migration struct {
	From int    `json:"from"`
	What string `json:"what"`
	do   func(Dir) error
}

var migrations = []Migration{
	{1, "close the directories of keys and peerings to other users, and write down the version in a file", func(d Dir) error {
		for _, dir := range []string{d.Keys(), filepath.Dir(d.Journal())} {
			if err := os.Chmod(dir, 0o700); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
		}
		return nil
	}},
}

// Migrations are the steps that a directory needs for this build, in order. ErrNewerDir says that this build is too old for it.
func (d Dir) Migrations() ([]Migration, error) {
	v, err := d.Format()
	if err != nil {
		return nil, err
	}
	if v > DirFormat {
		return nil, fmt.Errorf("%w: %s is of version %d, and this build knows versions up to %d: run the newer meshnode, or restore a backup that this one made; nothing was changed", ErrNewerDir, d, v, DirFormat)
	}
	return migrations[v-1:], nil
}

// Migrate brings a directory to this build's version in place, a step at a time: each is recorded before the next begins.
func (d Dir) Migrate() (done []Migration, err error) {
	steps, err := d.Migrations()
	if err != nil {
		return nil, err
	}
	for _, m := range steps {
		if err := m.do(d); err != nil {
			return done, fmt.Errorf("bring the node directory to version %d (%s): %w", m.From+1, m.What, err)
		}
		if err := d.writeFormat(m.From + 1); err != nil {
			return done, err
		}
		done = append(done, m)
	}
	return done, nil
}

func (d Dir) writeFormat(v int) error {
	if err := writeFile(d.formatFile(), fmt.Appendf(nil, "%d\n", v), 0o644); err != nil {
		return fmt.Errorf("write the version of the node directory: %w", err)
	}
	return nil
}
