package daemon

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"sync"
	"time"

	"fleetmesh.org/fleetmesh/internal/control"
	"fleetmesh.org/fleetmesh/internal/didcomm"
	"fleetmesh.org/fleetmesh/internal/identity"
	"fleetmesh.org/fleetmesh/nostr"
)

// Invitation is one invitation of this node: good once, for whoever shows it first, until it expires or is revoked.
type Invitation struct {
	ID      string `json:"id"`
	URL     string `json:"url,omitempty"` // only where it was just made: who has it may come in
	Note    string `json:"note,omitempty"`
	Created int64  `json:"created_at"`
	Expires int64  `json:"expires_at"`
	UsedBy  string `json:"used_by,omitempty"` // DID
	UsedAt  int64  `json:"used_at,omitempty"`
	Revoked int64  `json:"revoked_at,omitempty"`
	State   string `json:"state"` // open, used, expired, revoked
}

func (i *Invitation) state(now int64) string {
	switch {
	case i.Revoked != 0:
		return "revoked"
	case i.UsedBy != "":
		return "used"
	case now >= i.Expires:
		return "expired"
	}
	return "open"
}

// invitations are those of a node, and their file. They are safe for concurrent use.
type invitations struct {
	path string
	mu   sync.Mutex
	list []*Invitation
}

// keptInvitations is how long one that is spent, expired or revoked stays listed.
const keptInvitations = 90 * 86400

func openInvitations(path string) (*invitations, error) {
	v := &invitations{path: path}
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return v, nil
	}
	if err == nil {
		err = json.Unmarshal(text, &v.list)
	}
	if err != nil {
		return nil, fmt.Errorf("read the invitations: %s: %w", path, err)
	}
	return v, nil
}

// save writes the file; v.mu is held.
func (v *invitations) save() error {
	text, err := json.MarshalIndent(v.list, "", " ")
	if err == nil {
		err = writeFile(v.path, append(text, '\n'), 0o600)
	}
	if err != nil {
		return fmt.Errorf("write the invitations: %w", err)
	}
	return nil
}

// add makes an invitation durable.
func (v *invitations) add(i Invitation) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.list = slices.DeleteFunc(v.list, func(o *Invitation) bool {
		return o.state(i.Created) != "open" && i.Created-max(o.Expires, o.UsedAt, o.Revoked) > keptInvitations
	})
	v.list = append(v.list, &i)
	if err := v.save(); err != nil {
		v.list = v.list[:len(v.list)-1]
		return err
	}
	return nil
}

// redeem says whether an invitation is good for a node. The first to show it is the one whose it is; the same node may show it again, because
// a proposal may have to be repeated. What cannot be written down is not redeemed.
func (v *invitations) redeem(id string, from nostr.PubKey, now int64) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	did := identity.FormatDID(from)
	for _, i := range v.list {
		if i.ID != id {
			continue
		}
		if i.Revoked == 0 && i.UsedBy == did {
			return true
		}
		if i.state(now) != "open" {
			return false
		}
		i.UsedBy, i.UsedAt = did, now
		if v.save() != nil {
			i.UsedBy, i.UsedAt = "", 0
			return false
		}
		return true
	}
	return false
}

// revoke withdraws an invitation, and reports whether there was one.
func (v *invitations) revoke(id string, now int64) (bool, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, i := range v.list {
		if i.ID != id {
			continue
		}
		old := i.Revoked
		i.Revoked = now
		if err := v.save(); err != nil {
			i.Revoked = old
			return true, err
		}
		return true, nil
	}
	return false, nil
}

func (v *invitations) all(now int64) []Invitation {
	v.mu.Lock()
	defer v.mu.Unlock()
	out := []Invitation{}
	for _, i := range v.list {
		c := *i
		c.State = c.state(now)
		out = append(out, c)
	}
	return out
}

// InviteParams are those of invite.create.
type InviteParams struct {
	Seconds int64  `json:"seconds"` // it is good for
	Note    string `json:"note,omitempty"`
	Base    string `json:"base,omitempty"` // link that carries it; didcomm://invite if empty
}

// goalPeering is what our invitations are for.
const goalPeering = "fleetmesh.peering"

func (n *node) inviteCreate(_ context.Context, p InviteParams) (i Invitation, err error) {
	if p.Seconds < 60 || p.Seconds > 365*86400 {
		return i, control.BadParams("an invitation is good for %d s, want a minute to a year", p.Seconds)
	}
	if p.Base == "" {
		p.Base = "didcomm://invite"
	}
	var id [16]byte
	if _, err := rand.Read(id[:]); err != nil {
		return i, fmt.Errorf("draw an invitation: %w", err)
	}
	now := time.Now().Unix()
	i = Invitation{ID: hex.EncodeToString(id[:]), Note: p.Note, Created: now, Expires: now + p.Seconds, State: "open"}
	m, err := didcomm.NewInvitation(i.ID, identity.FormatDID(n.agent.PubKey()), now, didcomm.Invitation{
		GoalCode: goalPeering, Accept: []string{"didcomm/v2"}, Endpoints: n.meetingPoints(),
	})
	if err != nil {
		return i, fmt.Errorf("write an invitation: %w", err)
	}
	m.ExpiresTime = i.Expires
	link, err := didcomm.InvitationURL(p.Base, m)
	if err != nil {
		return i, control.BadParams("%v", err)
	}
	if err := n.fed.invites.add(i); err != nil {
		return i, err
	}
	i.URL = link
	return i, nil
}

// meetingPoints are where whoever is invited finds this node's descriptor: its doors, then its relays.
func (n *node) meetingPoints() (urls []string) {
	for _, e := range doors(&n.cfg().Spec, n.url) {
		if e.Scheme == "wss" {
			urls = append(urls, e.Address)
		}
	}
	urls = append(urls, n.cfg().Spec.Relays...)
	return urls[:min(len(urls), 4)] // a QR code holds little
}

func (n *node) inviteList(context.Context, none) ([]Invitation, error) {
	return n.fed.invites.all(time.Now().Unix()), nil
}

// IDParams name something by its id.
type IDParams struct {
	ID string `json:"id"`
}

func (n *node) inviteRevoke(_ context.Context, p IDParams) (none, error) {
	ok, err := n.fed.invites.revoke(p.ID, time.Now().Unix())
	if err == nil && !ok {
		err = control.BadParams("no invitation %q", p.ID)
	}
	return none{}, err
}

// Invited is what an invitation of another node says. Nothing in it is proven before that node's descriptor is verified.
type Invited struct {
	ID     string   `json:"id"`
	DID    string   `json:"did"`
	Relays []string `json:"relays"`
}

// ReadInvitation reads another node's invitation link.
func ReadInvitation(link string, now time.Time) (i Invited, err error) {
	m, err := didcomm.InvitationFromURL(link)
	if err != nil {
		return i, err
	}
	inv, err := didcomm.ParseInvitation(m)
	if err != nil {
		return i, err
	}
	if m.ExpiredAt(now) {
		return i, fmt.Errorf("the invitation expired at %s", time.Unix(m.ExpiresTime, 0).UTC().Format(time.RFC3339))
	}
	if _, err := identity.ParseDID(m.From); err != nil {
		return i, fmt.Errorf("the invitation is from %q: %w", m.From, err)
	}
	return Invited{ID: m.ID, DID: m.From, Relays: inv.Endpoints}, nil
}
