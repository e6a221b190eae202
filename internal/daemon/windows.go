package daemon

import (
	"context"

	"fleetmesh.org/fleetmesh/internal/ledger"
	"fleetmesh.org/fleetmesh/internal/mesh"
)

// WindowsParams name a peer and, where it is not 0, one window.
type WindowsParams struct {
	DID    string `json:"did"`
	Window int64  `json:"window,omitempty"`
}

// WindowReport is the verdict on one window of our grant to a peer, with the arithmetic that made it.
type WindowReport struct {
	mesh.WindowClose
	Lines  []WindowLine `json:"lines"`  // every limit in the order of the table, then dup_ratio; none where the limits were not kept
	Rules  []string     `json:"rules"`  // the formulas of the steps
	Silent bool         `json:"silent"` // there was traffic, and no receipt
	// Counted is the severity that the counts alone give: where it is below the verdict, a structural finding made the difference.
	Counted string `json:"counted"`
}

// WindowLine is one limit of a window, and how it was priced.
type WindowLine struct {
	ledger.Line
	Steps []string `json:"steps"`
}

// peerWindows tells of the closed windows of a peer, oldest first.
func (n *node) peerWindows(ctx context.Context, p WindowsParams) ([]WindowReport, error) {
	peer, err := n.peerNamed(ctx, p.DID)
	if err != nil {
		return nil, err
	}
	out := []WindowReport{}
	for _, w := range peer.Windows {
		if p.Window == 0 || p.Window == w.Window {
			out = append(out, reportWindow(w))
		}
	}
	return out, nil
}

// reportWindow prices a closed window again: the same numbers give the same verdict.
func reportWindow(w mesh.WindowClose) WindowReport {
	r := WindowReport{WindowClose: w, Lines: []WindowLine{}, Rules: ledger.ExplainRules()}
	if w.Limits == nil {
		return r
	}
	v := ledger.Evaluate(w.Limits, w.Measured, w.Claimed)
	r.Silent, r.Counted = v.Silent, v.Severity.String()
	for _, l := range v.Lines {
		r.Lines = append(r.Lines, WindowLine{l, ledger.Explain(w.Limits, l)})
	}
	return r
}
