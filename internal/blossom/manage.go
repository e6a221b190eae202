package blossom

import (
	"errors"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"

	"fleetmesh.org/fleetmesh/nostr"
)

// delete serves DELETE (BUD-12). The blob goes with its last owner; a token that lists several blobs deletes the one in the URL.
func (s *Server) delete(w http.ResponseWriter, r *http.Request, h Hash) error {
	t, err := s.authorizeBlob(r, VerbDelete, h)
	if err != nil {
		return err
	}
	m, err := s.cfg.Store.Stat(r.Context(), h)
	if err != nil && !errors.Is(err, ErrCorrupt) {
		if errors.Is(err, ErrBlocked) {
			err = ErrNotFound
		}
		return err
	}
	if err := s.admit(r, &Request{Verb: VerbDelete, PubKey: t.PubKey, Hash: h, Size: m.Size, Type: m.Type}); err != nil {
		return err
	}
	if at, ok := m.OwnedBy(t.PubKey); ok && at > t.Created+clockSkew {
		return refuse(http.StatusUnauthorized, "the authorization event is older than the upload: it was for an earlier one")
	}
	removed, err := s.cfg.Store.Disown(r.Context(), h, t.PubKey)
	if errors.Is(err, ErrNotFound) {
		return refuse(http.StatusForbidden, "the blob was not uploaded by this key")
	}
	if err != nil {
		return err
	}
	s.json(w, r, http.StatusOK, map[string]any{"sha256": h.String(), "removed": removed})
	return nil
}

const (
	listDefault = 100
	listMost    = 1000
)

// list serves GET /list/<pubkey> (BUD-12): newest first, from after the cursor on.
func (s *Server) list(w http.ResponseWriter, r *http.Request, name string) error {
	if s.cfg.List == ListOff {
		return refuse(http.StatusForbidden, "this server does not list blobs")
	}
	k, err := nostr.ParsePubKey(name)
	if err != nil || len(name) != 64 {
		return refuse(http.StatusBadRequest, "a public key is 64 lower-case hex digits")
	}
	t, err := s.authorize(r, VerbList, s.cfg.List == ListOwner)
	if err != nil {
		return err
	}
	var by nostr.PubKey
	if t != nil {
		by = t.PubKey
	}
	if s.cfg.List == ListOwner && by != k {
		return refuse(http.StatusForbidden, "only the key itself may list its blobs")
	}
	q, err := parseListQuery(r.URL.Query())
	if err != nil {
		return refuse(http.StatusBadRequest, err.Error())
	}
	if err := s.admit(r, &Request{Verb: VerbList, PubKey: by, Size: -1}); err != nil {
		return err
	}
	all, err := s.cfg.Store.List(r.Context(), k)
	if err != nil {
		return err
	}
	page, err := q.page(all, k)
	if err != nil {
		return err
	}
	out := make([]Descriptor, 0, len(page))
	for i := range page {
		page[i].Uploaded, _ = page[i].OwnedBy(k)
		out = append(out, s.describe(r, &page[i], false))
	}
	w.Header().Set("Cache-Control", "no-store")
	s.json(w, r, http.StatusOK, out)
	return nil
}

type listQuery struct {
	since, until int64 // unix seconds, both inclusive
	limit        int
	cursor       *Hash
}

func parseListQuery(v url.Values) (q listQuery, err error) {
	q = listQuery{until: 1<<63 - 1, limit: listDefault}
	number := func(name string, to *int64) {
		if text := v.Get(name); text != "" && err == nil {
			n, ok := offset(text)
			if !ok {
				err = errors.New(name + " is no whole number")
				return
			}
			*to = n
		}
	}
	number("since", &q.since)
	number("until", &q.until)
	limit := int64(listDefault)
	number("limit", &limit)
	q.limit = int(min(limit, listMost))
	if text := v.Get("cursor"); text != "" && err == nil {
		h, herr := ParseHash(text)
		if herr != nil {
			return q, errors.New("cursor: " + herr.Error())
		}
		q.cursor = &h
	}
	return q, err
}

func (q *listQuery) page(all []Meta, k nostr.PubKey) ([]Meta, error) {
	if q.cursor != nil {
		i := slices.IndexFunc(all, func(m Meta) bool { return m.Hash == *q.cursor })
		if i < 0 {
			return nil, refuse(http.StatusBadRequest, "the cursor is none of this key's blobs: begin again without it")
		}
		all = all[i+1:]
	}
	page := make([]Meta, 0, min(len(all), q.limit))
	for _, m := range all {
		if len(page) == q.limit {
			break
		}
		if at, _ := m.OwnedBy(k); at >= q.since && at <= q.until {
			page = append(page, m)
		}
	}
	return page, nil
}

const maxReport = 64 << 10

// report serves PUT /report (BUD-09): a signed kind 1984 event about blobs that are held here.
func (s *Server) report(w http.ResponseWriter, r *http.Request, _ string) error {
	if s.cfg.Report == nil {
		return refuse(http.StatusNotImplemented, "this server takes no reports")
	}
	text, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxReport))
	if err != nil {
		var big *http.MaxBytesError
		if errors.As(err, &big) {
			return refuse(http.StatusRequestEntityTooLarge, "a report has up to 64 KiB")
		}
		return refuse(http.StatusBadRequest, "the body could not be read")
	}
	e, err := nostr.ParseEvent(text)
	if err != nil {
		return refuse(http.StatusBadRequest, "the report cannot be read: "+err.Error())
	}
	if e.Kind != kindReport {
		return refuse(http.StatusBadRequest, "a report is an event of kind 1984 (NIP-56)")
	}
	if !s.cfg.Verifier.Verify([]*nostr.Event{e})[0] {
		return refuse(http.StatusBadRequest, "the report's signature is wrong")
	}
	var about []Hash
	named := false
	for x := range e.TagValues("x") {
		h, err := ParseHash(x)
		if err != nil {
			return refuse(http.StatusBadRequest, "an x tag of the report names no blob: "+err.Error())
		}
		named = true
		if _, err := s.cfg.Store.Stat(r.Context(), h); err == nil && !slices.Contains(about, h) {
			about = append(about, h)
		}
	}
	if !named {
		return refuse(http.StatusBadRequest, "the report names no blob in an x tag (BUD-09)")
	}
	if len(about) == 0 {
		return ErrNotFound
	}
	if err := s.cfg.Report(r.Context(), e, about); err != nil {
		return err
	}
	s.json(w, r, http.StatusOK, map[string]string{"message": "the report is with the operator, about " + strconv.Itoa(len(about)) + " of the blobs held here"})
	return nil
}
