package trail

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
)

// pages are a directory of text files, a JSON object a line: the current one, and older ones up to a number. When the current one is full the
// oldest goes, so that they never grow beyond their bound. They are not synced at every line: a power cut may cost the last ones.
type pages struct {
	dir, name string
	size      int64 // octets of one file
	keep      int   // files beside the current one

	mu   sync.Mutex
	f    *os.File
	used int64
}

func openPages(dir, name string, size int64, keep int) (*pages, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	p := &pages{dir: dir, name: name, size: size, keep: keep}
	return p, p.begin()
}

func (p *pages) path(age int) string {
	if age == 0 {
		return filepath.Join(p.dir, p.name+".jsonl")
	}
	return filepath.Join(p.dir, fmt.Sprintf("%s.%d.jsonl", p.name, age))
}

// begin opens the current file. A torn last line gets its end, so that the next one stands by itself.
func (p *pages) begin() error {
	f, err := os.OpenFile(p.path(0), os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	st, err := f.Stat()
	if err == nil && st.Size() > 0 {
		last := make([]byte, 1)
		if _, err = f.ReadAt(last, st.Size()-1); err == nil && last[0] != '\n' {
			_, err = f.Write([]byte("\n"))
		}
	}
	if err != nil {
		return errors.Join(err, f.Close())
	}
	p.f, p.used = f, st.Size()
	return nil
}

// add writes whole lines.
func (p *pages) add(text []byte) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.used > 0 && p.used+int64(len(text)) > p.size {
		if err := p.turn(); err != nil {
			return fmt.Errorf("begin a new file: %w", err)
		}
	}
	n, err := p.f.Write(text)
	p.used += int64(n)
	return err
}

// turn begins a new file; the oldest goes.
func (p *pages) turn() error {
	if err := p.f.Close(); err != nil {
		return err
	}
	for age := p.keep; age > 0; age-- {
		if err := os.Rename(p.path(age-1), p.path(age)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return p.begin()
}

// scan reads every line, the oldest first. A line is good until the next.
func (p *pages) scan(line func([]byte)) error {
	for age := p.keep; age >= 0; age-- {
		if err := scanFile(p.path(age), line); err != nil {
			return err
		}
	}
	return nil
}

func scanFile(path string, line func([]byte)) error {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	r := bufio.NewReaderSize(f, 1<<20)
	for {
		text, err := r.ReadSlice('\n')
		if errors.Is(err, bufio.ErrBufferFull) {
			continue // no line of ours is that long
		}
		if len(text) > 0 && err == nil {
			line(text)
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

func (p *pages) close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	err := p.f.Close()
	if errors.Is(err, fs.ErrClosed) {
		return nil
	}
	return err
}
