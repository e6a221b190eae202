package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"fleetmesh.org/fleetmesh/internal/daemon"
	"fleetmesh.org/fleetmesh/spec"
)

type importCmd struct {
	File     string `arg:"" optional:"" help:"JSONL file, or the database of a nostr-rs-relay; stdin if absent or -." default:"-"`
	NoVerify bool   `help:"Trust the signatures: for a dump that you made yourself."`
}

func (c *importCmd) Help() string {
	return `Takes one event a line, as strfry export and meshnode export write them. Lines that are no event, or whose signature does not hold,
are counted and named, and the rest goes on. Works on a running node and on a stopped one.

Examples:
  strfry export | meshnode import
  meshnode import backup.jsonl
  meshnode import /var/lib/nostr-rs-relay/nostr.db   # read only; the relay may be running`
}

// importBatch is how many lines go to the store together.
const importBatch = 2000

func (c *importCmd) Run(a *app) error {
	in, size, err := c.open(a)
	if err != nil {
		return &exit{spec.ExitUsage, err.Error()}
	}
	defer in.Close()
	offer, done, err := a.offers(c.NoVerify)
	if err != nil {
		return err
	}
	total, err := c.feed(a, in, size, offer)
	err = errors.Join(err, done())
	if err != nil {
		return err
	}
	if err := a.print(total, func(w io.Writer) {
		fmt.Fprintf(w, "%d lines: %d stored, %d held already, %d superseded or deleted, %d refused, %d not valid\n",
			total.Lines, total.Stored, total.Duplicate, total.Obsolete, total.Refused, total.Invalid)
		for _, e := range total.Examples {
			fmt.Fprintln(w, " ", e)
		}
	}); err != nil {
		return err
	}
	if total.Lines > 0 && total.Invalid == total.Lines {
		return &exit{spec.ExitInvalid, "no line of the input is a valid event"}
	}
	return nil
}

func (c *importCmd) open(a *app) (io.ReadCloser, int64, error) {
	if c.File == "-" {
		return io.NopCloser(a.in), 0, nil
	}
	return daemon.OpenDump(a.ctx, c.File)
}

// feed reads lines and offers them in batches, with progress.
func (c *importCmd) feed(a *app, in io.Reader, size int64, offer func([]daemon.Line) (daemon.Imported, error)) (total daemon.Imported, err error) {
	r := bufio.NewReaderSize(in, 1<<20)
	bar := a.progress("import", size)
	defer bar.end()
	var batch []daemon.Line
	var read int64
	no := 0
	flush := func() error {
		got, err := offer(batch)
		total.Add(got)
		batch = batch[:0]
		bar.show(read, fmt.Sprintf("%d lines, %d stored", total.Lines, total.Stored))
		return err
	}
	for {
		line, err := r.ReadBytes('\n')
		if read == 0 {
			line = bytes.TrimPrefix(line, []byte("\ufeff")) // some editors put a byte order mark before a text
		}
		read += int64(len(line))
		no++
		if line = bytes.TrimSpace(line); len(line) > 0 {
			batch = append(batch, daemon.Line{No: no, Text: string(line)})
		}
		if len(batch) >= importBatch || (err != nil && len(batch) > 0) {
			if ferr := flush(); ferr != nil {
				return total, ferr
			}
		}
		if errors.Is(err, io.EOF) {
			return total, nil
		}
		if err != nil {
			return total, fmt.Errorf("read the input: %w", err)
		}
		if a.ctx.Err() != nil {
			return total, a.ctx.Err()
		}
	}
}

// offers returns how to offer lines: to the running node, or to the store of a stopped one.
func (a *app) offers(noVerify bool) (offer func([]daemon.Line) (daemon.Imported, error), done func() error, err error) {
	if a.running() {
		return func(lines []daemon.Line) (r daemon.Imported, err error) {
			return r, a.call("events.import", daemon.ImportParams{Lines: lines, NoVerify: noVerify}, &r, nil)
		}, func() error { return nil }, nil
	}
	s, err := daemon.OpenOffline(a.dir)
	if err != nil {
		return nil, nil, err
	}
	return func(lines []daemon.Line) (daemon.Imported, error) { return s.Import(a.ctx, lines, noVerify) }, s.Close, nil
}

type exportCmd struct {
	Filter string `arg:"" optional:"" help:"NIP-01 filter; all events if absent." default:"{}"`
	Since  uint64 `help:"Only what arrived after this place in the order of arrival."`
}

func (c *exportCmd) Help() string {
	return `Writes JSONL to stdout, in the order in which the events arrived, each line as it came. Works on a running node and on a stopped one.

Examples:
  meshnode export > backup.jsonl
  meshnode export '{"kinds":[1]}' | gzip > notes.jsonl.gz`
}

func (c *exportCmd) Run(a *app) error {
	filter, err := rawFilter(c.Filter)
	if err != nil {
		return err
	}
	out := bufio.NewWriterSize(a.out, 1<<20)
	page := func(after uint64) (p daemon.ExportPage, err error) {
		return p, a.call("events.export", daemon.ExportParams{Filter: filter, After: after}, &p, nil)
	}
	if !a.running() {
		s, err := a.offline()
		if err != nil {
			return err
		}
		defer s.Close()
		page = func(after uint64) (daemon.ExportPage, error) {
			return s.Export(a.ctx, daemon.ExportParams{Filter: filter, After: after})
		}
	}
	after, n := c.Since, 0
	bar := a.progress("export", 0)
	defer bar.end()
	for {
		p, err := page(after)
		if err != nil {
			return err
		}
		for _, line := range p.Lines {
			out.WriteString(line)
			out.WriteByte('\n') // errors show at Flush
		}
		n += len(p.Lines)
		bar.show(int64(n), fmt.Sprintf("%d events", n))
		if p.End && p.Damaged > 0 && out.Flush() == nil {
			return &exit{spec.ExitFailure, fmt.Sprintf("%d events are damaged and were left out: `meshnode store check` lists them, and a sync with a relay that holds them heals them", p.Damaged)}
		}
		if p.End {
			return out.Flush()
		}
		after = p.Next
	}
}

// bar shows progress on stderr, where that is a terminal.
type bar struct {
	w     io.Writer
	what  string
	all   int64
	last  time.Time
	shown bool
}

func (a *app) progress(what string, all int64) *bar {
	b := &bar{what: what, all: all}
	if f, ok := a.err.(*os.File); ok && !a.json {
		if fi, err := f.Stat(); err == nil && fi.Mode()&os.ModeCharDevice != 0 {
			b.w = f
		}
	}
	return b
}

func (b *bar) show(done int64, text string) {
	if b.w == nil || time.Since(b.last) < 200*time.Millisecond {
		return
	}
	b.last, b.shown = time.Now(), true
	if b.all <= 0 {
		fmt.Fprintf(b.w, "\r\033[K%s: %s", b.what, text)
		return
	}
	const width = 30
	full := int(min(done, b.all) * width / b.all)
	fmt.Fprintf(b.w, "\r\033[K%s [%s%s] %3d %% %s", b.what, bytes.Repeat([]byte("#"), full), bytes.Repeat([]byte("."), width-full), done*100/b.all, text)
}

func (b *bar) end() {
	if b.shown {
		fmt.Fprint(b.w, "\r\033[K")
	}
}
