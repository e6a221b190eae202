// Package doctor examines a node directory and the machine under it, whether the node runs or not, and changes nothing. What it finds is said in sentences that
// tell an operator what to do.
package doctor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"fleetmesh.org/fleetmesh/internal/control"
	"fleetmesh.org/fleetmesh/internal/daemon"
	"fleetmesh.org/fleetmesh/internal/monitor"
)

// Report is what a look found.
type Report struct {
	Level    monitor.Level     `json:"level"`
	Running  bool              `json:"running"`
	Checked  []string          `json:"checked"`  // what was looked at, in order
	Findings []monitor.Finding `json:"findings"` // the worst first; empty when all is well
}

// Machine is what of the machine is looked at. Tests put others in.
type Machine struct {
	Now         func() time.Time
	Disk        func(path string) monitor.Disk
	Disciplined func() *bool
	Files       func() int64 // the hard limit of open files; 0: unknown
	Memory      func() int64 // octets that the process may have; 0: unknown
	User        int          // effective user id; -1: unknown
}

// Here is the machine that this process runs on.
func Here() Machine {
	return Machine{Now: time.Now, Disk: monitor.DiskOf, Disciplined: monitor.Disciplined, Files: fileLimit, Memory: memoryLimit, User: os.Geteuid()}
}

// examiner collects findings.
type examiner struct {
	dir daemon.Dir
	m   Machine
	cfg *daemon.Config // nil: it cannot be read
	r   Report
}

// Examine looks at a node directory and at the machine. build is the version of this program.
func Examine(ctx context.Context, dir daemon.Dir, build string, m Machine) Report {
	e := &examiner{dir: dir, m: m, r: Report{Checked: []string{}, Findings: []monitor.Finding{}}}
	if !dir.Exists() {
		e.checked("directory")
		e.missing()
		return e.finish()
	}
	e.running(ctx, build)
	for _, c := range []struct {
		what string
		look func()
	}{
		{"version", e.version}, {"permissions", e.permissions}, {"config", e.config}, {"keys", e.keys}, {"journal", e.journal},
		{"disk", e.disk}, {"ports", e.ports}, {"proxy", e.proxy}, {"files", e.files}, {"memory", e.memory}, {"clock", e.clock},
	} {
		e.checked(c.what)
		c.look()
	}
	return e.finish()
}

func (e *examiner) checked(what string) { e.r.Checked = append(e.r.Checked, what) }

func (e *examiner) say(check string, l monitor.Level, format string, args ...any) {
	e.r.Findings = append(e.r.Findings, monitor.Finding{Check: check, Level: l, Text: fmt.Sprintf(format, args...)})
}

func (e *examiner) finish() Report {
	slices.SortStableFunc(e.r.Findings, func(a, b monitor.Finding) int { return int(b.Level) - int(a.Level) })
	if len(e.r.Findings) > 0 {
		e.r.Level = e.r.Findings[0].Level
	}
	return e.r
}

// missing says why there is no node to look at.
func (e *examiner) missing() {
	switch _, err := os.Stat(e.dir.Config()); {
	case errors.Is(err, fs.ErrPermission):
		e.say("directory", monitor.Critical, "%s may not be looked into by this user: run as the user that owns it, such as sudo -u meshnode", e.dir)
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		e.say("directory", monitor.Critical, "%s cannot be read (%v): name the node directory with --dir", e.dir.Config(), err)
	default:
		e.say("directory", monitor.Critical, "there is no node in %s: name its directory with --dir, or make one with meshnode init", e.dir)
	}
}

