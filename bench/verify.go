package main

import (
	"bytes"
	cryptorand "crypto/rand"
	_ "embed"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"text/tabwriter"

	oracle "github.com/btcsuite/btcd/btcec/v2/schnorr"

	"fleetmesh.org/fleetmesh/nostr"
	"fleetmesh.org/fleetmesh/nostr/schnorr"
)

type verifyCmd struct {
	Rounds int    `help:"Rounds; each takes every way once." default:"7"`
	Path   string `help:"Verify by this code, of those that the processor has: ifma, adx or portable. The fastest if not said." placeholder:"NAME"`
	JSON   bool   `help:"Print one JSON object." name:"json"`
}

// way is one way to verify: once runs it and returns the CPU nanoseconds of one signature.
type way struct {
	name string
	once func() (float64, error)
}

// wayResult is one line of the outcome.
type wayResult struct {
	Name string  `json:"name"`
	NS   float64 `json:"cpu_ns_per_signature"` // median of the rounds
	// Times is how many times as fast as the base: the median of the rounds' ratios.
	Times float64 `json:"times"`
}

type verifyReport struct {
	Path       string      `json:"path"`
	CPU        string      `json:"cpu"`
	Go         string      `json:"go"`
	Base       string      `json:"base"`
	Rounds     int         `json:"rounds"`
	LoadBefore string      `json:"load_before"`
	LoadAfter  string      `json:"load_after"`
	Ways       []wayResult `json:"ways"`
}

// Run measures.
func (c *verifyCmd) Run(a *app) error {
	if c.Rounds < 1 {
		return fmt.Errorf("--rounds: %d is fewer than 1", c.Rounds)
	}
	if c.Path != "" {
		if err := schnorr.Use(c.Path); err != nil {
			return fmt.Errorf("--path: %w", err)
		}
	}
	r := verifyReport{Path: schnorr.Path(), CPU: processor(), Go: runtime.Version(), Rounds: c.Rounds, LoadBefore: loadAverage()}
	ways, clean, err := waysToVerify()
	if err != nil {
		return err
	}
	defer clean()
	spent := make([][]float64, len(ways))
	for round := range c.Rounds + 1 { // the first warms up
		for i, w := range ways {
			if err := a.ctx.Err(); err != nil {
				return err
			}
			ns, err := w.once()
			if err != nil {
				return fmt.Errorf("%s: %w", w.name, err)
			}
			if round > 0 {
				spent[i] = append(spent[i], ns)
			}
		}
	}
	r.Base, r.LoadAfter = ways[0].name, loadAverage()
	for i, w := range ways {
		r.Ways = append(r.Ways, wayResult{w.name, math.Round(median(spent[i])), pairRatio(spent[0], spent[i])})
	}
	return r.print(c.JSON)
}

func (r *verifyReport) print(asJSON bool) error {
	if asJSON {
		text, err := json.MarshalIndent(r, "", " ")
		if err != nil {
			return fmt.Errorf("print the report: %w", err)
		}
		fmt.Printf("%s\n", text)
		return nil
	}
	fmt.Printf("path %s, %s on %s, median of %d rounds, load %s before and %s after\n\n", r.Path, r.Go, r.CPU, r.Rounds, r.LoadBefore, r.LoadAfter)
	tw := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(tw, "way\tCPU µs a signature\ttimes %s\t\n", r.Base)
	for _, w := range r.Ways {
		fmt.Fprintf(tw, "%s\t%.1f\t%.2f\t\n", w.Name, w.NS/1e3, w.Times)
	}
	return tw.Flush()
}

// triples are signatures in the form that the verifiers take.
type triples struct {
	pubs, msgs []*[32]byte
	sigs       []*[64]byte
	ok         []bool
}

func newTriples(events []*nostr.Event) *triples {
	t := &triples{ok: make([]bool, len(events))}
	for _, e := range events {
		t.pubs, t.msgs, t.sigs = append(t.pubs, (*[32]byte)(&e.PubKey)), append(t.msgs, (*[32]byte)(&e.ID)), append(t.sigs, (*[64]byte)(&e.Sig))
	}
	return t
}

// perSignature runs f, which verifies n signatures, as often as makes some milliseconds.
func perSignature(n int, f func() error) (float64, error) {
	times := max(1, 256/n)
	began := ownTime()
	for range times {
		if err := f(); err != nil {
			return 0, err
		}
	}
	return float64(ownTime()-began) / float64(n*times), nil
}

