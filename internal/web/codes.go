package web

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"net/netip"
	"strings"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// codeLife is how long a one-time code is good.
const codeLife = 5 * time.Minute

// codeLetters leaves out what people misread; 32 letters, so that twelve of them are 60 bits.
const codeLetters = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"

// codes holds the one code that is good now.
type codes struct {
	mu    sync.Mutex
	sum   [32]byte
	until time.Time
}

// make draws a code; one that was drawn before is void.
func (c *codes) make(now time.Time) (text string, until time.Time) {
	var raw [12]byte
	_, _ = rand.Read(raw[:]) // it never fails
	for i, b := range raw {
		if i%4 == 0 && i > 0 {
			text += "-"
		}
		text += string(codeLetters[b%32])
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sum, c.until = sha256.Sum256([]byte(plainCode(text))), now.Add(codeLife)
	return text, c.until
}

// plainCode is a code as people may write it: in any case, with or without dashes and blanks.
func plainCode(s string) string {
	s = strings.ToUpper(strings.NewReplacer("-", "", " ", "").Replace(s))
	return strings.NewReplacer("O", "0", "I", "1", "L", "1").Replace(s)
}

// redeem uses a code up, and says whether it was good.
func (c *codes) redeem(text string, now time.Time) bool {
	sum := sha256.Sum256([]byte(plainCode(text)))
	c.mu.Lock()
	defer c.mu.Unlock()
	if !now.Before(c.until) || subtle.ConstantTimeCompare(sum[:], c.sum[:]) != 1 {
		return false
	}
	c.until = time.Time{}
	return true
}

// Tries at signing in: so many at once from one address, and one more in each interval. In all there may be more, so that a
// stranger does not lock the operator out; sixty bits are not guessed at one try a second in five minutes.
const (
	triesAtOnce = 5
	tryEvery    = 12 * time.Second
	allAtOnce   = 60
	maxAddrs    = 1024 // addresses that are told apart
)

// tries bounds tries at signing in.
type tries struct {
	mu   sync.Mutex
	by   map[netip.Addr]*rate.Limiter
	all  *rate.Limiter
	rest *rate.Limiter // of addresses beyond the table
}

// allow takes one try from an address's allowance. It says how long to wait where there is none.
func (t *tries) allow(addr netip.Addr, now time.Time) (wait time.Duration) {
	if addr.Is6() {
		p, _ := addr.WithZone("").Prefix(64) // one household has so many
		addr = p.Addr()
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.by == nil {
		t.by, t.all, t.rest = map[netip.Addr]*rate.Limiter{}, rate.NewLimiter(1, allAtOnce), rate.NewLimiter(rate.Every(tryEvery), triesAtOnce)
	}
	l := t.by[addr]
	if l == nil {
		l = t.admit(addr, now)
	}
	for _, one := range []*rate.Limiter{l, t.all} {
		r := one.ReserveN(now, 1)
		if wait = r.DelayFrom(now); wait > 0 {
			r.CancelAt(now)
			return wait
		}
	}
	return 0
}

// admit gives an address an allowance of its own, in the place of those that have theirs back.
func (t *tries) admit(addr netip.Addr, now time.Time) *rate.Limiter {
	if len(t.by) >= maxAddrs {
		for a, l := range t.by {
			if l.TokensAt(now) >= triesAtOnce {
				delete(t.by, a)
			}
		}
	}
	if len(t.by) >= maxAddrs {
		return t.rest
	}
	t.by[addr] = rate.NewLimiter(rate.Every(tryEvery), triesAtOnce)
	return t.by[addr]
}

// Code is what page.code answers.
type Code struct {
	Code    string `json:"code"` // to be typed in once
	Expires int64  `json:"expires_at"`
	URL     string `json:"url"` // of the page, with the code behind it where only the browser sees it
}

// Session is a sign-in, as page.sessions tells of it.
type Session struct {
	Since   int64  `json:"since"`
	Expires int64  `json:"expires_at"`
	How     string `json:"how"` // "code" or "nostr"
}

// Ended is what page.end answers.
type Ended struct {
	Ended int `json:"ended"`
}

// MakeCode makes a one-time code; the one before is void. local is the page's origin on this machine.
func (w *Web) MakeCode(local string) Code {
	text, until := w.codes.make(w.now())
	origin := local
	if len(w.origins) > 0 {
		origin = w.origins[0]
	}
	return Code{Code: text, Expires: until.Unix(), URL: origin + prefix + "#code=" + text}
}

// SignIns tells since when who is signed in, oldest first.
func (w *Web) SignIns() []Session {
	w.sessions.mu.Lock()
	defer w.sessions.mu.Unlock()
	w.sessions.expire(w.now())
	out := []Session{}
	for _, s := range w.sessions.list {
		out = append(out, Session{Since: s.made.Unix(), Expires: s.made.Add(sessionLife).Unix(), How: s.how})
	}
	return out
}

// SignOutAll ends every session.
func (w *Web) SignOutAll() Ended { return Ended{w.sessions.end(nil)} }