// running asks whether a node runs here, and of which build it is.
func (e *examiner) running(ctx context.Context, build string) {
	e.checked("socket")
	path := e.dir.Control()
	if len(path) > control.MaxPath {
		e.say("socket", monitor.Critical, "the path of the control socket, %s, has %d octets and a Unix socket takes %d: choose a shorter --dir", path, len(path), control.MaxPath)
		return
	}
	c, err := control.Dial(ctx, path)
	if errors.Is(err, control.ErrNoNode) {
		return
	}
	if err != nil {
		if errors.Is(err, fs.ErrPermission) {
			e.r.Running = true
			e.say("socket", monitor.Critical, "the control socket %s is another user's: run as the user that the node runs as", path)
			return
		}
		e.say("socket", monitor.Critical, "the control socket does not work: %v", err)
		return
	}
	defer c.Close()
	e.r.Running = true
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	var raw json.RawMessage
	if err := c.Call(ctx, monitor.MethodHealth, monitor.Params{}, &raw, nil); err != nil {
		e.say("socket", monitor.Critical, "the node runs and does not tell how it is (%v): look at its log, and restart it", err)
		return
	}
	f, err := monitor.ParseFacts(raw)
	if err != nil {
		e.say("socket", monitor.Critical, "the node's answer cannot be read: %v", err)
		return
	}
	if f.Build != build {
		e.say("version", monitor.Warning, "the node that runs is of build %s and this program of %s: restart it to finish an upgrade", f.Build, build)
	}
	for _, found := range monitor.Judge(&f, monitor.Defaults()).Findings {
		if found.Check != "disk" && found.Check != "clock" { // those are looked at below
			e.r.Findings = append(e.r.Findings, found)
		}
	}
}

func (e *examiner) version() {
	steps, err := e.dir.Migrations()
	if err != nil {
		e.say("version", monitor.Critical, "%v", err)
		return
	}
	for _, m := range steps {
		e.say("version", monitor.Warning, "the directory is of version %d and the next start will %s: meshnode migrate does it now", m.From, m.What)
	}
}

// permissions looks at what this user may do in the directory, and others in the keys.
func (e *examiner) permissions() {
	if e.m.User >= 0 {
		if owner, ok := ownerOf(string(e.dir)); ok && owner != e.m.User {
			if e.m.User == 0 {
				e.say("permissions", monitor.Warning, "%s belongs to user %d and this is root: a node that is started now makes files which that user cannot write; use sudo -u '#%d'", e.dir, owner, owner)
			} else if !writable(string(e.dir)) {
				e.say("permissions", monitor.Critical, "%s belongs to user %d, and this user, %d, may not write there: run as that user, or chown -R %d %s", e.dir, owner, e.m.User, e.m.User, e.dir)
			}
		}
	}
	for _, path := range e.parts() {
		if !writable(path) {
			e.say("permissions", monitor.Critical, "%s cannot be written: give it to the user that runs the node (chown -R), or mount it for writing", path)
		}
	}
	list, err := os.ReadDir(e.dir.Keys())
	if err != nil {
		e.say("permissions", monitor.Critical, "the keys cannot be listed (%v): restore %s from a backup with meshnode key restore", err, e.dir.Keys())
		return
	}
	for _, f := range list {
		secret := strings.HasSuffix(f.Name(), ".key") || strings.HasSuffix(f.Name(), ".former")
		if fi, err := f.Info(); err == nil && secret && fi.Mode().Perm()&0o077 != 0 {
			path := filepath.Join(e.dir.Keys(), f.Name())
			e.say("permissions", monitor.Critical, "%s has mode %04o, so others may read it: run chmod 600 %s", path, fi.Mode().Perm(), path)
		}
	}
}

// parts are the directories into which a node writes, those that are there.
func (e *examiner) parts() (out []string) {
	paths := []string{string(e.dir), filepath.Dir(e.dir.Journal())}
	if c, err := daemon.LoadConfig(e.dir.Config()); err == nil {
		paths = append(paths, e.dir.Store(c))
	}
	for _, p := range paths {
		if _, err := os.Stat(p); err == nil {
			out = append(out, p)
		}
	}
	return out
}

func (e *examiner) config() {
	c, err := daemon.LoadConfig(e.dir.Config())
	if err != nil {
		e.say("config", monitor.Critical, "%v", err)
	} else {
		e.cfg = c
	}
	if _, err := e.dir.Seeds(); err != nil {
		e.say("config", monitor.Critical, "%v", err)
	}
}

func (e *examiner) keys() {
	if err := e.dir.CheckKeys(); err != nil {
		e.say("keys", monitor.Critical, "%v", err)
	}
}

func (e *examiner) journal() {
	if err := e.dir.CheckJournal(); err != nil {
		e.say("journal", monitor.Critical, "%v", err)
	}
}

