package relay

import (
	"crypto/subtle"
	"net/url"
	"slices"
	"strings"

	"fleetmesh.org/fleetmesh/internal/policy"
	"fleetmesh.org/fleetmesh/nostr"
)

const (
	kindAuth   nostr.Kind = 22242
	authWindow int64      = 600 // seconds that created_at may be off, either way (NIP-42)
)

// onAuth takes the answer to a challenge (NIP-42). Every AUTH gets an OK; all keys are kept.
func (c *conn) onAuth(m *nostr.AuthMessage) {
	no := c.takeRequest()
	switch {
	case no != nil:
	case c.r.cfg.Off.Auth:
		no = policy.Reject(policy.Unsupported, "authentication is switched off here")
	case m.Err != nil:
		no = policy.Reject(policy.Invalid, "%s", m.Err)
	default:
		no = c.checkAuth(m.Event)
	}
	if no == nil {
		no = c.admitKey(m.Event.PubKey)
	}
	if no != nil {
		c.r.m.AuthFailed.Add(1)
		c.ok(m.RawID, false, c.r.refuse(no).Reason)
		return
	}
	c.r.m.Auths.Add(1)
	c.ok(m.RawID, true, "")
}

func (c *conn) checkAuth(e *nostr.Event) *policy.Rejection {
	now := c.r.now().Unix()
	challenge, relay := tagValue(e, "challenge"), tagValue(e, "relay")
	switch off := now - e.CreatedAt; {
	case e.Kind != kindAuth:
		return policy.Reject(policy.Invalid, "AUTH needs an event of kind 22242, this one has kind %d", e.Kind)
	case off > authWindow || off < -authWindow:
		return policy.Reject(policy.Invalid, "created_at is %d s off the relay's clock, more than %d", off, authWindow)
	case subtle.ConstantTimeCompare([]byte(challenge), []byte(c.challenge)) != 1:
		return policy.Reject(policy.Invalid, "the challenge is not the one of this connection")
	case relay == "":
		return policy.Reject(policy.Invalid, "the event has no relay tag")
	case !c.isUs(relay):
		c.r.m.WrongURL.Add(1)
		c.r.log.Warn("AUTH for another URL; if it is one of ours, declare it in publicUrls",
			"received", clip(relay), "expected", c.urls)
		return policy.Reject(policy.Invalid, "the relay tag does not name this relay, which is %s", strings.Join(c.urls, " or "))
	case !c.r.verifier.Verify([]*nostr.Event{e})[0]:
		return policy.Reject(policy.Invalid, "bad signature")
	}
	return nil
}

// isUs compares a relay tag with the declared URLs. A client that came by another path of a declared host
// may name that path.
func (c *conn) isUs(relay string) bool {
	for _, u := range c.urls {
		if nostr.SameRelay(u, relay) {
			return true
		}
		if own, err := url.Parse(u); err == nil && c.path != "" {
			own.Path, own.RawPath = c.path, ""
			if nostr.SameRelay(own.String(), relay) {
				return true
			}
		}
	}
	return false
}

func (c *conn) admitKey(k nostr.PubKey) *policy.Rejection {
	keys := c.readers()
	if slices.Contains(keys, k) {
		return nil
	}
	if l := c.r.lim.Load().MaxAuthKeys; len(keys) >= l {
		return over(policy.Restricted, "maxAuthKeys", l, len(keys)+1)
	}
	next := append(slices.Clone(keys), k)
	c.keys.Store(&next)
	return nil
}

// tagValue is the value of the first tag of that name that has one, or "".
func tagValue(e *nostr.Event, name string) string {
	for v := range e.TagValues(name) {
		return v
	}
	return ""
}

// clip keeps what a client sent from filling a log line.
func clip(s string) string { return cut(s, 200) }
