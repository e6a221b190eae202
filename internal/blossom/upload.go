package blossom

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net/http"
	"strconv"
	"time"
)

// offer is an upload as its headers announce it.
type offer struct {
	verb  Verb
	hash  Hash
	named bool  // hash was given in X-SHA-256
	size  int64 // -1: not told
	kind  string
	token *Token
}

// upload serves PUT /upload (BUD-02) and HEAD /upload (BUD-06).
func (s *Server) upload(w http.ResponseWriter, r *http.Request, _ string) error {
	o, err := s.readOffer(r, VerbUpload)
	if err != nil {
		return err
	}
	if r.Method == http.MethodHead {
		return s.weigh(w, r, o, s.cfg.MaxBlob, true)
	}
	if err := s.weighed(r, o, s.cfg.MaxBlob, true); err != nil {
		return err
	}
	leave, err := s.enter()
	if err != nil {
		return err
	}
	defer leave()
	body := newBody(w, r)
	defer func() { s.meter(Flow{PubKey: o.token.PubKey, In: body.n}) }()
	m, created, err := s.receive(r.Context(), body, o)
	if err != nil {
		return err
	}
	s.created(w, r, &m, created)
	return nil
}

func (s *Server) created(w http.ResponseWriter, r *http.Request, m *Meta, created bool) {
	status := http.StatusOK
	if created {
		status = http.StatusCreated
	}
	w.Header().Set("Cache-Control", "no-store")
	s.json(w, r, status, s.describe(r, m, true))
}

// readOffer reads the headers of an upload, and refuses by them what the token does not cover. So no byte of a body is read for
// a token that is for another blob.
func (s *Server) readOffer(r *http.Request, verb Verb) (*offer, error) {
	o := &offer{verb: verb, size: r.ContentLength, kind: r.Header.Get("Content-Type")}
	var err error
	if o.token, err = s.authorize(r, verb, true); err != nil {
		return nil, err
	}
	if x := r.Header.Get("X-SHA-256"); x != "" {
		if o.hash, err = ParseHash(x); err != nil {
			return nil, refuse(http.StatusBadRequest, "X-SHA-256: "+err.Error())
		}
		o.named = true
	}
	if r.Method == http.MethodHead {
		if err := o.announce(r.Header); err != nil {
			return nil, err
		}
	}
	if len(o.token.Hashes) == 0 || (o.named && !o.token.Covers(o.hash)) {
		return nil, errUncovered
	}
	return o, nil
}

// announce reads the headers that stand for a body in HEAD /upload and HEAD /media.
func (o *offer) announce(h http.Header) error {
	if !o.named {
		return refuse(http.StatusBadRequest, "X-SHA-256 is missing")
	}
	text := h.Get("X-Content-Length")
	if text == "" {
		return refuse(http.StatusLengthRequired, "X-Content-Length is missing")
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 0 {
		return refuse(http.StatusBadRequest, "X-Content-Length is no number of bytes")
	}
	o.size, o.kind = n, h.Get("X-Content-Type")
	return nil
}

// weighed asks, by what the headers say, whether an upload would be taken. With event, an event must name the blob.
func (s *Server) weighed(r *http.Request, o *offer, limit int64, event bool) error {
	if o.size > limit {
		return ErrTooLarge
	}
	if err := s.admit(r, &Request{Verb: o.verb, PubKey: o.token.PubKey, Hash: o.hash, Size: o.size, Type: mediaType(o.kind)}); err != nil {
		return err
	}
	if !o.named {
		return nil
	}
	if _, err := s.cfg.Store.Stat(r.Context(), o.hash); errors.Is(err, ErrBlocked) {
		return err
	}
	if !event {
		return nil
	}
	return s.has(r.Context(), o.hash, o.token.PubKey)
}

func (s *Server) weigh(w http.ResponseWriter, r *http.Request, o *offer, limit int64, event bool) error {
	if err := s.weighed(r, o, limit, event); err != nil {
		return err
	}
	w.WriteHeader(http.StatusOK)
	return nil
}

// receive stores a body. A blob that is held already is only hashed and not written again.
func (s *Server) receive(ctx context.Context, body *body, o *offer) (m Meta, created bool, err error) {
	in := Incoming{Size: o.size, Limit: s.cfg.MaxBlob, Owner: o.token.PubKey, Now: s.cfg.Now()}
	head, err := body.peek()
	if err != nil {
		return m, false, err
	}
	in.Type = typeOf(o.kind, head)
	in.Check = func(h Hash, _ int64) error { return s.checkUpload(ctx, h, o) }
	if o.named {
		if _, err := s.cfg.Store.Stat(ctx, o.hash); err == nil {
			return s.again(ctx, body, o, &in)
		}
	}
	return s.cfg.Store.Put(ctx, body, in)
}

// checkUpload judges an upload by its true hash.
func (s *Server) checkUpload(ctx context.Context, h Hash, o *offer) error {
	switch {
	case o.named && h != o.hash:
		return refuse(http.StatusConflict, "the body has another hash than X-SHA-256")
	case o.named:
		return nil // weighed before
	case !o.token.Covers(h):
		return refuse(http.StatusUnauthorized, "the authorization event does not list the hash that the body has")
	}
	return s.has(ctx, h, o.token.PubKey)
}

func (s *Server) again(ctx context.Context, body *body, o *offer, in *Incoming) (m Meta, created bool, err error) {
	h, n, err := pour(ctx, io.Discard, body, in, func(int64) error { return nil })
	if err == nil {
		err = in.Check(h, n)
	}
	if err == nil {
		m, err = s.cfg.Store.Own(ctx, h, o.token.PubKey, in.Now)
	}
	return m, false, err
}

// minRate is how many octets a second a client must send on average, or its place goes to another.
const minRate = 4 << 10

// allowance is how long after its start a body of which n octets have come may take for the next ones.
func allowance(n int64) time.Duration { return patience + time.Duration(n/minRate)*time.Second }

// body is a request's body that counts, and that gives up on a client which sends nothing for a while, or next to nothing all the while.
type body struct {
	start   time.Time
	r       *bufio.Reader
	n       int64
	src     io.Reader
	control *http.ResponseController
}

func newBody(w http.ResponseWriter, r *http.Request) *body {
	b := &body{start: time.Now(), src: r.Body, control: http.NewResponseController(w)}
	b.r = bufio.NewReaderSize(readerFunc(b.fill), 4<<10)
	return b
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

func (b *body) fill(p []byte) (int, error) {
	_ = b.control.SetReadDeadline(b.start.Add(allowance(b.n)))
	n, err := b.src.Read(p)
	b.n += int64(n)
	if err == io.EOF { // after any other error the deadline stays: the server reads what is left before it answers, and would wait for it
		_ = b.control.SetReadDeadline(time.Time{})
	}
	return n, err
}

// peek is the body's first bytes, which stay in it.
func (b *body) peek() ([]byte, error) {
	head, err := b.r.Peek(512)
	if err != nil && err != io.EOF {
		if errors.Is(err, io.ErrUnexpectedEOF) {
			return nil, ErrTruncated
		}
		return nil, refuse(http.StatusBadRequest, "the body could not be read")
	}
	return head, nil
}

func (b *body) Read(p []byte) (int, error) {
	n, err := b.r.Read(p)
	if err != nil && err != io.EOF && !errors.Is(err, io.ErrUnexpectedEOF) {
		err = &answer{status: http.StatusBadRequest, reason: "the body could not be read"}
	}
	return n, err
}
