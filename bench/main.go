// Command bench measures any Nostr relay by its address, two of them against each other, and the signature verifier
// against others.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/alecthomas/kong"
)

type cli struct {
	Verify verifyCmd `cmd:"" help:"Measure the signature verifier beside others: CPU nanoseconds a signature."`
	Relay  relayCmd  `cmd:"" help:"Measure relays by their address: idle, ingest, query, fanout, neg."`
	Sync   syncCmd   `cmd:"" help:"Bring missing events from one node to another: by NIP-77, and by sync/1.0 with envelopes, receipts and encryption."`
	Peers  peersCmd  `cmd:"" help:"Measure what a peering costs in memory and CPU, at 10, 100 and 1,000 of them, on simulated links."`
	Corpus corpusCmd `cmd:"" help:"Write the corpus as JSONL."`
}

// app is what every verb gets.
type app struct{ ctx context.Context }

// note tells a person how far the run is.
func (a *app) note(format string, args ...any) { fmt.Fprintf(os.Stderr, format+"\n", args...) }

func main() {
	var c cli
	k := kong.Parse(&c, kong.Vars{"phases": strings.Join(phaseNames, ",")}, kong.Name("bench"), kong.UsageOnError(),
		kong.Description("Measures relays, and the signature verifier. Numbers of one run compare with each other; those of two runs, or two machines, do not."),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true, FlagsLast: true, WrapUpperBound: 110}))
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := k.Run(&app{ctx: ctx})
	stop()
	k.FatalIfErrorf(err)
}

type corpusCmd struct {
	Events int    `help:"How many." default:"10000"`
	Seed   uint64 `help:"What the corpus is made from." default:"1"`
	Cache  string `help:"Where the made corpus is kept; default: the system's temporary directory."`
	Out    string `help:"The file to write." required:"" type:"path"`
}

// Run writes the corpus, for relays that import files.
func (c *corpusCmd) Run(a *app) error {
	items, err := newCorpus(c.Seed).load(a.ctx, c.Cache, c.Events)
	if err != nil {
		return err
	}
	f, err := os.Create(c.Out)
	if err != nil {
		return fmt.Errorf("write the corpus: %w", err)
	}
	defer f.Close()
	for i := range items {
		if _, err := f.Write(append(items[i].raw, '\n')); err != nil {
			return fmt.Errorf("write the corpus: %w", err)
		}
	}
	a.note("%d events of %.0f octets on average", len(items), meanSize(items))
	return nil
}
