package main

import (
	"fmt"
	"io"
	"os"
	"time"

	"fleetmesh.org/fleetmesh/internal/daemon"
	"fleetmesh.org/fleetmesh/internal/identity"
	"fleetmesh.org/fleetmesh/internal/ledger"
	"fleetmesh.org/fleetmesh/nostr"
	"fleetmesh.org/fleetmesh/spec"
)

type reportCmd struct {
	Verify   reportVerifyCmd   `cmd:"" help:"Check a report from the file alone: no node is needed."`
	List     reportListCmd     `cmd:"" help:"Complaints of this node and about it, and the reports of others that it read."`
	Withdraw reportWithdrawCmd `cmd:"" help:"Take a complaint back, and its report where one was published."`
}

type reportVerifyCmd struct {
	File string `arg:"" help:"A report event (kind 30802) as JSON; - reads stdin."`
}

func (c *reportVerifyCmd) Help() string {
	return `Hashes every artefact, checks what the subject signed, opens the reporter's grant against its commitment, and runs the classifier again. Exit status: 0 the
outcome follows from the evidence; 6 it does not (refuted); 5 the evidence does not resolve or the subject did not sign it (unsupported); 4 it is not judged, being
expired or of the compute market.

Examples:
  meshnode req --relay wss://their.relay '{"kinds":[30802]}' | head -1 > report.json
  meshnode report verify report.json`
}

// reportVerdict is what report verify prints.
type reportVerdict struct {
	Support  ledger.Support `json:"support"`
	Code     ledger.Code    `json:"code,omitempty"`
	Detail   string         `json:"detail,omitempty"`
	Reporter string         `json:"reporter,omitempty"`
	Subject  string         `json:"subject,omitempty"`
	Outcome  string         `json:"outcome,omitempty"`
	Windows  []int64        `json:"windows,omitempty"`
	Layers   []ledger.Layer `json:"layers"`
}

// maxReport is the largest file that is read as a report.
const maxReport = 4 << 20

func (c *reportVerifyCmd) Run(a *app) error {
	in := a.in
	if c.File != "-" {
		f, err := os.Open(c.File)
		if err != nil {
			return &exit{spec.ExitUsage, fmt.Sprintf("read the report: %v", err)}
		}
		defer f.Close()
		in = f
	}
	text, err := io.ReadAll(io.LimitReader(in, maxReport))
	if err != nil {
		return fmt.Errorf("read the report: %w", err)
	}
	e, err := nostr.ParseEvent(text)
	if err != nil {
		return &exit{spec.ExitUsage, fmt.Sprintf("%s is no event: %v", c.File, err)}
	}
	if e.Kind != spec.KindReport {
		return &exit{spec.ExitUsage, fmt.Sprintf("%s is an event of kind %d, and a report is one of kind %d", c.File, e.Kind, spec.KindReport)}
	}
	r, layers, j := ledger.Verify(e, ledger.Known{Now: time.Now().Unix()})
	v := reportVerdict{Support: j.Support, Code: j.Code, Detail: j.Detail, Reporter: identity.FormatDID(e.PubKey), Layers: layers}
	if r != nil {
		v.Subject, v.Outcome, v.Windows = identity.FormatDID(r.Subject), r.Outcome.String(), []int64{r.First, r.Last}
	}
	if err := a.print(v, func(w io.Writer) { showVerdict(w, &v) }); err != nil {
		return err
	}
	switch j.Support {
	case ledger.Supported:
		return nil
	case ledger.Refuted:
		return &exit{spec.ExitInvalid, ""}
	case ledger.Unsupported:
		return &exit{spec.ExitCredential, ""}
	}
	return &exit{spec.ExitRetry, ""}
}

func showVerdict(w io.Writer, v *reportVerdict) {
	for _, l := range v.Layers {
		mark := "holds"
		if !l.Holds {
			mark = "FAILS"
		}
		fmt.Fprintf(w, "%s  %-20.20s %s\n", mark, l.Name, l.Detail)
	}
	fmt.Fprintf(w, "%s", v.Support)
	if v.Outcome != "" {
		fmt.Fprintf(w, ": %s of %s by %s", v.Outcome, v.Subject, v.Reporter)
	}
	if v.Detail != "" {
		fmt.Fprintf(w, " (%s)", v.Detail)
	}
	fmt.Fprintln(w)
}

type reportListCmd struct{}

func (reportListCmd) Help() string {
	return `Each complaint with its stage: noticed (to be published when the notice has stood for a window), published, kept (between the two), unproven (nothing that
the peer signed proves it to others), withdrawn.

Example:
  meshnode report list --json`
}

func (reportListCmd) Run(a *app) error {
	var r daemon.Reports
	if err := a.call("report.list", nil, &r, nil); err != nil {
		return err
	}
	return a.print(r, func(w io.Writer) {
		for _, c := range r.Cases {
			for i := range c.Ours {
				o := &c.Ours[i]
				answer := o.Answer
				if answer == "" {
					answer = "silence"
				}
				fmt.Fprintf(w, "ours about %s  %s %s, window %d, answered with %s, thread %s %s\n", identity.FormatDID(c.Peer), o.Outcome, o.Stage, o.Last, answer, o.Thread, o.Why)
			}
			for _, t := range c.Theirs {
				fmt.Fprintf(w, "about us by %s  %s, window %d, %s, answered with %s, withdrawn %v\n", identity.FormatDID(c.Peer), t.Outcome, t.Last, t.Support, t.Answer, t.Withdrawn)
			}
		}
		for _, f := range r.Findings {
			fmt.Fprintf(w, "read: %s says %s of %s, %s %s\n", identity.FormatDID(f.Reporter), f.Severity, identity.FormatDID(f.Subject), f.Support, f.Detail)
		}
		if len(r.Cases)+len(r.Findings) == 0 {
			fmt.Fprintln(w, "no complaint, and no report of a peer's was read")
		}
	})
}

type reportWithdrawCmd struct {
	DID    string `arg:"" help:"The node that the complaint is about."`
	Thread string `help:"One complaint, by its thread; all about the node if absent."`
	Note   string `help:"What the other operator is told." default:""`
}

func (reportWithdrawCmd) Help() string {
	return `The peer is told, and a published report is deleted. What the finding cost stays until you give the tier back.

Example:
  meshnode report withdraw did:nostr:… --note "our clock was wrong"
  meshnode peer tier did:nostr:… member`
}

func (c *reportWithdrawCmd) Run(a *app) error {
	return a.call("report.withdraw", daemon.WithdrawParams{DID: c.DID, Thread: c.Thread, Note: c.Note}, nil, nil)
}
