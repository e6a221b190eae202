package web

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"net/http"
	"sync"
	"time"
)

// Streams at once, in all and of one sign-in. Whoever opens more is told so, and sees pages that stand still.
const (
	maxStreams           = 24
	maxStreamsPerSession = 6
	streamLife           = time.Hour // then the browser comes again
	writePatience        = 10 * time.Second
	tick                 = 2 * time.Second // how often an open page is looked at anew
)

// streams counts the live pages.
type streams struct {
	mu  sync.Mutex
	all int
	by  map[*session]int
}

func (s *streams) enter(one *session) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.by == nil {
		s.by = map[*session]int{}
	}
	if s.all >= maxStreams || s.by[one] >= maxStreamsPerSession {
		return false
	}
	s.all++
	s.by[one]++
	return true
}

func (s *streams) leave(one *session) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all--
	if s.by[one]--; s.by[one] == 0 {
		delete(s.by, one)
	}
}

// serveLive sends an open page what changed on it, as server-sent events, until the browser goes away or the session ends.
func (w *Web) serveLive(rw http.ResponseWriter, r *http.Request, s *session) {
	v, ok := viewNamed(r.URL.Query().Get("view"))
	if !ok {
		http.NotFound(rw, r)
		return
	}
	if !w.streams.enter(s) {
		rw.Header().Set("Retry-After", "60")
		http.Error(rw, "too many live pages are open: close some", http.StatusTooManyRequests)
		return
	}
	defer w.streams.leave(s)
	ctx, cancel := context.WithTimeout(r.Context(), streamLife)
	defer cancel()
	defer context.AfterFunc(w.ctx, cancel)()

	h := rw.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("X-Accel-Buffering", "no")
	out := &stream{rw: rw, control: http.NewResponseController(rw), sent: map[string][32]byte{}}
	if out.write(": here\n\n") != nil { // the page learns that it is live even where nothing changes
		return
	}
	ticker := time.NewTicker(tick)
	defer ticker.Stop()
	for {
		look, done := context.WithTimeout(ctx, patience)
		err := out.send(v.parts(w.look(look, r, s, true)))
		done()
		if err != nil {
			return
		}
		select {
		case <-ticker.C:
		case <-s.over:
			_ = out.write("event: over\ndata: {}\n\n") // the page says that it was signed out
			return
		case <-ctx.Done():
			return
		}
	}
}

// stream is one live page.
type stream struct {
	rw      http.ResponseWriter
	control *http.ResponseController
	sent    map[string][32]byte // digest of each section as the page has it
	quiet   int
}

// send writes the sections that are not as the page has them.
func (s *stream) send(parts []section) error {
	changed := map[string]string{}
	for _, p := range parts {
		if p.Fixed {
			continue
		}
		text := string(p.html())
		sum := sha256.Sum256([]byte(text))
		if s.sent[p.ID] != sum {
			s.sent[p.ID] = sum
			changed[p.ID] = text
		}
	}
	if len(changed) == 0 {
		if s.quiet++; s.quiet%8 != 0 {
			return nil
		}
		return s.write(": still here\n\n")
	}
	var b bytes.Buffer
	if err := json.NewEncoder(&b).Encode(changed); err != nil {
		return fmt.Errorf("encode what changed: %w", err)
	}
	return s.write("data: " + b.String() + "\n")
}

func (s *stream) write(text string) error {
	_ = s.control.SetWriteDeadline(time.Now().Add(writePatience)) // where it cannot be set, the server's own limits hold
	if _, err := s.rw.Write([]byte(text)); err != nil {
		return fmt.Errorf("write to a live page: %w", err)
	}
	return s.control.Flush()
}
