package main

import (
	"bytes"
	"crypto/rand"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"fleetmesh.org/fleetmesh/internal/identity"
	"fleetmesh.org/fleetmesh/internal/ledger"
	"fleetmesh.org/fleetmesh/nostr"
	"fleetmesh.org/fleetmesh/spec"
)

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// TestReportVerify checks reports from files, as a third party does: the status says how each stands.
func TestReportVerify(t *testing.T) {
	reporter := must(identity.NewKeyAgent(nostr.SecretKey{31: 1}))
	subject := must(identity.NewKeyAgent(nostr.SecretKey{31: 2}))
	now := time.Now().Unix()
	g := ledger.NewGrant(reporter.PubKey(), subject.PubKey(), spec.TierMember, nil, now-9000)
	granted := must(ledger.Seal(reporter, g, rand.Reader))
	w := g.WindowAt(now - 7200)
	chain := ledger.NewChain(g.ID, w, subject.PubKey())
	receipt := must(chain.Next(subject, ledger.Counters{spec.CounterEventsIn: 200}, nil, w.Start()+10))
	measured := ledger.Counters{spec.CounterEventsIn: 700}
	draft := func(sev spec.Severity, at int64, evidence ...ledger.Artefact) *nostr.Event {
		r := ledger.ReportOn(g, sev, ledger.Evaluate(g.Limits, measured, receipt.Counters), w, at)
		r.Evidence = evidence
		e := must(r.Event())
		if err := identity.SignEvent(reporter, e); err != nil {
			t.Fatal(err)
		}
		return e
	}
	open, claim := must(ledger.GrantArtefact(granted, g)), must(ledger.NewArtefact(ledger.EvidenceReceipt, receipt.JSON()))
	text := string(draft(spec.S2, now, claim, open).JSON())
	for _, c := range []struct {
		name, text string
		code       int
		says       string
	}{
		{"supported", text, spec.ExitOK, `"support":"supported"`},
		{"refuted", string(draft(spec.S3, now, claim, open).JSON()), spec.ExitInvalid, `"support":"refuted"`},
		{"without the grant", string(draft(spec.S2, now, claim).JSON()), spec.ExitCredential, `"support":"unsupported"`},
		{"expired", string(draft(spec.S2, now-40*86400, claim, open).JSON()), spec.ExitRetry, `"support":"not-judged"`},
		{"another kind", string(granted.JSON()), spec.ExitUsage, ""},
		{"no event", "{}", spec.ExitUsage, ""},
		{"nothing", "", spec.ExitUsage, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "report.json")
			if err := os.WriteFile(path, []byte(c.text), 0o600); err != nil {
				t.Fatal(err)
			}
			var out bytes.Buffer
			err := (&reportVerifyCmd{File: path}).Run(&app{json: true, out: &out})
			code := spec.ExitOK
			var chosen *exit
			if errors.As(err, &chosen) {
				code = chosen.code
			} else if err != nil {
				t.Fatal(err)
			}
			if code != c.code || !strings.Contains(out.String(), c.says) {
				t.Errorf("status %d, want %d: %v\n%s", code, c.code, err, out.String())
			}
		})
	}
	if err := (&reportVerifyCmd{File: "-"}).Run(&app{in: strings.NewReader(text), out: new(bytes.Buffer)}); err != nil {
		t.Error(err)
	}
	if err := (&reportVerifyCmd{File: filepath.Join(t.TempDir(), "none")}).Run(&app{out: new(bytes.Buffer)}); err == nil {
		t.Error("a file that is not there")
	}
}
