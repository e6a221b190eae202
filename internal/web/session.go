package web

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"net/http"
	"slices"
	"sync"
	"time"
)

// sessionLife is how long a sign-in lasts, whatever is done with it.
const sessionLife = 12 * time.Hour

// maxSessions bounds the sessions; the oldest gives way.
const maxSessions = 32

// session is one sign-in. Only the digest of its cookie is kept.
type session struct {
	id   [32]byte
	made time.Time
	how  string // "code" or "nostr"
	csrf string
	over chan struct{} // closed when the session is
}

type sessions struct {
	mu   sync.Mutex
	list []*session // oldest first
}

// add begins a session and returns the value of its cookie, which was never seen before.
func (s *sessions) add(how string, now time.Time, csrf func(string) string) (string, *session) {
	value := rand.Text() + rand.Text()
	one := &session{id: sha256.Sum256([]byte(value)), made: now, how: how, csrf: csrf(value), over: make(chan struct{})}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.expire(now)
	for len(s.list) >= maxSessions {
		s.drop(0)
	}
	s.list = append(s.list, one)
	return value, one
}

func (s *sessions) get(value string, now time.Time) *session {
	id := sha256.Sum256([]byte(value))
	s.mu.Lock()
	defer s.mu.Unlock()
	s.expire(now)
	if i := slices.IndexFunc(s.list, func(o *session) bool { return o.id == id }); i >= 0 {
		return s.list[i]
	}
	return nil
}

// end ends one session, or all of them for nil, and returns how many there were.
func (s *sessions) end(one *session) (ended int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := len(s.list) - 1; i >= 0; i-- {
		if one == nil || s.list[i] == one {
			s.drop(i)
			ended++
		}
	}
	return ended
}

// expire drops what is too old; s.mu is held.
func (s *sessions) expire(now time.Time) {
	for len(s.list) > 0 && now.Sub(s.list[0].made) >= sessionLife {
		s.drop(0)
	}
}

func (s *sessions) drop(i int) {
	close(s.list[i].over)
	s.list = slices.Delete(s.list, i, i+1)
}

// cookieName is under which name the browser keeps the cookie: over TLS under one that no other host can set.
func (w *Web) cookieName(r *http.Request) string {
	if w.secure(r) {
		return "__Host-" + w.cookie
	}
	return w.cookie
}

func (w *Web) setCookie(rw http.ResponseWriter, r *http.Request, value string, life time.Duration) {
	http.SetCookie(rw, &http.Cookie{
		Name: w.cookieName(r), Value: value, Path: "/", MaxAge: int(life / time.Second),
		HttpOnly: true, Secure: w.secure(r), SameSite: http.SameSiteStrictMode,
	})
}

// visit returns the value of the cookie that a request came with, and its session where there is one.
func (w *Web) visit(r *http.Request) (string, *session) {
	c, err := r.Cookie(w.cookieName(r))
	if err != nil || len(c.Value) > 128 {
		return "", nil
	}
	return c.Value, w.sessions.get(c.Value, w.now())
}

// token is the CSRF token that goes with a cookie, of a session or of somebody who has not signed in yet.
func (w *Web) token(cookie string) string { return w.mac("csrf", cookie) }

// mac seals a text for one purpose.
func (w *Web) mac(purpose, text string) string {
	h := hmac.New(sha256.New, w.key[:])
	h.Write([]byte(purpose))
	h.Write([]byte{0})
	h.Write([]byte(text))
	return hex.EncodeToString(h.Sum(nil))
}

// signedIn lets only an operator in; anybody else is sent to sign in.
func (w *Web) signedIn(next func(http.ResponseWriter, *http.Request, *session)) http.HandlerFunc {
	return func(rw http.ResponseWriter, r *http.Request) {
		_, s := w.visit(r)
		switch {
		case s != nil:
			next(rw, r, s)
		case r.URL.Path == prefix+"live":
			http.Error(rw, "sign in first", http.StatusUnauthorized)
		default:
			http.Redirect(rw, r, prefix, http.StatusSeeOther)
		}
	}
}

// cross refuses what a page of another origin sends.
var cross = http.NewCrossOriginProtection()

// changes guards every request that changes something: it comes from this origin, is small and in time, and carries the token that goes with its cookie.
func (w *Web) changes(next func(http.ResponseWriter, *http.Request, *session)) http.HandlerFunc {
	return func(rw http.ResponseWriter, r *http.Request) {
		if err := cross.Check(r); err != nil {
			w.refuse(rw, r, http.StatusForbidden, "This request came from another site. Nothing was done.")
			return
		}
		_ = http.NewResponseController(rw).SetReadDeadline(time.Now().Add(20 * time.Second)) // where it cannot be set, the body is small still
		r.Body = http.MaxBytesReader(rw, r.Body, maxBody)
		sent := r.Header.Get("X-CSRF-Token")
		if sent == "" {
			if err := r.ParseForm(); err != nil {
				var big *http.MaxBytesError
				if errors.As(err, &big) {
					w.refuse(rw, r, http.StatusRequestEntityTooLarge, "The request is too large. Nothing was done.")
					return
				}
				w.refuse(rw, r, http.StatusBadRequest, "The form could not be read. Nothing was done.")
				return
			}
			sent = r.PostForm.Get("csrf")
		}
		cookie, s := w.visit(r)
		if cookie == "" || subtle.ConstantTimeCompare([]byte(sent), []byte(w.token(cookie))) != 1 {
			w.refuse(rw, r, http.StatusForbidden, "This form is out of date. Load the page again, then repeat what you did. Nothing was done.")
			return
		}
		next(rw, r, s)
	}
}
