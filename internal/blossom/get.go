package blossom

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"fleetmesh.org/fleetmesh/nostr"
)

const (
	rawBlock = "application/vnd.ipld.raw" // a block as trustless IPFS gateways give it
	// patience is how long a client may take for the next piece of a blob, in either direction.
	patience = 60 * time.Second
	// piece is how much is sent between two looks at the clock.
	piece = 1 << 20
)

// getCID serves a blob by its CID, as a path gateway of IPFS does; with ?format=raw, or if only that is accepted, as a raw block.
func (s *Server) getCID(w http.ResponseWriter, r *http.Request, name string) error {
	h, err := ParseCID(name)
	if err != nil {
		return refuse(http.StatusBadRequest, err.Error())
	}
	raw := r.URL.Query().Get("format") == "raw" || strings.HasPrefix(r.Header.Get("Accept"), rawBlock)
	w.Header().Set("Vary", "Accept")
	return s.get(w, r, h, raw)
}

// get serves GET and HEAD of a blob (BUD-01). A token is optional, unless reading is private; a bad one is refused.
func (s *Server) get(w http.ResponseWriter, r *http.Request, h Hash, raw bool) error {
	t, err := s.authorize(r, VerbGet, s.cfg.PrivateGet)
	if err != nil {
		return err
	}
	var by nostr.PubKey
	if t != nil {
		if by = t.PubKey; len(t.Hashes) > 0 && !t.Covers(h) {
			return errUncovered
		}
	}
	m, err := s.cfg.Store.Stat(r.Context(), h)
	if err != nil {
		return err
	}
	etag := `"` + h.String() + `"`
	sp, whole, rangeErr := asked(r, &m, etag)
	same := matches(r.Header.Get("If-None-Match"), etag)
	req := &Request{Verb: VerbGet, PubKey: by, Hash: h, Size: m.Size, Type: m.Type}
	if t != nil {
		req.Created = t.Created
	}
	if r.Method == http.MethodGet && rangeErr == nil && !same {
		req.Moves = sp.length
	}
	if err := s.admit(r, req); err != nil {
		return err
	}
	s.describeHeaders(w.Header(), &m, etag, raw)
	if same {
		w.WriteHeader(http.StatusNotModified)
		return nil
	}
	if rangeErr != nil {
		w.Header().Set("Content-Range", "bytes */"+strconv.FormatInt(m.Size, 10))
		return refuse(http.StatusRequestedRangeNotSatisfiable, rangeErr.Error())
	}
	w.Header().Set("Content-Length", strconv.FormatInt(sp.length, 10))
	switch {
	case r.Method == http.MethodHead:
		w.WriteHeader(http.StatusOK)
		return nil
	case whole:
		return s.sendWhole(w, r, &m, by)
	}
	return s.sendPart(w, r, &m, sp, by)
}

// asked says which part of a blob a request is about.
func asked(r *http.Request, m *Meta, etag string) (sp span, whole bool, err error) {
	if cond := r.Header.Get("If-Range"); r.Method == http.MethodGet && (cond == "" || cond == etag) {
		part, all, err := parseRange(r.Header.Get("Range"), m.Size)
		if err != nil || !all {
			return part, false, err
		}
	}
	return span{0, m.Size}, true, nil
}

// describeHeaders tells everything about a blob but its length.
func (s *Server) describeHeaders(h http.Header, m *Meta, etag string, raw bool) {
	kind := m.Type
	if raw {
		kind = rawBlock
		h.Set("Content-Disposition", `attachment; filename="`+m.Hash.CID()+`.bin"`)
	}
	h.Set("Content-Type", kind)
	h.Set("ETag", etag)
	h.Set("Accept-Ranges", "bytes")
	if s.cfg.PrivateGet {
		h.Set("Cache-Control", "private, max-age=31536000, immutable")
	} else {
		h.Set("Cache-Control", "public, max-age=31536000, immutable")
	}
	h.Set("X-Cid", m.Hash.CID())
	h.Set("X-Ipfs-Path", "/ipfs/"+m.Hash.CID())
	h.Set("X-Sha-256", m.Hash.String())
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cross-Origin-Resource-Policy", "cross-origin")
	if active(kind) {
		h.Set("Content-Security-Policy", "sandbox; default-src 'none'; img-src data:; media-src data:; style-src 'unsafe-inline'")
	}
}

