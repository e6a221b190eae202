package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"

	"fleetmesh.org/fleetmesh/internal/daemon"
	"fleetmesh.org/fleetmesh/spec"
)

type storeCmd struct {
	Fingerprint storeFingerprintCmd `cmd:"" help:"NIP-77 fingerprint and count of what a filter matches; works on a running node too."`
	Stats       storeStatsCmd       `cmd:"" help:"Sizes and counts; works on a running node too."`
	Check       storeCheckCmd       `cmd:"" help:"Read everything, check every checksum, recount every fingerprint."`
	Rebuild     storeRebuildCmd     `cmd:"" help:"Make all indexes anew from the log, and check them."`
	Compact     storeCompactCmd     `cmd:"" help:"Give the space of dead records back to the file system."`
	Refused     storeRefusedCmd     `cmd:"" help:"List what is known and refused, with the reason."`
}

// offline opens the store of a stopped node.
func (a *app) offline() (*daemon.Offline, error) {
	if a.running() {
		return nil, &exit{spec.ExitRetry, "the node is running: stop it first (meshnode stop)"}
	}
	if !a.dir.Exists() {
		return nil, &exit{spec.ExitUsage, fmt.Sprintf("there is no node in %s", a.dir)}
	}
	return daemon.OpenOffline(a.dir)
}

type storeFingerprintCmd struct {
	Filter string `arg:"" optional:"" help:"NIP-01 filter; everything if absent." default:"{}"`
}

func (c *storeFingerprintCmd) Run(a *app) error {
	filter, err := rawFilter(c.Filter)
	if err != nil {
		return err
	}
	var fp daemon.Fingerprint
	if a.running() {
		err = a.call("store.fingerprint", map[string]json.RawMessage{"filter": filter}, &fp, nil)
	} else {
		var s *daemon.Offline
		if s, err = a.offline(); err != nil {
			return err
		}
		defer s.Close()
		fp, err = s.Fingerprint(a.ctx, filter)
	}
	if err != nil {
		return err
	}
	return a.print(fp, func(w io.Writer) { fmt.Fprintf(w, "%s  %d events\n", fp.Fingerprint, fp.Count) })
}

type storeStatsCmd struct{}

func (storeStatsCmd) Run(a *app) error {
	if a.running() {
		var st daemon.Status
		if err := a.call("node.status", nil, &st, nil); err != nil {
			return err
		}
		return printStats(a, st)
	}
	s, err := a.offline()
	if err != nil {
		return err
	}
	defer s.Close()
	stats, err := s.Store().Stats(a.ctx)
	if err != nil {
		return err
	}
	return printStats(a, daemon.Status{Store: stats})
}

func printStats(a *app, st daemon.Status) error {
	return a.print(st.Store, func(w io.Writer) {
		fmt.Fprintf(w, "%d events, %d tombstones, %d known and refused, last arrival %d\n", st.Store.Events, st.Store.Tombstones, st.Store.Refusals, st.Store.LastSeq)
		fmt.Fprintf(w, "%d octets on disk; %d logically freed, not yet returned; %d returned to the file system\n", st.Store.Bytes, st.Store.DeadBytes, st.Store.Returned)
	})
}

type storeCheckCmd struct{}

func (storeCheckCmd) Run(a *app) error { return a.checked(daemon.CheckStore) }

type storeRebuildCmd struct{}

func (storeRebuildCmd) Run(a *app) error { return a.checked(daemon.RebuildStore) }

// checked runs a check of a stopped node's store and prints what it found. What is damaged or does not fit makes the status.
func (a *app) checked(check func(context.Context, daemon.Dir) (daemon.Checked, error)) error {
	if a.running() {
		return &exit{spec.ExitRetry, "the node is running: stop it first (meshnode stop)"}
	}
	if !a.dir.Exists() {
		return &exit{spec.ExitUsage, fmt.Sprintf("there is no node in %s", a.dir)}
	}
	report, err := check(a.ctx, a.dir)
	if err != nil {
		return err
	}
	if err := a.print(report, func(w io.Writer) { fmt.Fprintln(w, report) }); err != nil {
		return err
	}
	if !report.Sound() {
		return &exit{code: spec.ExitFailure}
	}
	return nil
}

type storeCompactCmd struct{}

func (storeCompactCmd) Run(a *app) error {
	s, err := a.offline()
	if err != nil {
		return err
	}
	defer s.Close()
	if err := s.Compact(a.ctx); err != nil {
		return err
	}
	stats, err := s.Store().Stats(a.ctx)
	if err != nil {
		return err
	}
	return printStats(a, daemon.Status{Store: stats})
}

type storeRefusedCmd struct{}

func (storeRefusedCmd) Run(a *app) error {
	s, err := a.offline()
	if err != nil {
		return err
	}
	defer s.Close()
	for r, err := range s.Store().Refusals(a.ctx) {
		if err != nil {
			return err
		}
		if err := a.print(r, func(w io.Writer) { fmt.Fprintf(w, "%s  %s\n", r.ID, r.Reason) }); err != nil {
			return err
		}
	}
	return nil
}
