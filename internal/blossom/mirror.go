package blossom

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"fleetmesh.org/fleetmesh/nostr"
)

const maxMirrorBody = 16 << 10

// mirror serves PUT /mirror (BUD-04): the server fetches the blob itself and keeps it only if its hash is one that the token lists.
func (s *Server) mirror(w http.ResponseWriter, r *http.Request, _ string) error {
	if s.cfg.Fetch == nil {
		return refuse(http.StatusNotImplemented, "this server does not mirror")
	}
	t, err := s.authorize(r, VerbUpload, true)
	if err != nil {
		return err
	}
	if len(t.Hashes) == 0 {
		return errUncovered
	}
	u, err := s.readMirror(w, r)
	if err != nil {
		return err
	}
	want, named := HashInURL(u.String())
	if named && !t.Covers(want) {
		return refuse(http.StatusConflict, "the blob that the URL names is in no x tag of the authorization event")
	}
	if !named && len(t.Hashes) == 1 {
		want, named = t.Hashes[0], true
	}
	req := &Request{Verb: VerbUpload, PubKey: t.PubKey, Size: -1}
	if named {
		req.Hash = want
	}
	if err := s.admit(r, req); err != nil {
		return err
	}
	leave, err := s.enter()
	if err != nil {
		return err
	}
	defer leave()
	from := source{url: u, allowed: t.Hashes, owner: t.PubKey}
	if named {
		if err := s.has(r.Context(), want, t.PubKey); err != nil {
			return err
		}
		m, err := s.cfg.Store.Own(r.Context(), want, t.PubKey, s.cfg.Now())
		if err == nil {
			s.created(w, r, &m, false)
			return nil
		}
		if !errors.Is(err, ErrNotFound) && !errors.Is(err, ErrCorrupt) {
			return err
		}
	}
	m, created, err := s.pull(r.Context(), from)
	if err != nil {
		return err
	}
	s.created(w, r, &m, created)
	return nil
}

func (s *Server) readMirror(w http.ResponseWriter, r *http.Request) (*url.URL, error) {
	text, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxMirrorBody))
	if err != nil {
		return nil, refuse(http.StatusBadRequest, "the body could not be read, or is longer than 16 KiB")
	}
	var body struct {
		URL string `json:"url"`
	}
	if json.Unmarshal(text, &body) != nil || body.URL == "" {
		return nil, refuse(http.StatusBadRequest, `the body must be JSON such as {"url":"https://…"}`)
	}
	u, err := s.cfg.Fetch.ParseURL(body.URL)
	switch {
	case errors.Is(err, errPrivate):
		return nil, refuse(http.StatusForbidden, err.Error())
	case err != nil:
		return nil, refuse(http.StatusBadRequest, err.Error())
	}
	return u, nil
}

// source is where a blob is pulled from, and what it may be.
type source struct {
	url      *url.URL
	allowed  []Hash
	owner    nostr.PubKey
	token    string        // Authorization header, "" for none
	answered func(ok bool) // told when the origin has answered, with the blob or with a refusal; may be nil
}

// pull fetches a blob and keeps it if its hash is allowed.
func (s *Server) pull(ctx context.Context, from source) (m Meta, created bool, err error) {
	got, err := s.cfg.Fetch.get(ctx, from.url, from.token, from.answered)
	if err != nil {
		return m, false, err
	}
	defer got.body.Close()
	if got.size > s.cfg.MaxBlob {
		return m, false, ErrTooLarge
	}
	count := &counted{r: got.body}
	defer func() { s.meter(Flow{PubKey: from.owner, In: count.n}) }()
	head := make([]byte, 512)
	n, err := io.ReadFull(count, head)
	if err != nil && err != io.EOF && err != io.ErrUnexpectedEOF {
		return m, false, err
	}
	head = head[:n]
	in := Incoming{Size: got.size, Limit: s.cfg.MaxBlob, Type: typeOf(got.kind, head), Owner: from.owner, Now: s.cfg.Now()}
	in.Check = func(h Hash, _ int64) error {
		if !slices.Contains(from.allowed, h) {
			return refuse(http.StatusConflict, "what the origin sent has a hash that the authorization event does not list")
		}
		return s.has(ctx, h, from.owner)
	}
	m, created, err = s.cfg.Store.Put(ctx, io.MultiReader(bytes.NewReader(head), count), in)
	if errors.Is(err, ErrTruncated) {
		err = refuse(http.StatusBadGateway, "the origin broke off")
	}
	return m, created, err
}

// Mirror copies a blob from another server, as the node itself: no token is asked, the hash is checked all the same. owner may be the
// zero key: then nobody but the operator can remove the blob.
func (s *Server) Mirror(ctx context.Context, from string, h Hash, owner nostr.PubKey) (Meta, error) {
	if s.cfg.Fetch == nil {
		return Meta{}, errors.New("mirror a blob: there is no fetcher")
	}
	u, err := s.cfg.Fetch.ParseURL(from)
	if err != nil {
		return Meta{}, err
	}
	m, _, err := s.pull(ctx, source{url: u, allowed: []Hash{h}, owner: owner})
	return m, err
}

// FetchFrom copies a blob from another server with a token of the node's own (BUD-11), as Mirror does without. answered is told that the
// server answered, with the blob or with a refusal; where the request got lost it is not called.
func (s *Server) FetchFrom(ctx context.Context, server string, h Hash, token *nostr.Event, answered func(ok bool)) (Meta, error) {
	if s.cfg.Fetch == nil {
		return Meta{}, errors.New("fetch a blob: mirroring is off")
	}
	u, err := s.cfg.Fetch.ParseURL(strings.TrimRight(server, "/") + "/" + h.String())
	if err != nil {
		return Meta{}, err
	}
	header := "Nostr " + base64.RawURLEncoding.EncodeToString(token.JSON())
	m, _, err := s.pull(ctx, source{url: u, allowed: []Hash{h}, token: header, answered: answered})
	return m, err
}

type counted struct {
	r io.Reader
	n int64
}

func (c *counted) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.n += int64(n)
	return n, err
}