// matches reads an If-None-Match header. Weak and strong are the same for it.
func matches(header, etag string) bool {
	for part := range strings.SplitSeq(header, ",") {
		part = strings.TrimSpace(part)
		if part == "*" || strings.TrimPrefix(part, "W/") == etag {
			return true
		}
	}
	return false
}

// sendWhole sends a blob and hashes it on the way. The last piece goes out only if the hash fits, so a client never
// holds a whole blob that is not what it asked for.
func (s *Server) sendWhole(w http.ResponseWriter, r *http.Request, m *Meta, by nostr.PubKey) error {
	f, _, err := s.cfg.Store.Open(r.Context(), m.Hash)
	if err != nil {
		return err
	}
	defer f.Close()
	sum := sha256.New()
	buf := make([]byte, min(m.Size, pourSize))
	control := http.NewResponseController(w)
	defer control.SetWriteDeadline(time.Time{}) //nolint:errcheck // not every writer has deadlines
	sent := int64(0)
	defer func() { s.meter(Flow{PubKey: by, Out: sent}) }()
	for left := m.Size; ; {
		n, err := io.ReadFull(f, buf[:min(left, int64(len(buf)))])
		left -= int64(n)
		sum.Write(buf[:n])
		if err == nil && left == 0 && digest(sum) != m.Hash {
			err = ErrCorrupt
		}
		if err != nil {
			return s.spoilt(r, m.Hash, sent > 0, err)
		}
		_ = control.SetWriteDeadline(time.Now().Add(patience))
		k, err := w.Write(buf[:n])
		sent += int64(k)
		if err != nil || left == 0 {
			return nil // whoever went away is told nothing
		}
	}
}

// spoilt ends an answer that cannot be finished. If it has begun, the connection is cut, so that nobody takes what
// came for the whole.
func (s *Server) spoilt(r *http.Request, h Hash, begun bool, err error) error {
	if errors.Is(err, ErrCorrupt) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF) {
		if serr := s.cfg.Store.Suspect(r.Context(), h); serr != nil {
			err = serr
		}
	}
	if begun {
		s.cfg.Log.Error("a blob could not be sent to its end", "err", err)
		panic(http.ErrAbortHandler)
	}
	return fmt.Errorf("read the blob: %w", err)
}

// sendPart sends a range of a blob that has been verified.
func (s *Server) sendPart(w http.ResponseWriter, r *http.Request, m *Meta, sp span, by nostr.PubKey) error {
	if err := s.cfg.Store.Verify(r.Context(), m.Hash); err != nil {
		return err
	}
	f, _, err := s.cfg.Store.Open(r.Context(), m.Hash)
	if err != nil {
		return err
	}
	defer f.Close()
	if _, err := f.Seek(sp.start, io.SeekStart); err != nil {
		return fmt.Errorf("read the blob: %w", err)
	}
	w.Header().Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", sp.start, sp.start+sp.length-1, m.Size))
	w.WriteHeader(http.StatusPartialContent)
	control := http.NewResponseController(w)
	defer control.SetWriteDeadline(time.Time{}) //nolint:errcheck // not every writer has deadlines
	sent := int64(0)
	defer func() { s.meter(Flow{PubKey: by, Out: sent}) }()
	for sent < sp.length {
		_ = control.SetWriteDeadline(time.Now().Add(patience))
		n, err := io.CopyN(w, f, min(piece, sp.length-sent))
		sent += n
		if err != nil {
			panic(http.ErrAbortHandler)
		}
	}
	return nil
}
