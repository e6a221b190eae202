package blossom

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
)

// The journal is a text file: a line a record, each "crc32c in 8 hex digits, space, JSON". What a crash left of the last
// line is cut off; a line that is damaged in the middle costs what that line said and nothing else, because the bytes of
// a blob and so its name and size are found again on disk.
const (
	journalName = "journal"
	journalNew  = "tmp/journal"
	maxLine     = 64 << 10
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func appendLine(dst []byte, r record) []byte {
	text, err := json.Marshal(r)
	if err != nil {
		panic("blossom: a record always renders: " + err.Error())
	}
	dst = fmt.Appendf(dst, "%08x ", crc32.Checksum(text, castagnoli))
	return append(append(dst, text...), '\n')
}

// parseLine reads a line without its end.
func parseLine(line []byte) (r record, ok bool) {
	if len(line) < 10 || line[8] != ' ' {
		return r, false
	}
	text := line[9:]
	if string(line[:8]) != fmt.Sprintf("%08x", crc32.Checksum(text, castagnoli)) {
		return r, false
	}
	return r, json.Unmarshal(text, &r) == nil
}

// replay reads a journal into an index. It returns where the last whole line ends, and how many lines there were
// and how many of them are damaged.
func replay(r io.Reader, x *index) (end int64, lines, bad int, err error) {
	in := bufio.NewReaderSize(r, maxLine)
	for {
		line, err := in.ReadSlice('\n')
		switch {
		case errors.Is(err, bufio.ErrBufferFull): // no record is that long: damage
			end += int64(len(line))
			bad++
			continue
		case errors.Is(err, io.EOF):
			return end, lines, bad, nil // what is left is a line that a crash cut
		case err != nil:
			return end, lines, bad, fmt.Errorf("read the journal: %w", err)
		}
		end += int64(len(line))
		lines++
		if rec, ok := parseLine(bytes.TrimSuffix(line, []byte("\n"))); !ok || !x.apply(rec) {
			bad++
		}
	}
}

// journal appends records durably.
type journal struct {
	f      file
	size   int64 // of what is known to be good
	broken bool  // a failed write could not be taken back: nothing may follow it
}

// add appends records; they are durable when it returns. On error the journal is as it was before, or takes no more writes.
func (j *journal) add(records ...record) error {
	if j.broken {
		return ErrReadOnly
	}
	var text []byte
	for _, r := range records {
		text = appendLine(text, r)
	}
	_, err := j.f.Write(text)
	if err == nil {
		err = j.f.Sync()
	}
	if err != nil {
		if terr := j.f.Truncate(j.size); terr != nil {
			j.broken = true
			err = errors.Join(err, terr)
		} else if serr := j.f.Sync(); serr != nil {
			j.broken = true // after a failed sync nobody knows what the disk holds
			err = errors.Join(err, serr)
		}
		return fmt.Errorf("write the journal: %w", err)
	}
	j.size += int64(len(text))
	return nil
}
