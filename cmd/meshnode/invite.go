package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"time"

	"rsc.io/qr"

	"fleetmesh.org/fleetmesh/internal/daemon"
)

type inviteCmd struct {
	Create inviteCreateCmd `cmd:"" help:"Make an invitation: good once, until it expires or is revoked." default:"withargs"`
	List   inviteListCmd   `cmd:"" help:"Every invitation and what became of it."`
	Revoke inviteRevokeCmd `cmd:"" help:"Withdraw an invitation."`
}

type inviteCreateCmd struct {
	Expires time.Duration `help:"How long it is good for." default:"24h"`
	Note    string        `help:"For whom; only you see it."`
	Base    string        `help:"Link that carries the invitation." default:"didcomm://invite" placeholder:"URL"`
	PNG     string        `help:"Write the QR code to this file." name:"png" placeholder:"FILE"`
	QR      bool          `help:"Show the QR code in the terminal." name:"qr" default:"true" negatable:""`
}

func (c *inviteCreateCmd) Help() string {
	return `Whoever has the link may peer once with this node, whatever spec.federation.enrolment says. The other operator runs:
  meshnode peer add --invitation LINK`
}

func (c *inviteCreateCmd) Run(a *app) error {
	var i daemon.Invitation
	p := daemon.InviteParams{Seconds: int64(c.Expires / time.Second), Note: c.Note, Base: c.Base}
	if err := a.call("invite.create", p, &i, nil); err != nil {
		return err
	}
	code, err := qr.Encode(i.URL, qr.L)
	if err != nil {
		return fmt.Errorf("draw the QR code: %w", err)
	}
	if c.PNG != "" {
		if err := os.WriteFile(c.PNG, code.PNG(), 0o600); err != nil {
			return fmt.Errorf("write the QR code: %w", err)
		}
	}
	return a.print(i, func(w io.Writer) {
		if c.QR {
			_, _ = w.Write(terminalQR(code)) // a closed stdout shows in the next line too
		}
		fmt.Fprintf(w, "%s\ninvitation %s, good once until %s\n", i.URL, i.ID, time.Unix(i.Expires, 0).Format(time.DateTime))
	})
}

// quiet is the blank margin that scanners want, in modules.
const quiet = 2

// terminalQR draws two rows of modules in a line of text, light on dark as most terminals are.
func terminalQR(code *qr.Code) []byte {
	var out bytes.Buffer
	light := func(x, y int) bool { return !code.Black(x, y) } // outside of the code everything is light
	for y := -quiet; y < code.Size+quiet; y += 2 {
		for x := -quiet; x < code.Size+quiet; x++ {
			switch up, down := light(x, y), light(x, y+1); {
			case up && down:
				out.WriteString("█")
			case up:
				out.WriteString("▀")
			case down:
				out.WriteString("▄")
			default:
				out.WriteByte(' ')
			}
		}
		out.WriteByte('\n')
	}
	return out.Bytes()
}

type inviteListCmd struct{}

func (inviteListCmd) Run(a *app) error {
	var list []daemon.Invitation
	if err := a.call("invite.list", nil, &list, nil); err != nil {
		return err
	}
	return a.print(list, func(w io.Writer) {
		for _, i := range list {
			fmt.Fprintf(w, "%s  %-8s until %s  %s %s\n", i.ID, i.State, time.Unix(i.Expires, 0).Format(time.DateTime), i.Note, i.UsedBy)
		}
		if len(list) == 0 {
			fmt.Fprintln(w, "no invitations yet: meshnode invite")
		}
	})
}

type inviteRevokeCmd struct {
	ID string `arg:"" help:"Id of the invitation."`
}

func (c *inviteRevokeCmd) Run(a *app) error {
	if err := a.call("invite.revoke", daemon.IDParams{ID: c.ID}, nil, nil); err != nil {
		return err
	}
	return a.print(map[string]string{"revoked": c.ID}, func(w io.Writer) { fmt.Fprintf(w, "invitation %s is withdrawn\n", c.ID) })
}
