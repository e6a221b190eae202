package transport

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"
)

// byteStream makes frames of a net.Conn: unsigned-varint length, then the frame
// (spec/constants.json, stream framing). Every byte-stream carrier uses it.
type byteStream struct {
	scheme string
	conn   net.Conn
	r      *bufio.Reader

	send    sync.Mutex
	receive sync.Mutex
	head    [binary.MaxVarintLen32]byte
}

// NewByteStream wraps a connection in the stream framing, for carriers outside
// this package too.
func NewByteStream(scheme string, conn net.Conn) Stream {
	return &byteStream{scheme: scheme, conn: conn, r: bufio.NewReaderSize(conn, 16<<10)}
}

func (s *byteStream) Scheme() string { return s.scheme }

func (s *byteStream) Close() error {
	if err := s.conn.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
		return err
	}
	return nil
}

// past is a deadline that interrupts at once.
var past = time.Unix(1, 0)

// interruptible runs op and breaks it off through setDeadline when ctx is done.
// When it returns, no deadline is set any more.
func interruptible(ctx context.Context, setDeadline func(time.Time) error, op func() error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	interrupted := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		setDeadline(past)
		close(interrupted)
	})
	err := op()
	if !stop() {
		<-interrupted
		setDeadline(time.Time{})
		if err != nil {
			return ctx.Err()
		}
	}
	return err
}

func (s *byteStream) Send(ctx context.Context, frame []byte) error {
	if len(frame) > MaxFrame {
		return ErrFrameTooLarge
	}
	s.send.Lock()
	defer s.send.Unlock()
	n := binary.PutUvarint(s.head[:], uint64(len(frame)))
	err := interruptible(ctx, s.conn.SetWriteDeadline, func() error {
		bufs := net.Buffers{s.head[:n], frame}
		_, err := bufs.WriteTo(s.conn)
		return err
	})
	if err != nil {
		s.conn.Close() // half a frame may be out
		return streamError("send", err)
	}
	return nil
}

func (s *byteStream) Receive(ctx context.Context) ([]byte, error) {
	s.receive.Lock()
	defer s.receive.Unlock()
	var frame []byte
	started := false
	err := interruptible(ctx, s.conn.SetReadDeadline, func() error {
		if _, err := s.r.Peek(1); err != nil {
			return err
		}
		started = true
		var err error
		frame, err = readFrame(s.r)
		return err
	})
	switch {
	case err == nil:
		return frame, nil
	case !started && ctx.Err() != nil && errors.Is(err, ctx.Err()):
		return nil, err // between frames: the stream is whole
	}
	s.conn.Close()
	return nil, streamError("receive", err)
}

// readFrame reads one frame. It allocates as octets arrive, not as the length
// claims.
func readFrame(r *bufio.Reader) ([]byte, error) {
	n, err := readLength(r)
	if err != nil {
		return nil, err
	}
	const step = 64 << 10
	frame := make([]byte, 0, min(n, step))
	for len(frame) < n {
		k := min(n-len(frame), max(step, len(frame)))
		frame = append(frame, make([]byte, k)...)
		if _, err := io.ReadFull(r, frame[len(frame)-k:]); err != nil {
			return nil, noEOF(err)
		}
	}
	return frame, nil
}

// readLength reads an unsigned varint of at most MaxFrame in its shortest form.
func readLength(r *bufio.Reader) (int, error) {
	var n uint64
	for shift := 0; ; shift += 7 {
		c, err := r.ReadByte()
		if err != nil {
			if shift > 0 {
				err = noEOF(err)
			}
			return 0, err
		}
		if c == 0 && shift > 0 {
			return 0, errors.New("frame length is not in its shortest form")
		}
		n |= uint64(c&0x7f) << shift
		if n > MaxFrame || shift > 21 && c >= 0x80 {
			return 0, ErrFrameTooLarge
		}
		if c < 0x80 {
			return int(n), nil
		}
	}
}

func noEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// streamError names a closed connection ErrClosed and wraps the rest.
func streamError(what string, err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, net.ErrClosed) || errors.Is(err, io.ErrClosedPipe) {
		return ErrClosed
	}
	return fmt.Errorf("%s frame: %w", what, err)
}