func (e *examiner) disk() {
	paths := []string{string(e.dir)}
	if e.cfg != nil {
		if store := e.dir.Store(e.cfg); filepath.Dir(store) != string(e.dir) {
			if _, err := os.Stat(store); err == nil {
				paths = append(paths, store)
			}
		}
	}
	for _, p := range paths {
		f := monitor.Facts{Disk: e.m.Disk(p), At: e.m.Now().Unix()}
		e.r.Findings = append(e.r.Findings, monitor.Judge(&f, monitor.Defaults()).Findings...)
	}
}

// ports looks whether the face can have its port, where no node has it.
func (e *examiner) ports() {
	if e.cfg == nil || e.r.Running {
		return
	}
	listen := e.cfg.Spec.Relay.Listen
	ln, err := net.Listen("tcp", listen)
	if err == nil {
		ln.Close()
		return
	}
	_, port, _ := net.SplitHostPort(listen)
	switch {
	case isInUse(err):
		e.say("ports", monitor.Critical, "another program has %s: stop it (ss -ltnp 'sport = :%s' names it), or choose another spec.relay.listen", listen, port)
	case errors.Is(err, fs.ErrPermission):
		e.say("ports", monitor.Critical, "this user may not listen on %s: choose a port from 1024 up for spec.relay.listen and put Caddy or nginx in front, or give the binary CAP_NET_BIND_SERVICE", listen)
	default:
		e.say("ports", monitor.Critical, "spec.relay.listen, %s, cannot be had: %v", listen, err)
	}
}

// proxy looks for a node behind a proxy that does not know it: all clients would count as one.
func (e *examiner) proxy() {
	if e.cfg == nil {
		return
	}
	r := &e.cfg.Spec.Relay
	host, _, _ := net.SplitHostPort(r.Listen)
	ip := net.ParseIP(host)
	loopback := host == "localhost" || ip != nil && ip.IsLoopback()
	public := slices.ContainsFunc(r.PublicURLs, func(u string) bool { return strings.HasPrefix(u, "wss://") })
	if loopback && public && len(r.TrustedProxies) == 0 {
		e.say("proxy", monitor.Warning, "the face listens on %s and is public, so a proxy stands in front, and every client looks like that proxy: set spec.relay.trustedProxies, such as [127.0.0.1/32]", r.Listen)
	}
	if !loopback && slices.Contains(r.TrustedProxies, "0.0.0.0/0") {
		e.say("proxy", monitor.Warning, "spec.relay.trustedProxies believes everybody, so any client can choose the address that it counts under: name the proxy alone")
	}
}

// filesForComfort is the limit of open files above which the face has its default number of connections.
const filesForComfort = 8192 + 128

func (e *examiner) files() {
	if n := e.m.Files(); n > 0 && n < filesForComfort {
		e.say("files", monitor.Warning, "this user may have %d open files, so the node takes %d clients at most: raise the limit to %d (ulimit -n, LimitNOFILE=) for its default of 8192", n, max(16, n-128), filesForComfort)
	}
}

// leastMemory is what a node needs.
const leastMemory = 128 << 20

func (e *examiner) memory() {
	if n := e.m.Memory(); n > 0 && n < leastMemory {
		e.say("memory", monitor.Warning, "%s of memory are allowed and a node wants %s: raise the limit (MemoryMax=, --memory), or lower spec.relay.limits.maxConnections", monitor.Size(n), monitor.Size(leastMemory))
	}
}

// firstBuild is before any build of this program: a clock that says less is wrong.
var firstBuild = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func (e *examiner) clock() {
	now := e.m.Now()
	if now.Before(firstBuild) {
		e.say("clock", monitor.Critical, "the clock says %s, which is before this program was made: set it (timedatectl set-ntp true) before the node signs anything", now.UTC().Format(time.DateTime))
		return
	}
	if ahead := e.dir.Ahead(e.cfg, now); ahead > 60 {
		e.say("clock", monitor.Critical, "the node wrote files %s in the future of the present clock, so the clock was wrong then or is now: set it (timedatectl set-ntp true); events from the future are refused", time.Duration(ahead)*time.Second)
	}
	if ok := e.m.Disciplined(); ok != nil && !*ok {
		e.say("clock", monitor.OK, "the kernel does not say that anything keeps the clock right; peers allow a minute: run an NTP client, unless the host of this container does")
	}
}
