package web

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"fleetmesh.org/fleetmesh/nostr"
)

// kindHTTPAuth is the kind of an event that authorises one HTTP request (NIP-98).
const kindHTTPAuth = nostr.Kind(27235)

// challengeLife is how long an operator may take to sign, and how far the event's clock may be off.
const challengeLife = 2 * time.Minute

// challenge makes a nonce for one sign-in of the browser that holds a cookie. It needs no memory: it proves itself.
func (w *Web) challenge(cookie string, now time.Time) string {
	text := strconv.FormatInt(now.Add(challengeLife).Unix(), 10) + "." + rand.Text()
	return text + "." + w.mac("challenge", text+"."+cookie)
}

// spent remembers challenges that were used, for as long as they would be good. Only an operator adds to it.
type spent struct {
	mu   sync.Mutex
	used map[string]int64 // until when
}

// take uses a challenge up, and says whether it was good.
func (w *Web) take(challenge, cookie string, now time.Time) bool {
	i := strings.LastIndexByte(challenge, '.')
	if i < 0 {
		return false
	}
	text := challenge[:i]
	stamp, _, _ := strings.Cut(text, ".")
	until, err := strconv.ParseInt(stamp, 10, 64)
	if err != nil || now.Unix() > until || !hmac.Equal([]byte(w.mac("challenge", text+"."+cookie)), []byte(challenge[i+1:])) {
		return false
	}
	w.spent.mu.Lock()
	defer w.spent.mu.Unlock()
	if w.spent.used == nil {
		w.spent.used = map[string]int64{}
	}
	for c, u := range w.spent.used {
		if now.Unix() > u {
			delete(w.spent.used, c)
		}
	}
	if _, used := w.spent.used[challenge]; used {
		return false
	}
	w.spent.used[challenge] = until
	return true
}

// serveHome is the overview, or the way in to it.
func (w *Web) serveHome(rw http.ResponseWriter, r *http.Request) {
	if _, s := w.visit(r); s != nil {
		w.serveView(rw, r, s, views[""])
		return
	}
	w.serveSignIn(rw, r, http.StatusOK, "")
}

// serveSignIn is the page that asks who is there.
func (w *Web) serveSignIn(rw http.ResponseWriter, r *http.Request, status int, complaint string) {
	cookie, s := w.visit(r)
	if cookie == "" || s != nil {
		cookie = rand.Text() + rand.Text()
		w.setCookie(rw, r, cookie, time.Hour)
	}
	ctx, cancel := context.WithTimeout(r.Context(), patience)
	defer cancel()
	w.render(rw, status, "signin", map[string]any{
		"Title": "Sign in", "CSRF": w.token(cookie), "Challenge": w.challenge(cookie, w.now()),
		"Complaint": complaint, "Nostr": w.operator(ctx) != "", "Name": w.name(ctx),
	})
}

// operator is the key that may sign in, "" for none.
func (w *Web) operator(ctx context.Context) string {
	var id struct{ Operator string }
	if err := w.cfg.Node.Call(ctx, "node.id", nil, &id, nil); err != nil {
		return ""
	}
	return id.Operator
}

// tooMany answers a try beyond the allowance, and says whether it did.
func (w *Web) tooMany(rw http.ResponseWriter, r *http.Request) bool {
	wait := w.tries.allow(w.cfg.ClientAddr(r), w.now())
	if wait <= 0 {
		return false
	}
	seconds := int(math.Ceil(wait.Seconds()))
	rw.Header().Set("Retry-After", strconv.Itoa(seconds))
	w.refuse(rw, r, http.StatusTooManyRequests, fmt.Sprintf("Too many tries. Wait %d seconds and try again.", seconds))
	return true
}

func (w *Web) signInByCode(rw http.ResponseWriter, r *http.Request, _ *session) {
	if w.tooMany(rw, r) {
		return
	}
	if !w.codes.redeem(r.PostForm.Get("code"), w.now()) {
		w.cfg.Log.Warn("a sign-in to the operator's page failed", "by", "code")
		w.serveSignIn(rw, r, http.StatusForbidden, "That code is wrong, used or too old. Make a new one with: meshnode ui code")
		return
	}
	w.begin(rw, r, "code")
	http.Redirect(rw, r, prefix, http.StatusSeeOther)
}

