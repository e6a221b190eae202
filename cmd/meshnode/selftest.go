package main

import (
	"fmt"

	"fleetmesh.org/fleetmesh/internal/selftest"
)

type selftestCmd struct {
	URL string `arg:"" help:"The relay: ws:// or wss://."`
}

func (c *selftestCmd) Help() string {
	return `Publishes a few small events under keys made for this call, asks for their deletion afterwards, and says for each NIP that the relay advertises
whether it keeps the promise. Status 0 if it keeps all of them.

Examples:
  meshnode selftest ws://127.0.0.1:7777
  meshnode selftest --json wss://relay.example.org`
}

func (c *selftestCmd) Run(a *app) error {
	if _, err := relayURL(c.URL); err != nil {
		return err
	}
	results := selftest.Run(a.ctx, c.URL, selftest.Options{})
	if err := selftest.Render(a.out, results, a.json); err != nil {
		return fmt.Errorf("print the results: %w", err)
	}
	if code := selftest.ExitCode(results); code != 0 {
		return &exit{code: code}
	}
	return nil
}
