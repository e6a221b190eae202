package blossom

import (
	"bytes"
	"context"
	"errors"
	"net/http"

	"fleetmesh.org/fleetmesh/nostr"
)

// Converter makes media fit for being shown to others (BUD-05). It gets the whole of what was uploaded and its media type,
// and returns the same for the result. ErrUnsupported says that it has nothing to do with that type.
type Converter interface {
	Convert(ctx context.Context, in []byte, kind string) (out []byte, outKind string, err error)
}

// Errors of Converters.
var (
	ErrUnsupported = errors.New("media of this type is not converted here")
	ErrMalformed   = errors.New("the media cannot be read")
)

// media serves PUT /media and HEAD /media (BUD-05). What is stored is the result; the original is not kept.
func (s *Server) media(w http.ResponseWriter, r *http.Request, _ string) error {
	if s.cfg.Media == nil {
		return refuse(http.StatusNotImplemented, "this server converts no media")
	}
	o, err := s.readOffer(r, VerbMedia)
	if err != nil {
		return err
	}
	if r.Method == http.MethodHead {
		return s.weigh(w, r, o, s.cfg.MaxMedia, false)
	}
	if err := s.weighed(r, o, s.cfg.MaxMedia, false); err != nil {
		return err
	}
	leave, err := s.enter()
	if err != nil {
		return err
	}
	defer leave()
	body := newBody(w, r)
	defer func() { s.meter(Flow{PubKey: o.token.PubKey, In: body.n}) }()
	m, created, err := s.convert(r.Context(), body, o)
	if err != nil {
		return err
	}
	s.created(w, r, &m, created)
	return nil
}

func (s *Server) convert(ctx context.Context, body *body, o *offer) (m Meta, created bool, err error) {
	var in bytes.Buffer
	h, _, err := pour(ctx, &in, body, &Incoming{Size: o.size, Limit: s.cfg.MaxMedia}, func(int64) error { return nil })
	if err != nil {
		return m, false, err
	}
	if o.named && h != o.hash {
		return m, false, refuse(http.StatusConflict, "the body has another hash than X-SHA-256")
	}
	if !o.token.Covers(h) {
		return m, false, refuse(http.StatusUnauthorized, "the authorization event does not list the hash that the body has")
	}
	out, kind, err := s.cfg.Media.Convert(ctx, in.Bytes(), typeOf(o.kind, in.Bytes()))
	switch {
	case errors.Is(err, ErrUnsupported):
		return m, false, refuse(http.StatusUnsupportedMediaType, err.Error())
	case errors.Is(err, ErrMalformed):
		return m, false, refuse(http.StatusUnprocessableEntity, err.Error())
	case err != nil:
		return m, false, err
	}
	check := func(got Hash, _ int64) error { return s.hasEither(ctx, h, got, o.token.PubKey) }
	return s.cfg.Store.Put(ctx, bytes.NewReader(out), Incoming{
		Size: int64(len(out)), Limit: s.cfg.MaxBlob, Type: kind, Owner: o.token.PubKey, Now: s.cfg.Now(), Check: check,
	})
}

// hasEither asks for an event that names the result or, because nobody can know that hash before, the original.
func (s *Server) hasEither(ctx context.Context, original, result Hash, by nostr.PubKey) error {
	err := s.has(ctx, original, by)
	if err != nil && original != result {
		err = s.has(ctx, result, by)
	}
	return err
}
