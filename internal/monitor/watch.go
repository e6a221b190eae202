package monitor

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"

	"fleetmesh.org/fleetmesh/internal/control"
)

// Watcher audits one node.
type Watcher struct {
	Socket     string // its control socket
	Params     Params
	Thresholds Thresholds
	Patience   time.Duration // of one audit, after which the node counts as stuck; 0: a minute
}

// Audit asks the node once and judges what it says. It returns no error: a node that cannot be asked is the worst finding there is.
func (w *Watcher) Audit(ctx context.Context) Report {
	patience := w.Patience
	if patience <= 0 {
		patience = time.Minute
	}
	asked, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	began := time.Now()
	facts, err := w.ask(asked)
	took := time.Since(began).Seconds()
	if err != nil {
		if asked.Err() != nil {
			err = fmt.Errorf("no answer in %s", patience)
		}
		return Report{Level: Critical, Took: took, Findings: []Finding{{"node", Critical, fmt.Sprintf("the node does not answer on %s (%v): look at its log, and start it with meshnode up", w.Socket, err)}}}
	}
	r := Judge(facts, w.Thresholds)
	r.Took = took
	if err := knock(asked, facts.Relay); err != nil {
		// The socket answers and the door does not: worse than anything that the node itself can tell.
		r.Findings = append([]Finding{{"face", Critical, fmt.Sprintf("the relay face does not answer at %s (%v): clients cannot get in", facts.Relay, err)}}, r.Findings...)
		r.Level = Critical
	}
	return r
}

func (w *Watcher) ask(ctx context.Context) (*Facts, error) {
	c, err := control.Dial(ctx, w.Socket)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	var raw json.RawMessage
	if err := c.Call(ctx, MethodHealth, w.Params, &raw, nil); err != nil {
		return nil, err
	}
	facts, err := ParseFacts(raw)
	if err != nil {
		return nil, fmt.Errorf("read the node's answer: %w", err)
	}
	return &facts, nil
}

// knock asks the face for its health, over the same port that clients use.
func knock(ctx context.Context, relay string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http"+strings.TrimPrefix(strings.TrimSuffix(relay, "/"), "ws")+"/health", nil)
	if err != nil {
		return err
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("it says %s", resp.Status)
	}
	return nil
}

// Follow audits again and again, every interval, until ctx ends, and gives each report to show. It returns the last one.
func (w *Watcher) Follow(ctx context.Context, every time.Duration, show func(Report) error) (last Report, err error) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		r := w.Audit(ctx)
		if ctx.Err() != nil {
			return last, nil // what was asked while we were told to stop says nothing
		}
		if last = r; show(r) != nil {
			return last, fmt.Errorf("show the report: %w", err)
		}
		select {
		case <-ctx.Done():
			return last, nil
		case <-tick.C:
		}
	}
}
