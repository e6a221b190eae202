package eventlog

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"sync/atomic"
)

// A log file begins with a header of 32 bytes; records follow without gaps:
//
//	0  magic   8 bytes  "FMEVLOG\n"
//	8  version uint32
//	12 number  uint32   of this file, never used again
//	16 flags   uint32   1: a rewrite of an older file
//	20 origin  uint32   number of that file
//	28 crc     uint32   CRC-32C of bytes 0 to 27
const (
	logMagic   = "FMEVLOG\n"
	logHeader  = 32
	logRewrite = 1

	// FormatVersion is the version of all files of a store (docs/store-format.md).
	// Version 2 added the sizes and origins of log files to the manifest; version 1 is read as well.
	FormatVersion = 2
)

// ErrVersion is wrapped by Open when the store was written by a newer program.
var ErrVersion = errors.New("store format is newer than this program")

// logFile is one file of the log.
type logFile struct {
	no      uint32
	origin  uint32 // number of the file it is a rewrite of, 0 for none
	f       File
	rewrite bool
	broken  bool         // its header is damaged
	size    atomic.Int64 // bytes of whole records and the header
	dead    atomic.Int64 // bytes of records that no longer matter
	refs    atomic.Int32
	remove  atomic.Bool // when the last reader is gone
	fs      FS
	windows logWindows
}

func logName(no uint32) string { return fmt.Sprintf("log-%08d", no) }

// numberOf reads the number in a file name with that prefix.
func numberOf(name, prefix string) (n uint32, ok bool) {
	if len(name) != len(prefix)+8 || name[:len(prefix)] != prefix {
		return 0, false
	}
	for _, c := range name[len(prefix):] {
		if c < '0' || c > '9' {
			return 0, false
		}
		n = n*10 + uint32(c-'0')
	}
	return n, true
}

func appendLogHeader(b []byte, no, origin uint32) []byte {
	flags := uint32(0)
	if origin != 0 {
		flags = logRewrite
	}
	b = append(b, logMagic...)
	b = binary.LittleEndian.AppendUint32(b, FormatVersion)
	b = binary.LittleEndian.AppendUint32(b, no)
	b = binary.LittleEndian.AppendUint32(b, flags)
	b = binary.LittleEndian.AppendUint32(b, origin)
	b = append(b, make([]byte, 4)...)
	return binary.LittleEndian.AppendUint32(b, crc32.Checksum(b, castagnoli))
}

// createLog makes a log file, a rewrite of origin unless that is 0, and makes its name durable.
func createLog(fs FS, no, origin uint32) (*logFile, error) {
	f, err := fs.Create(logName(no))
	if err != nil {
		return nil, fmt.Errorf("create log file: %w", err)
	}
	_, err = f.WriteAt(appendLogHeader(nil, no, origin), 0)
	if err == nil {
		err = f.Sync()
	}
	if err == nil {
		err = fs.SyncDir()
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("create log file: %w", err), f.Close())
	}
	l := &logFile{no: no, origin: origin, f: f, rewrite: origin != 0, fs: fs}
	l.size.Store(logHeader)
	return l, nil
}

// openLog opens a log file; ref is what the manifest says of it, nil for nothing. A file too short
// for its header, or of zeros alone, as a crash right after its creation leaves it, gives
// io.ErrUnexpectedEOF. A damaged header is no error: the name and the manifest say the same.
func openLog(fs FS, no uint32, ref *logRef) (*logFile, error) {
	f, err := fs.Open(logName(no))
	if err != nil {
		return nil, fmt.Errorf("open log file: %w", err)
	}
	l := &logFile{no: no, f: f, fs: fs}
	if err := l.header(ref); err != nil {
		return nil, errors.Join(fmt.Errorf("log file %d: %w", no, err), f.Close())
	}
	return l, nil
}

func (l *logFile) header(ref *logRef) error {
	n, err := l.f.Size()
	if err != nil {
		return err
	}
	if n < logHeader {
		return io.ErrUnexpectedEOF
	}
	var h [logHeader]byte
	if _, err := l.f.ReadAt(h[:], 0); err != nil {
		return err
	}
	l.size.Store(n)
	if string(h[:8]) == logMagic && crc32.Checksum(h[:28], castagnoli) == binary.LittleEndian.Uint32(h[28:]) {
		if v := binary.LittleEndian.Uint32(h[8:]); v > FormatVersion {
			return fmt.Errorf("%w: version %d, this program knows %d", ErrVersion, v, FormatVersion)
		}
		l.origin = binary.LittleEndian.Uint32(h[20:])
		l.rewrite = binary.LittleEndian.Uint32(h[16:])&logRewrite != 0
		return nil
	}
	if ref != nil {
		l.origin, l.rewrite = ref.Origin, ref.Origin != 0
	} else if h == [logHeader]byte{} && !l.hasRecord() {
		return io.ErrUnexpectedEOF
	}
	l.broken = true
	return nil
}

// hasRecord says whether there is a whole record in the file.
func (l *logFile) hasRecord() bool {
	_, _, err := l.scan(logHeader, func(*record, pos) error { return errRecord })
	return err != nil
}

// pos is where a record is.
type pos struct{ file, off, size uint32 }

// read returns the record at off, whose size is b's. It points into b.
func (l *logFile) read(off uint32, b []byte) (record, error) {
	if err := l.readAt(b, int64(off)); err != nil {
		if errors.Is(err, io.EOF) {
			return record{}, errRecord
		}
		return record{}, err
	}
	return parseRecord(b)
}

// Hole is a stretch of a log file in which no record could be read.
type Hole struct {
	File     uint32
	From, To int64
}

// scan calls fn for every record from an offset on. It steps over damage to the next
// record that is whole, and reports it; end is where the last whole record ends.
func (l *logFile) scan(from int64, fn func(r *record, p pos) error) (end int64, holes []Hole, err error) {
	b, err := readAll(l.f)
	if err != nil {
		return 0, nil, fmt.Errorf("read log file %d: %w", l.no, err)
	}
	end = from
	for off := from; off < int64(len(b)); {
		r, err := parseRecord(b[off:])
		if errors.Is(err, errEffects) {
			return 0, nil, fmt.Errorf("log file %d at %d: %w", l.no, off, err)
		}
		if err != nil {
			off++
			for off < int64(len(b))-1 && (b[off] != recordMagic&0xff || b[off+1] != recordMagic>>8) {
				off++
			}
			if off >= int64(len(b))-1 {
				break
			}
			continue
		}
		if off > end {
			holes = append(holes, Hole{l.no, end, off})
		}
		if err := fn(&r, pos{l.no, uint32(off), uint32(r.size)}); err != nil {
			return 0, nil, err
		}
		off += int64(r.size)
		end = off
	}
	return end, holes, nil
}

// release gives up a reference.
func (l *logFile) release() {
	if l.refs.Add(-1) > 0 {
		return
	}
	l.windows.close()
	l.f.Close()
	if l.remove.Load() {
		l.fs.Remove(logName(l.no)) // if it fails, Open removes it
	}
}
