// Package selftest probes, over its socket, every NIP that a relay says it
// supports. It trusts nothing that the relay says of itself, uses throw-away keys and a few small events,
// and asks for their deletion afterwards. It works against any relay, not only ours.
package selftest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"fleetmesh.org/fleetmesh/internal/gateway"
	"fleetmesh.org/fleetmesh/spec"
)

// Options says how to probe.
type Options struct {
	Gateway gateway.Options // how to connect; its Key is not used
	Timeout time.Duration   // of one probe; 0 means 30 s
	Only    []int           // NIPs to probe; nil means all
	// Progress is called with each Result as it comes.
	Progress func(Result)
}

// Result is the outcome of one NIP's probe.
type Result struct {
	NIP     int
	Name    string
	OK      bool // the probe passed
	Skipped bool // there was no probe, for the reason in Detail: not advertised, or not to be tried by a stranger
	Detail  string
	Took    time.Duration
}

// Failed says whether the NIP is advertised (or basic), and does not work.
func (r Result) Failed() bool { return !r.OK && !r.Skipped }

// probes in the order of their NIPs. A run function returns what it saw, or an error: one that wraps errSkip leaves
// the matter open.
var probes = []struct {
	nip  int
	name string
	run  func(p *probe) (string, error)
}{
	{1, "basic protocol", probeBasic},
	{2, "follow lists", probeFollows},
	{9, "deletion requests", probeDeletion},
	{11, "information document", probeInfo},
	{13, "proof of work", probeWork},
	{17, "private messages", probeMessages},
	{40, "expiration", probeExpiration},
	{42, "authentication", probeAuth},
	{44, "encrypted payloads", probePayload},
	{45, "counts", probeCount},
	{50, "search", probeSearch},
	{59, "gift wraps", probeWraps},
	{62, "request to vanish", probeVanish},
	{65, "relay lists", probeRelayList},
	{67, "completeness hints", probeHints},
	{70, "protected events", probeProtected},
	{77, "negentropy", probeNegentropy},
}

// always are probed whether they are advertised or not: without them it is no relay.
var always = []int{1, 11}

// passive NIPs ask nothing of a relay that could be switched off, so many relays do not advertise them. They are probed all
// the same, but only count as failed where they are advertised.
var passive = []int{2, 13, 44, 65}

// errSkip is wrapped when a probe cannot be made from where we stand, which says nothing about the relay.
var errSkip = errors.New("not tried")

func skip(format string, args ...any) error {
	return fmt.Errorf("%w: %s", errSkip, fmt.Sprintf(format, args...))
}

// Run probes the relay at a URL and returns a Result for each NIP that it advertises or that we
// know how to probe, in the order of their numbers.
func Run(ctx context.Context, url string, o Options) []Result {
	if o.Timeout == 0 {
		o.Timeout = 30 * time.Second
	}
	o.Gateway.Key = nil
	s := &session{url: url, opt: o}
	s.info, s.infoErr = gateway.FetchInfo(ctx, url, o.Gateway)
	if s.info == nil {
		s.info = new(gateway.Info)
	}
	var out []Result
	report := func(r Result) {
		out = append(out, r)
		if o.Progress != nil {
			o.Progress(r)
		}
	}
	for _, n := range s.numbers() {
		if o.Only != nil && !slices.Contains(o.Only, n) {
			continue
		}
		report(s.one(ctx, n))
	}
	return out
}

// session is what all probes of a run share.
type session struct {
	url     string
	opt     Options
	info    *gateway.Info
	infoErr error
}

// numbers lists the NIPs that are advertised or have a probe.
func (s *session) numbers() []int {
	out := slices.Clone(s.info.SupportedNIPs)
	for _, p := range probes {
		out = append(out, p.nip)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

func (s *session) one(ctx context.Context, nip int) Result {
	r := Result{NIP: nip, Name: "?"}
	advertised := s.info.Supports(nip) || slices.Contains(always, nip)
	for _, p := range probes {
		if p.nip != nip {
			continue
		}
		r.Name = p.name
		if !advertised && !slices.Contains(passive, nip) {
			break
		}
		start := time.Now()
		detail, err := s.try(ctx, p.run)
		r.Took = time.Since(start)
		switch {
		case err == nil:
			r.OK, r.Detail = true, detail
			if !advertised {
				r.Detail += " (not advertised)"
			}
		case errors.Is(err, errSkip):
			r.Skipped, r.Detail = true, err.Error()
		case !advertised:
			r.Skipped, r.Detail = true, "not advertised; "+err.Error()
		default:
			r.Detail = err.Error()
			if nip != 1 && nip != 11 {
				r.Detail = "advertised, but: " + r.Detail
			}
		}
		return r
	}
	r.Skipped = true
	r.Detail = "not advertised"
	if advertised {
		r.Detail = "advertised; there is no probe for it"
	}
	return r
}

func (s *session) try(ctx context.Context, run func(*probe) (string, error)) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, s.opt.Timeout)
	defer cancel()
	p, err := newProbe(ctx, s)
	if err != nil {
		return "", err
	}
	defer p.close()
	return run(p)
}

// ExitCode is 0 when no probe failed; else the code of a failure, or that of an unreachable relay when even
// the basic protocol cannot be spoken.
func ExitCode(results []Result) int {
	code := spec.ExitOK
	for _, r := range results {
		if !r.Failed() {
			continue
		}
		code = spec.ExitFailure
		if r.NIP == 1 && r.Detail == unreachable {
			return spec.ExitUnreachable
		}
	}
	return code
}

// unreachable is the detail of NIP-01 when there is no connection.
const unreachable = "the relay cannot be reached"
