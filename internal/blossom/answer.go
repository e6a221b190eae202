package blossom

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"strconv"
	"strings"

	"fleetmesh.org/fleetmesh/nostr"
	"fleetmesh.org/fleetmesh/spec"
)

// answer is an error that the client is told as it is.
type answer struct {
	status int
	reason string
	header http.Header
}

func (a *answer) Error() string { return a.reason }

func refuse(status int, reason string) error { return &answer{status: status, reason: reason} }

// err turns a policy's no into an answer.
func (r *Refusal) err() error {
	row := r.Code.Refusal()
	return &answer{row.HTTP, cmp.Or(r.Reason, row.Meaning), r.Payment}
}

// statuses of the errors that stores give. What is not here is this side's own failure.
var statuses = []struct {
	err    error
	status int
	reason string
}{
	{ErrNotFound, http.StatusNotFound, "there is no such blob here"},
	{ErrBlocked, http.StatusForbidden, "the blob was erased here and may not come back"},
	{ErrTooLarge, http.StatusRequestEntityTooLarge, "the blob is larger than allowed"},
	{ErrTruncated, http.StatusBadRequest, "the body ended before the length that was announced"},
	{ErrFull, http.StatusServiceUnavailable, "there is no room for the blob now"},
	{ErrReadOnly, http.StatusServiceUnavailable, "nothing can be stored now"},
	{ErrClosed, http.StatusServiceUnavailable, "the server is shutting down"},
	{ErrCorrupt, http.StatusNotFound, "the blob is damaged here: fetch it elsewhere or upload it again"},
}

// fail answers with an error, unless an answer has begun.
func (s *Server) fail(w http.ResponseWriter, r *http.Request, err error) {
	var a *answer
	if !errors.As(err, &a) {
		a = &answer{status: http.StatusInternalServerError, reason: "this server failed; the request may be fine"}
		for _, row := range statuses {
			if errors.Is(err, row.err) {
				a = &answer{status: row.status, reason: row.reason}
				break
			}
		}
		if a.status >= 500 && !errors.Is(err, context.Canceled) {
			s.cfg.Log.Error("a blob request failed", "method", r.Method, "err", err)
		}
	}
	h := w.Header()
	maps.Copy(h, a.header)
	switch a.status {
	case http.StatusUnauthorized:
		h.Set("WWW-Authenticate", "Nostr")
	case http.StatusServiceUnavailable, http.StatusTooManyRequests:
		h.Set("Retry-After", "30")
	}
	for _, k := range []string{"ETag", "Accept-Ranges", "X-Cid", "X-Ipfs-Path", "Content-Length", "Content-Disposition"} {
		h.Del(k)
	}
	h.Set("X-Reason", headerText(a.reason))
	h.Set("Cache-Control", "no-store")
	s.json(w, r, a.status, map[string]string{"message": a.reason})
}

// headerText makes any text fit for a header: printable ASCII, not too long. Parts of it may be the client's.
func headerText(s string) string {
	s = strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' {
			return '?'
		}
		return r
	}, s)
	return s[:min(len(s), 300)]
}

func (s *Server) json(w http.ResponseWriter, r *http.Request, status int, v any) {
	text, err := json.Marshal(v)
	if err != nil {
		panic("blossom: an answer always renders: " + err.Error())
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(text)))
	w.WriteHeader(status)
	if r.Method != http.MethodHead {
		_, _ = w.Write(text)
	}
}

// authorize reads and checks the request's token. Without a header it returns nil, and an error if need is set.
func (s *Server) authorize(r *http.Request, verb Verb, need bool) (*Token, error) {
	header := r.Header.Get("Authorization")
	if header == "" {
		if need {
			return nil, refuse(http.StatusUnauthorized, spec.CodeAuthRequired.Refusal().Meaning+" A token for the verb "+string(verb)+" is needed (BUD-11).")
		}
		return nil, nil
	}
	t, e, err := ParseToken(header)
	if err == nil {
		err = t.check(verb, s.hosts, s.cfg.Now())
	}
	if err != nil {
		return nil, refuse(http.StatusUnauthorized, err.Error())
	}
	if !s.cfg.Verifier.Verify([]*nostr.Event{e})[0] {
		return nil, refuse(http.StatusUnauthorized, "the authorization event's signature is wrong")
	}
	return t, nil
}

// authorizeBlob is authorize for a verb that acts on one blob, which the token must list.
func (s *Server) authorizeBlob(r *http.Request, verb Verb, h Hash) (*Token, error) {
	t, err := s.authorize(r, verb, true)
	if err == nil && !t.Covers(h) {
		err = errUncovered
	}
	return t, err
}

var errUncovered = refuse(http.StatusUnauthorized, "the authorization event does not list this blob in an x tag")

func (s *Server) admit(r *http.Request, req *Request) error {
	if s.cfg.Admit == nil {
		return nil
	}
	if no := s.cfg.Admit(r.Context(), req); no != nil {
		return no.err()
	}
	return nil
}

// enter takes one of the places for work; leave gives it back.
func (s *Server) enter() (leave func(), err error) {
	select {
	case s.busy <- struct{}{}:
		return func() { <-s.busy }, nil
	default:
		return nil, refuse(http.StatusServiceUnavailable, "too many uploads at once: try again")
	}
}

func (s *Server) meter(f Flow) {
	if s.cfg.Meter != nil && (f.In != 0 || f.Out != 0) {
		s.cfg.Meter(f)
	}
}

// Descriptor is a blob as answers describe it (BUD-02, BUD-08).
type Descriptor struct {
	URL      string      `json:"url"`
	SHA256   string      `json:"sha256"`
	Size     int64       `json:"size"`
	Type     string      `json:"type"`
	Uploaded int64       `json:"uploaded"` // unix seconds
	IPFS     string      `json:"ipfs"`     // the CID
	NIP94    []nostr.Tag `json:"nip94,omitempty"`
}

// describe writes a blob's descriptor. With tags it carries the tags of a kind 1063 event (BUD-08, NIP-94).
func (s *Server) describe(r *http.Request, m *Meta, tags bool) Descriptor {
	base := s.cfg.PublicURL
	if base == "" {
		base = "http://" + r.Host
		if r.TLS != nil {
			base = "https://" + r.Host
		}
	}
	d := Descriptor{
		URL: base + "/" + m.Hash.String() + extension(m.Type), SHA256: m.Hash.String(), Size: m.Size, Type: m.Type,
		Uploaded: m.Uploaded, IPFS: m.Hash.CID(),
	}
	if tags {
		d.NIP94 = []nostr.Tag{{"url", d.URL}, {"m", d.Type}, {"x", d.SHA256}, {"ox", d.SHA256}, {"size", strconv.FormatInt(d.Size, 10)}}
	}
	return d
}

// has asks whether an event names the blob, if that is asked of blobs here.
func (s *Server) has(ctx context.Context, h Hash, by nostr.PubKey) error {
	if s.cfg.HasEvent == nil {
		return nil
	}
	ok, err := s.cfg.HasEvent(ctx, h, by)
	if err != nil {
		return err
	}
	if !ok {
		return refuse(http.StatusForbidden, "no event here names this blob: publish the event that carries it first")
	}
	return nil
}
