package doctor

import (
	"context"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"fleetmesh.org/fleetmesh/internal/daemon"
	"fleetmesh.org/fleetmesh/internal/monitor"
)

// comfort is a machine with which nothing is wrong.
func comfort() Machine {
	yes := true
	return Machine{
		Now:         time.Now,
		Disk:        func(path string) monitor.Disk { return monitor.Disk{Path: path, Free: 50 << 30, Total: 100 << 30} },
		Disciplined: func() *bool { return &yes }, Files: func() int64 { return 65536 }, Memory: func() int64 { return 1 << 30 }, User: os.Geteuid(),
	}
}

func newDir(t *testing.T) daemon.Dir {
	t.Helper()
	top, err := os.MkdirTemp("", "doc")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(top) })
	d := daemon.Dir(filepath.Join(top, "n"))
	if err := d.Init(daemon.DefaultConfig("127.0.0.1:0")); err != nil {
		t.Fatal(err)
	}
	return d
}

// edit changes node.yaml.
func edit(t *testing.T, d daemon.Dir, f func(*daemon.Spec)) {
	t.Helper()
	c, err := daemon.LoadConfig(d.Config())
	if err != nil {
		t.Fatal(err)
	}
	f(&c.Spec)
	write(t, d.Config(), string(c.YAML()))
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestEachFindingSaysWhatToDo(t *testing.T) {
	busy, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer busy.Close()
	for _, c := range []struct {
		name  string
		spoil func(daemon.Dir, *Machine)
		level monitor.Level
		check string
		text  string
	}{
		{"well", func(daemon.Dir, *Machine) {}, monitor.OK, "", ""},
		{"no node", func(d daemon.Dir, _ *Machine) { os.RemoveAll(string(d)) }, monitor.Critical, "directory", "meshnode init"},
		{"an older directory", func(d daemon.Dir, _ *Machine) { os.Remove(filepath.Join(string(d), "format")) }, monitor.Warning, "version", "meshnode migrate"},
		{"a newer directory", func(d daemon.Dir, _ *Machine) { write(t, filepath.Join(string(d), "format"), "77\n") }, monitor.Critical, "version", "run the newer meshnode"},
		{"a key that others read", func(d daemon.Dir, _ *Machine) { os.Chmod(filepath.Join(d.Keys(), "node.key"), 0o644) }, monitor.Critical, "permissions", "chmod 600"},
		{"a key that is gone", func(d daemon.Dir, _ *Machine) { os.Remove(filepath.Join(d.Keys(), "agreement.key")) }, monitor.Critical, "keys", "key restore"},
		{"a key that is no key", func(d daemon.Dir, _ *Machine) { write(t, filepath.Join(d.Keys(), "node.key"), "zz\n") }, monitor.Critical, "keys", "64 hex digits"},
		{"an empty node.yaml", func(d daemon.Dir, _ *Machine) { write(t, d.Config(), "") }, monitor.Critical, "config", "it is empty"},
		{"bootstrap.toml", func(d daemon.Dir, _ *Machine) { write(t, d.Bootstrap(), "relay = x\n") }, monitor.Critical, "config", "bootstrap.toml"},
		{"a damaged journal", func(d daemon.Dir, _ *Machine) { write(t, d.Journal(), "garbage\nmore\n") }, monitor.Critical, "journal", "restore the file from a backup"},
		{"a torn journal", func(d daemon.Dir, _ *Machine) { write(t, d.Journal(), "garb") }, monitor.OK, "", ""},
		{"disk full", func(_ daemon.Dir, m *Machine) {
			m.Disk = func(p string) monitor.Disk { return monitor.Disk{Path: p, Total: 1 << 30} }
		}, monitor.Critical, "disk", "make room"},
		{"disk read-only", func(_ daemon.Dir, m *Machine) {
			m.Disk = func(p string) monitor.Disk { return monitor.Disk{Path: p, ReadOnly: true} }
		}, monitor.Critical, "disk", "mount it for writing"},
		{"a port that is taken", func(d daemon.Dir, _ *Machine) {
			edit(t, d, func(s *daemon.Spec) { s.Relay.Listen = busy.Addr().String() })
		}, monitor.Critical, "ports", "another program has"},
		{"behind a proxy that it does not know", func(d daemon.Dir, _ *Machine) {
			edit(t, d, func(s *daemon.Spec) { s.Relay.PublicURLs = []string{"wss://relay.example.org"} })
		}, monitor.Warning, "proxy", "trustedProxies"},
		{"a proxy that is everybody", func(d daemon.Dir, _ *Machine) {
			edit(t, d, func(s *daemon.Spec) { s.Relay.Listen, s.Relay.TrustedProxies = "0.0.0.0:0", []string{"0.0.0.0/0"} })
		}, monitor.Warning, "proxy", "name the proxy alone"},
		{"few files", func(_ daemon.Dir, m *Machine) { m.Files = func() int64 { return 256 } }, monitor.Warning, "files", "128 clients"},
		{"little memory", func(_ daemon.Dir, m *Machine) { m.Memory = func() int64 { return 64 << 20 } }, monitor.Warning, "memory", "128.0 MiB"},
		{"a clock of 1970", func(_ daemon.Dir, m *Machine) { m.Now = func() time.Time { return time.Unix(1000, 0) } }, monitor.Critical, "clock", "timedatectl"},
		{"a clock that went back", func(d daemon.Dir, _ *Machine) {
			write(t, d.Journal(), "")
			later := time.Now().Add(time.Hour)
			os.Chtimes(d.Journal(), later, later)
		}, monitor.Critical, "clock", "events from the future"},
		{"a long path", func(d daemon.Dir, _ *Machine) {}, monitor.OK, "", ""},
	} {
		d, m := newDir(t), comfort()
		c.spoil(d, &m)
		r := Examine(t.Context(), d, "test", m)
		if r.Level != c.level || c.check != "" && (r.Findings[0].Check != c.check || !strings.Contains(r.Findings[0].Text, c.text)) {
			t.Errorf("%s: %s %+v, want %s of %s with %q", c.name, r.Level, r.Findings, c.level, c.check, c.text)
		}
	}
}

func TestALongPathHasNoRoomForTheSocket(t *testing.T) {
	d := daemon.Dir(filepath.Join(t.TempDir(), strings.Repeat("x", 120)))
	if err := d.Init(daemon.DefaultConfig("127.0.0.1:0")); err != nil {
		t.Fatal(err)
	}
	if r := Examine(t.Context(), d, "test", comfort()); r.Level != monitor.Critical || r.Findings[0].Check != "socket" || !strings.Contains(r.Findings[0].Text, "shorter --dir") {
		t.Errorf("%+v", r)
	}
}

func TestLookingChangesNothing(t *testing.T) {
	d := newDir(t)
	write(t, d.Journal(), "torn")
	if err := os.Remove(filepath.Join(string(d), "format")); err != nil {
		t.Fatal(err)
	}
	before := listing(t, d)
	Examine(context.Background(), d, "test", Here())
	if after := listing(t, d); after != before {
		t.Errorf("before:\n%s\nafter:\n%s", before, after)
	}
}

func listing(t *testing.T, d daemon.Dir) string {
	t.Helper()
	var b strings.Builder
	err := filepath.WalkDir(string(d), func(path string, e os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		fi, err := e.Info()
		if err == nil {
			b.WriteString(path + " " + fi.Mode().String() + " " + fi.ModTime().String() + "\n")
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestARunningNodeTellsOfItself(t *testing.T) {
	d := newDir(t)
	edit(t, d, func(s *daemon.Spec) { s.Federation.DescriptorPoW = 1 })
	ctx, cancel := context.WithCancel(context.Background())
	ready, done := make(chan struct{}), make(chan error, 1)
	go func() {
		done <- daemon.Run(ctx, daemon.Options{Dir: d, Build: "old", Log: quiet(), Bootstrap: []daemon.Seed{}, Ready: func(daemon.Ready) { close(ready) }})
	}()
	defer func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}()
	select {
	case <-ready:
	case err := <-done:
		done <- err
		t.Fatal(err)
	}
	r := Examine(t.Context(), d, "new", comfort())
	if !r.Running || r.Level != monitor.Warning || r.Findings[0].Check != "version" || !strings.Contains(r.Findings[0].Text, "restart it to finish an upgrade") {
		t.Errorf("%+v", r)
	}
}

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }
