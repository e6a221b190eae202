package host

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"fleetmesh.org/fleetmesh/internal/didcomm/mediate"
)

// mediationLog keeps a mediator's records in the order in which they were decided: lines of the journal's form, whose keys are the operations.
// It is a file of its own, since envelopes come and go by the thousand and must not be carried along with the books.
type mediationLog struct {
	path   string
	open   func(path string) (journalFile, error)
	f      journalFile
	size   int64
	floor  int64 // size after the last compaction
	broken error
}

// openMediationLog opens or makes the log and applies what it holds to state. A torn last line is cut off.
func openMediationLog(path string, state *mediate.Mediator) (*mediationLog, error) {
	l := &mediationLog{path: path, open: appendTo}
	text, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("read the mediation log: %w", err)
	}
	whole, err := replayMediation(text, state)
	if err != nil {
		return nil, fmt.Errorf("read the mediation log %s: %w", path, err)
	}
	if whole < len(text) {
		if err := os.Truncate(path, int64(whole)); err != nil {
			return nil, fmt.Errorf("cut the torn end of the mediation log: %w", err)
		}
	}
	if l.f, err = l.open(path); err != nil {
		return nil, fmt.Errorf("open the mediation log: %w", err)
	}
	l.size, l.floor = int64(whole), int64(whole)
	return l, nil
}

func replayMediation(text []byte, state *mediate.Mediator) (whole int, err error) {
	for whole < len(text) {
		n := bytes.IndexByte(text[whole:], '\n')
		if n < 0 {
			return whole, nil // torn
		}
		line, err := readJournalLine(text[whole : whole+n])
		var r mediate.Record
		if err == nil {
			err = json.Unmarshal(line.Record, &r)
		}
		if err == nil {
			err = state.Apply(r)
		}
		if err != nil {
			if whole+n+1 == len(text) {
				return whole, nil // the last write reached the disk in part
			}
			return 0, fmt.Errorf("at octet %d: %w: restore the file from a backup, or move it away and lose what waits in it", whole, err)
		}
		whole += n + 1
	}
	return whole, nil
}

// Append writes records, durably with sync: without, they survive the process but perhaps not the machine.
func (l *mediationLog) Append(records []mediate.Record, sync bool) error {
	if l.broken != nil {
		return fmt.Errorf("the mediation log is broken: %w", l.broken)
	}
	text, err := mediationText(records)
	if err != nil {
		return err
	}
	if _, err := l.f.Write(text); err != nil {
		return l.fail("write", err)
	}
	if sync {
		if err := l.f.Sync(); err != nil {
			return l.fail("sync", err)
		}
	}
	l.size += int64(len(text))
	return nil
}

func mediationText(records []mediate.Record) (text []byte, err error) {
	for _, r := range records {
		raw, err := json.Marshal(r)
		if err != nil {
			return nil, fmt.Errorf("encode a mediation record: %w", err)
		}
		if text, err = appendJournalLine(text, journalLine{string(r.Op), raw}); err != nil {
			return nil, fmt.Errorf("encode a mediation record: %w", err)
		}
	}
	return text, nil
}

func (l *mediationLog) fail(what string, err error) error {
	l.broken = fmt.Errorf("%s the mediation log: %w", what, err)
	return l.broken
}

// Compact writes the log anew without its history, once most of it is history.
func (l *mediationLog) Compact(state *mediate.Mediator) error {
	if l.size < 4*compactAt || l.size < 4*max(l.floor, 2*state.Bytes()) {
		return nil
	}
	text, err := mediationText(state.Records())
	if err != nil {
		return err
	}
	next := l.path + ".new"
	if err := os.Remove(next); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return l.fail("compact", err)
	}
	f, err := l.open(next)
	if err != nil {
		return l.fail("compact", err)
	}
	_, err = f.Write(text)
	if err = errors.Join(err, f.Sync()); err == nil {
		err = os.Rename(next, l.path)
	}
	if err == nil {
		err = syncDir(filepath.Dir(l.path))
	}
	if err != nil {
		f.Close()
		return l.fail("compact", err)
	}
	l.f.Close()
	l.f, l.size, l.floor = f, int64(len(text)), int64(len(text))
	return nil
}

// Close makes everything durable.
func (l *mediationLog) Close() error {
	var err error
	if l.broken == nil {
		err = l.f.Sync()
	}
	if err = errors.Join(err, l.f.Close()); err != nil {
		return fmt.Errorf("close the mediation log: %w", err)
	}
	l.broken = errors.New("it is closed")
	return nil
}
