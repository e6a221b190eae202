package blossom

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"fleetmesh.org/fleetmesh/nostr"
)

// Disk is a Store in a directory:
//
//	blobs/ab/abcd…   the bytes, under their hash
//	journal          types, times, owners and blocked names
//	tmp/             what is being received; emptied at opening
//
// A blob appears under its name only when it is whole, checked and durable. The journal is written ahead of that, so a
// crash leaves either a blob with its record or a record without a blob, which is dropped at the next opening. If the journal
// is lost, everything but owners and blocked names is found again from the blobs themselves.
type Disk struct {
	fs  files
	log *slog.Logger

	mu     sync.Mutex // guards what follows, and the order of journal and names
	x      *index
	j      journal
	dirs   map[string]bool // those under blobs that are there
	closed bool

	room quota
	tmp  atomic.Int64
}

// quota counts octets: held, and promised to uploads that are under way.
type quota struct {
	mu   sync.Mutex
	max  int64
	used int64
}

// take claims n octets; a negative n gives some back.
func (q *quota) take(n int64) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if n > 0 && q.max > 0 && q.used+n > q.max {
		return ErrFull
	}
	q.used += n
	return nil
}

// OpenDisk opens the store in a directory, which is made if need be. max is its quota in octets, 0: none. One process may have it open.
func OpenDisk(dir string, max int64, log *slog.Logger) (*Disk, error) {
	r := root(dir)
	if err := r.MkdirAll("."); err != nil {
		return nil, fmt.Errorf("open the blob store: %w", err)
	}
	return openDisk(r, max, log)
}

func openDisk(fsys files, max int64, log *slog.Logger) (*Disk, error) {
	d := &Disk{fs: fsys, log: log, x: newIndex(), dirs: map[string]bool{}, room: quota{max: max}}
	if err := d.prepare(); err != nil {
		return nil, fmt.Errorf("open the blob store: %w", err)
	}
	found, err := d.scan()
	if err != nil {
		return nil, fmt.Errorf("open the blob store: %w", err)
	}
	if err := d.openJournal(found); err != nil {
		return nil, fmt.Errorf("open the blob store: %w", err)
	}
	for _, e := range d.x.blobs {
		d.room.used += e.Size
	}
	return d, nil
}

// prepare makes the directories and empties tmp.
func (d *Disk) prepare() error {
	for _, dir := range []string{"tmp", "blobs"} {
		if err := d.fs.MkdirAll(dir); err != nil {
			return err
		}
	}
	left, err := d.fs.ReadDir("tmp")
	if err != nil {
		return err
	}
	for _, e := range left {
		if err := d.fs.Remove("tmp/" + e.Name()); err != nil {
			return err
		}
	}
	return errors.Join(d.fs.SyncDir("blobs"), d.fs.SyncDir("."))
}

// onDisk is what the file of a blob says.
type onDisk struct {
	size  int64
	mtime time.Time
}

// scan lists the blobs by their files. A file with another name than a hash is not ours and is left alone.
func (d *Disk) scan() (map[Hash]onDisk, error) {
	found := map[Hash]onDisk{}
	dirs, err := d.fs.ReadDir("blobs")
	if err != nil {
		return nil, err
	}
	for _, dir := range dirs {
		if !dir.IsDir() || len(dir.Name()) != 2 || !isHex(dir.Name()) {
			continue
		}
		d.dirs["blobs/"+dir.Name()] = true
		list, err := d.fs.ReadDir("blobs/" + dir.Name())
		if err != nil {
			return nil, err
		}
		for _, f := range list {
			h, err := ParseHash(f.Name())
			if err != nil || f.Name()[:2] != dir.Name() || !f.Type().IsRegular() {
				continue
			}
			info, err := f.Info()
			if err != nil {
				return nil, err
			}
			found[h] = onDisk{info.Size(), info.ModTime()}
		}
	}
	return found, nil
}

// openJournal reads the journal, brings it and the files into agreement, and opens it for writing.
func (d *Disk) openJournal(found map[Hash]onDisk) error {
	f, err := d.fs.Append(journalName)
	if err != nil {
		return err
	}
	d.x.gone = map[Hash]bool{}
	end, lines, bad, err := replay(f, d.x)
	if err == nil {
		err = f.Truncate(end)
	}
	if err == nil {
		err = f.Sync()
	}
	if err != nil {
		return errors.Join(err, f.Close())
	}
	d.j = journal{f: f, size: end}
	if bad > 0 {
		d.log.Warn("lines of the blob journal are damaged; the blobs are found again, without their owners", "lines", bad)
	}
	changed, err := d.agree(found)
	d.x.gone = nil
	if err == nil && (changed || bad > 0 || lines > 2*(len(d.x.records())+100)) {
		err = d.compact()
	}
	if err != nil {
		return errors.Join(err, d.j.f.Close())
	}
	return nil
}