// waysToVerify lists the ways; the first is what the others are compared with: libsecp256k1 where it is installed, else
// btcec.
func waysToVerify() (ways []way, clean func(), err error) {
	c := newCorpus(1)
	events := make([]*nostr.Event, 2048)
	for i := range events {
		e, _ := c.draft(i)
		author := &c.signers[i%64] // few enough to be remembered
		e.PubKey = author.pub
		author.sign(&e)
		events[i] = &e
	}
	clean = func() {}
	if program, remove, err := buildLibsecp(); err == nil {
		clean = remove
		ways = append(ways, way{"libsecp256k1", func() (float64, error) { return runLibsecp(program, events[:256]) }})
	} else {
		fmt.Fprintln(os.Stderr, "libsecp256k1 is left out:", err)
	}
	ways = append(ways, way{"btcec", func() (float64, error) {
		return perSignature(64, func() error { return verifyBtcec(events[:64]) })
	}})
	return append(ways, ownWays(newTriples(events))...), clean, nil
}

func ownWays(t *triples) (ways []way) {
	cached, cold := schnorr.NewVerifier(0), schnorr.NewVerifier(-1)
	for _, v := range []struct {
		name string
		*schnorr.Verifier
	}{{"authors cached", cached}, {"authors new", cold}} {
		ways = append(ways, way{"single, " + v.name, func() (float64, error) {
			return perSignature(64, func() error {
				for i := range 64 {
					t.ok[i] = v.Verify(t.pubs[i], t.msgs[i][:], t.sigs[i])
				}
				return t.good(64)
			})
		}})
		for _, n := range []int{4, 8, 16, 64, 256} {
			ways = append(ways, way{fmt.Sprintf("group of %d, %s", n, v.name), func() (float64, error) {
				return perSignature(n, func() error {
					v.VerifyGroup(t.pubs[:n], t.msgs[:n], t.sigs[:n], t.ok[:n])
					return t.good(n)
				})
			}})
		}
		for _, n := range []int{256, 2048} {
			ways = append(ways, way{fmt.Sprintf("batch of %d, %s", n, v.name), func() (float64, error) {
				return perSignature(n, func() error {
					if err := v.VerifyBatch(cryptorand.Reader, t.pubs[:n], t.msgs[:n], t.sigs[:n], t.ok[:n]); err != nil {
						return err
					}
					return t.good(n)
				})
			}})
		}
	}
	return ways
}

// good wants the first n verdicts to be yes, and forgets them.
func (t *triples) good(n int) error {
	for i := range n {
		if !t.ok[i] {
			return fmt.Errorf("signature %d is good, and was refused", i)
		}
		t.ok[i] = false
	}
	return nil
}

func verifyBtcec(events []*nostr.Event) error {
	for _, e := range events {
		pub, err := oracle.ParsePubKey(e.PubKey[:])
		if err != nil {
			return err
		}
		sig, err := oracle.ParseSignature(e.Sig[:])
		if err != nil {
			return err
		}
		if !sig.Verify(e.ID[:], pub) {
			return fmt.Errorf("event %s is good, and was refused", e.ID)
		}
	}
	return nil
}

//go:embed libsecp/verify.c
var libsecpSource []byte

// buildLibsecp compiles the program that measures libsecp256k1, where that and a C compiler are installed.
func buildLibsecp() (program string, remove func(), err error) {
	dir, err := os.MkdirTemp("", "fleetmesh-bench")
	if err != nil {
		return "", nil, err
	}
	remove = func() { _ = os.RemoveAll(dir) }
	source := filepath.Join(dir, "verify.c")
	program = filepath.Join(dir, "verify")
	if err := os.WriteFile(source, libsecpSource, 0o600); err != nil {
		remove()
		return "", nil, err
	}
	if out, err := exec.Command("cc", "-O2", "-o", program, source, "-lsecp256k1").CombinedOutput(); err != nil {
		remove()
		first, _, _ := strings.Cut(strings.TrimSpace(string(out)), "\n")
		return "", nil, fmt.Errorf("compile with -lsecp256k1: %w %s", err, first)
	}
	return program, remove, nil
}

func runLibsecp(program string, events []*nostr.Event) (float64, error) {
	var in bytes.Buffer
	for _, e := range events {
		in.Write(e.PubKey[:])
		in.Write(e.ID[:])
		in.Write(e.Sig[:])
	}
	cmd := exec.Command(program, "1")
	cmd.Stdin = &in
	out, err := cmd.Output()
	if err != nil {
		return 0, fmt.Errorf("run: %w", err)
	}
	return strconv.ParseFloat(strings.TrimSpace(string(out)), 64)
}
