package relay

import (
	"errors"
	"io"
	"net"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/gobwas/ws"
)

// script is a connection that hands out what it was given, in pieces, and then ends.
type script struct {
	net.Conn
	text []byte
	step int
}

func (s *script) Read(p []byte) (int, error) {
	if len(s.text) == 0 {
		return 0, io.EOF
	}
	n := copy(p[:min(len(p), s.step)], s.text)
	s.text = s.text[n:]
	return n, nil
}

func (s *script) SetReadDeadline(time.Time) error { return nil }

type controls struct{ pings, pongs int }

func (c *controls) onPing(p []byte) {
	if len(p) > ws.MaxControlFramePayloadSize {
		panic("a long ping")
	}
	c.pings++
}
func (c *controls) onPong()                 { c.pongs++ }
func (c *controls) onSilence()              {}
func (c *controls) patience(time.Time) bool { return true }

// FuzzFrames feeds octets to the frame reader, in pieces of several sizes, which must make no difference.
func FuzzFrames(f *testing.F) {
	text := []byte{0x81, 0x85, 1, 2, 3, 4, 'h' ^ 1, 'e' ^ 2, 'l' ^ 3, 'l' ^ 4, 'o' ^ 1}
	f.Add(text)
	f.Add(append([]byte{0x89, 0x80, 0, 0, 0, 0, 0x01, 0x81, 0, 0, 0, 0, 'a', 0x80, 0x81, 0, 0, 0, 0, 'b'}, text...))
	f.Add([]byte{0x88, 0x82, 0, 0, 0, 0, 3, 0xe8})
	f.Add([]byte{0x82, 0xfe, 0x00, 0x7e, 0, 0, 0, 0, 1, 2, 3})
	f.Add([]byte{0x81, 0xff, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 'x'})
	f.Fuzz(func(t *testing.T, raw []byte) {
		const most = 4096
		var first string
		for _, step := range []int{1, 7, 1 << 20} {
			early := raw[:min(len(raw), 3)]
			r := newFrameReader(&script{text: raw[len(early):], step: step}, &controls{}, early, most, time.Hour, time.Hour)
			got := ""
			for {
				op, p, err := r.next()
				if err != nil {
					var c *closeError
					if errors.As(err, &c) && !utf8.ValidString(c.reason) {
						t.Errorf("reason %q", c.reason)
					}
					got += "!" + err.Error()
					break
				}
				if len(p) > most || op == ws.OpText && !utf8.Valid(p) {
					t.Errorf("message of %d octets", len(p))
				}
				got += string(rune(op)) + string(p)
			}
			r.release()
			if first == "" {
				first = got
			}
			if got != first {
				t.Errorf("in pieces of %d: %q, else %q", step, got, first)
			}
		}
	})
}

func BenchmarkReadFrames(b *testing.B) {
	payload := make([]byte, 400)
	for i := range payload {
		payload[i] = 'x'
	}
	one := append([]byte{0x81, 0xfe, 1, 0x90, 0, 0, 0, 0}, payload...)
	var raw []byte
	for range 1000 {
		raw = append(raw, one...)
	}
	s := &script{step: 1 << 20}
	r := newFrameReader(s, &controls{}, nil, 1<<20, time.Hour, time.Hour)
	b.ReportAllocs()
	for n := 0; b.Loop(); n++ {
		if n%1000 == 0 {
			s.text = raw
		}
		if _, _, err := r.next(); err != nil {
			b.Fatal(err)
		}
	}
}