// agree drops records without a file, finishes removals that a crash cut, and takes up files that no record speaks of: those
// of a lost journal, or put there by hand.
func (d *Disk) agree(found map[Hash]onDisk) (changed bool, err error) {
	for h, e := range d.x.blobs {
		f, ok := found[h]
		switch {
		case !ok:
			d.x.drop(h)
			changed = true
		case f.size != e.Size:
			e.corrupt = true
		}
	}
	for h, f := range found {
		if d.x.blobs[h] != nil {
			continue
		}
		changed = true
		if d.x.blocked[h] || d.x.gone[h] {
			if err := d.fs.Remove(blobName(h)); err != nil {
				return changed, err
			}
			continue
		}
		kind, err := d.sniff(h)
		if err != nil {
			return changed, err
		}
		d.x.apply(record{Op: "put", Hash: h.String(), Size: f.size, Type: kind, At: f.mtime.Unix()})
	}
	return changed, nil
}

// compact writes the journal anew, as short as it can be, and puts it in the place of the old one.
func (d *Disk) compact() error {
	f, err := d.fs.Create(journalNew)
	if err != nil {
		return err
	}
	var text []byte
	for _, r := range d.x.records() {
		text = appendLine(text, r)
	}
	_, err = f.Write(text)
	if err == nil {
		err = f.Sync()
	}
	if err == nil {
		err = d.fs.Rename(journalNew, journalName)
	}
	if err == nil {
		err = d.fs.SyncDir(".")
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("shorten the journal: %w", err)
	}
	old := d.j.f
	if f, err = d.fs.Append(journalName); err != nil {
		return err
	}
	d.j = journal{f: f, size: int64(len(text))}
	return old.Close()
}

func blobName(h Hash) string { s := h.String(); return "blobs/" + s[:2] + "/" + s }

func blobDir(h Hash) string { return "blobs/" + h.String()[:2] }

func (d *Disk) sniff(h Hash) (string, error) {
	f, err := d.fs.Open(blobName(h))
	if err != nil {
		return "", err
	}
	defer f.Close()
	head := make([]byte, 512)
	n, err := io.ReadFull(f, head)
	if err != nil && err != io.EOF && err != io.ErrUnexpectedEOF {
		return "", err
	}
	return http.DetectContentType(head[:n]), nil
}

func (d *Disk) find(h Hash) (*entry, error) {
	if d.closed {
		return nil, ErrClosed
	}
	return d.x.find(h)
}

// Stat is Store's.
func (d *Disk) Stat(_ context.Context, h Hash) (Meta, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	e, err := d.find(h)
	if err != nil {
		return Meta{}, err
	}
	return e.clone(), nil
}

// Open is Store's.
func (d *Disk) Open(ctx context.Context, h Hash) (io.ReadSeekCloser, Meta, error) {
	f, m, err := d.open(ctx, h)
	if err != nil {
		return nil, m, err
	}
	return f, m, nil
}

func (d *Disk) open(ctx context.Context, h Hash) (file, Meta, error) {
	m, err := d.Stat(ctx, h)
	if err != nil {
		return nil, m, err
	}
	f, err := d.fs.Open(blobName(h))
	if err != nil {
		if _, serr := d.Stat(ctx, h); serr != nil {
			return nil, m, serr // removed meanwhile
		}
		return nil, m, fmt.Errorf("open the blob: %w", err)
	}
	info, err := f.Stat()
	if err != nil {
		return nil, m, errors.Join(fmt.Errorf("open the blob: %w", err), f.Close())
	}
	if info.Size() != m.Size {
		f.Close()
		return nil, m, cmp.Or(d.Suspect(ctx, h), ErrCorrupt)
	}
	return f, m, nil
}

// Verify is Store's. The answer holds until the file's time of change moves.
func (d *Disk) Verify(ctx context.Context, h Hash) error {
	f, _, err := d.open(ctx, h)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return fmt.Errorf("verify the blob: %w", err)
	}
	d.mu.Lock()
	e, err := d.find(h)
	known := err == nil && e.verified.done && e.verified.mtime.Equal(info.ModTime())
	d.mu.Unlock()
	if err != nil || known {
		return err
	}
	return d.check(ctx, f, h, info.ModTime())
}

// check hashes a file and notes the outcome.
func (d *Disk) check(ctx context.Context, f file, h Hash, mtime time.Time) error {
	got, _, err := hashOf(ctx, f)
	if err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	e, err := d.find(h)
	switch {
	case err != nil:
		return err
	case got != h:
		e.corrupt, e.verified = true, mark{}
		d.log.Error("a blob on disk is damaged; it counts as missing until it is stored anew", "sha256", h.String())
		return ErrCorrupt
	}
	e.verified = mark{true, mtime}
	return nil
}