// begin opens a session under a cookie of its own; what the browser held before is worth nothing any more.
func (w *Web) begin(rw http.ResponseWriter, r *http.Request, how string) {
	if _, old := w.visit(r); old != nil {
		w.sessions.end(old)
	}
	value, _ := w.sessions.add(how, w.now(), w.token)
	w.setCookie(rw, r, value, sessionLife)
	w.cfg.Log.Info("somebody signed in to the operator's page", "by", how)
}

func (w *Web) signInByEvent(rw http.ResponseWriter, r *http.Request, _ *session) {
	if w.tooMany(rw, r) {
		return
	}
	text, err := io.ReadAll(r.Body)
	var big *http.MaxBytesError
	if errors.As(err, &big) {
		w.refuse(rw, r, http.StatusRequestEntityTooLarge, "The event is too large.")
		return
	}
	if err == nil {
		err = w.checkSignIn(r, text)
	}
	if err != nil {
		w.cfg.Log.Warn("a sign-in to the operator's page failed", "by", "nostr", "err", err)
		w.refuse(rw, r, http.StatusForbidden, "Not signed in: "+err.Error())
		return
	}
	w.begin(rw, r, "nostr")
	rw.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(rw).Encode(map[string]string{"to": prefix})
}

// checkSignIn holds an event against what a sign-in must be: the operator's own, for this address, this method, this browser, now and once.
func (w *Web) checkSignIn(r *http.Request, text []byte) error {
	ctx, cancel := context.WithTimeout(r.Context(), patience)
	defer cancel()
	want, err := nostr.ParsePubKey(w.operator(ctx))
	if err != nil {
		return errors.New("spec.operator.pubkey names nobody who could: sign in by code")
	}
	e, err := nostr.ParseEvent(text)
	if err != nil {
		return errors.New("that is no event")
	}
	cookie, _ := w.visit(r)
	now := w.now()
	age := now.Unix() - e.CreatedAt
	switch {
	case e.Kind != kindHTTPAuth:
		return fmt.Errorf("the event has kind %d, want %d", e.Kind, kindHTTPAuth)
	case e.PubKey != want:
		return errors.New("the event is not signed by the operator that spec.operator.pubkey names")
	case age > int64(challengeLife/time.Second) || -age > int64(challengeLife/time.Second):
		return errors.New("the event's time is too far from the node's clock")
	case one(e, "method") != http.MethodPost:
		return errors.New("the event is for another method")
	case !slices.Contains(w.addresses(r), one(e, "u")):
		return errors.New("the event is for another address than this page's")
	case !nostr.NewVerifier().Verify([]*nostr.Event{e})[0]:
		return errors.New("the signature is wrong")
	case !w.take(one(e, "challenge"), cookie, now):
		return errors.New("the challenge is used, too old, or another browser's: load the page again")
	}
	return nil
}

// addresses are the URLs under which a browser may have reached the sign-in.
func (w *Web) addresses(r *http.Request) (out []string) {
	scheme := "http://"
	if w.secure(r) {
		scheme = "https://"
	}
	for _, origin := range append([]string{scheme + r.Host}, w.origins...) {
		out = append(out, origin+prefix+"in/nostr")
	}
	return out
}

// one is the value of a tag that stands exactly once, else "".
func one(e *nostr.Event, name string) (value string) {
	found := 0
	for _, t := range e.Tags {
		if len(t) > 1 && t[0] == name {
			value = t[1]
			found++
		}
	}
	if found != 1 {
		return ""
	}
	return value
}

func (w *Web) signOut(rw http.ResponseWriter, r *http.Request, s *session) {
	if s != nil {
		w.sessions.end(s)
	}
	w.setCookie(rw, r, "", -time.Second)
	http.Redirect(rw, r, prefix, http.StatusSeeOther)
}
