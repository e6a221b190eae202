package transport

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"net"
	"testing"
)

func TestReadFrameRefuses(t *testing.T) {
	for _, c := range []struct {
		name string
		in   []byte
		want error
	}{
		{"over the limit", binary.AppendUvarint(nil, MaxFrame+1), ErrFrameTooLarge},
		{"far over the limit", bytes.Repeat([]byte{0xff}, 12), ErrFrameTooLarge},
		{"padded length", []byte{0x81, 0x00, 'x'}, nil},
		{"cut in the length", []byte{0x81}, nil},
		{"cut in the frame", []byte{3, 'a', 'b'}, nil},
	} {
		f, err := readFrame(bufio.NewReader(bytes.NewReader(c.in)))
		if err == nil || c.want != nil && !errors.Is(err, c.want) {
			t.Errorf("%s: frame %q, error %v", c.name, f, err)
		}
	}
}

// FuzzReadFrame: whatever arrives, reading ends, and what was read is written the
// same way.
func FuzzReadFrame(f *testing.F) {
	f.Add([]byte{0})
	f.Add([]byte{2, '{', '}'})
	f.Add([]byte{0x80, 0x01, 'x'})
	f.Add(binary.AppendUvarint(nil, MaxFrame))
	f.Add([]byte{0xff, 0xff, 0xff, 0xff, 0xff})
	f.Fuzz(func(t *testing.T, in []byte) {
		frame, err := readFrame(bufio.NewReader(bytes.NewReader(in)))
		if err != nil {
			return
		}
		out := append(binary.AppendUvarint(nil, uint64(len(frame))), frame...)
		if !bytes.HasPrefix(in, out) {
			t.Fatalf("%x was read as %x, which is written %x", in, frame, out)
		}
	})
}

// TestHalfAFrame: a peer that goes away in the middle of a frame is an error, not
// a clean end.
func TestHalfAFrame(t *testing.T) {
	a, b := net.Pipe()
	s := NewByteStream("test", a)
	go func() {
		b.Write([]byte{5, 'h', 'a'})
		b.Close()
	}()
	if _, err := s.Receive(t.Context()); err == nil || errors.Is(err, ErrClosed) {
		t.Errorf("half a frame: %v", err)
	}
}