// Suspect is Store's.
func (d *Disk) Suspect(ctx context.Context, h Hash) error {
	f, err := d.fs.Open(blobName(h))
	if err != nil {
		return fmt.Errorf("open the blob: %w", err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return fmt.Errorf("verify the blob: %w", err)
	}
	return d.check(ctx, f, h, info.ModTime())
}

// Put is Store's.
func (d *Disk) Put(ctx context.Context, r io.Reader, in Incoming) (m Meta, created bool, err error) {
	if in.Limit > 0 && in.Size > in.Limit {
		return m, false, ErrTooLarge
	}
	claimed := max(in.Size, 0)
	if err := d.room.take(claimed); err != nil {
		return m, false, err
	}
	var held int64 // what stays when the blob does
	defer func() { _ = d.room.take(held - claimed) }()
	name := "tmp/" + strconv.FormatInt(d.tmp.Add(1), 10)
	f, err := d.fs.Create(name)
	if err != nil {
		return m, false, fmt.Errorf("receive the blob: %w", full(err))
	}
	kept := false
	defer func() {
		if !kept {
			if rerr := d.fs.Remove(name); rerr != nil {
				d.log.Warn("a file in tmp could not be removed", "err", rerr)
			}
		}
	}()
	grow := func(n int64) error {
		if in.Size >= 0 {
			return nil
		}
		if err := d.room.take(n); err != nil {
			return err
		}
		claimed += n
		return nil
	}
	h, n, err := pour(ctx, f, r, &in, grow)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return m, false, full(err)
	}
	if in.Check != nil {
		if err := in.Check(h, n); err != nil {
			return m, false, err
		}
	}
	m, created, held, kept, err = d.keep(name, h, n, &in)
	return m, created, full(err)
}

// full makes a full disk the same to callers as a full quota.
func full(err error) error {
	if errors.Is(err, syscall.ENOSPC) {
		return fmt.Errorf("%w: %w", ErrFull, err)
	}
	return err
}

// keep gives a durable file in tmp its name. It reports how much more the store holds, and whether the file has moved.
func (d *Disk) keep(tmp string, h Hash, n int64, in *Incoming) (m Meta, created bool, grown int64, moved bool, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	e, err := d.find(h)
	if err == nil {
		m, err = d.addOwner(e, in.Owner, in.Now)
		return m, false, 0, false, err
	}
	if !errors.Is(err, ErrNotFound) && !errors.Is(err, ErrCorrupt) {
		return m, false, 0, false, err
	}
	heals := e != nil
	if err := d.makeDir(h); err != nil {
		return m, false, 0, false, err
	}
	put := putRecord(h, n, in)
	if err := d.j.add(put); err != nil {
		return m, false, 0, false, err
	}
	if err = d.fs.Rename(tmp, blobName(h)); err == nil {
		moved = true
		err = d.fs.SyncDir(blobDir(h))
	}
	if err != nil {
		// Whether the name is there, or will be after a crash, nobody knows: take it away, and the record with it.
		if rerr := d.fs.Remove(blobName(h)); rerr == nil {
			moved = true
		}
		if jerr := d.j.add(record{Op: "gone", Hash: put.Hash}); jerr != nil {
			err = errors.Join(err, jerr)
		}
		if heals {
			grown = -e.Size
		}
		d.x.drop(h)
		return m, false, grown, moved, fmt.Errorf("name the blob: %w", err)
	}
	if heals {
		grown = -e.Size
	}
	d.x.apply(put)
	e = d.x.blobs[h]
	if f, err := d.fs.Open(blobName(h)); err == nil {
		if info, err := f.Stat(); err == nil {
			e.verified = mark{true, info.ModTime()}
		}
		f.Close()
	}
	return e.clone(), true, grown + n, true, nil
}

// makeDir makes a blob's directory durable.
func (d *Disk) makeDir(h Hash) error {
	dir := blobDir(h)
	if d.dirs[dir] {
		return nil
	}
	err := d.fs.MkdirAll(dir)
	if err == nil {
		err = d.fs.SyncDir("blobs")
	}
	if err != nil {
		return fmt.Errorf("make the blob's directory: %w", err)
	}
	d.dirs[dir] = true
	return nil
}

// addOwner notes an owner durably, unless it is one already.
func (d *Disk) addOwner(e *entry, k nostr.PubKey, now int64) (Meta, error) {
	if _, has := e.OwnedBy(k); !has && k != (nostr.PubKey{}) {
		r := record{Op: "own", Hash: e.Hash.String(), By: k.String(), At: now}
		if err := d.j.add(r); err != nil {
			return Meta{}, full(err)
		}
		d.x.apply(r)
	}
	return e.clone(), nil
}
