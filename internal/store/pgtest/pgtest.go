// Package pgtest runs a real PostgreSQL for tests: a cluster of its own in a temporary directory, reached by a Unix socket there.
package pgtest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"
	"time"
)

// ErrAbsent says that there is no PostgreSQL server on this machine.
var ErrAbsent = errors.New("no PostgreSQL server here: apt-get install postgresql")

const (
	patience = 60 * time.Second
	role     = "fleet"
)

// Server is a running cluster.
type Server struct {
	dir, bin string
	attr     *syscall.SysProcAttr
}

// Start makes a cluster and starts it. Stop must be called.
func Start(ctx context.Context) (*Server, error) {
	found, err := filepath.Glob("/usr/lib/postgresql/*/bin")
	if err != nil || len(found) == 0 {
		return nil, errors.Join(ErrAbsent, err)
	}
	s := &Server{bin: found[len(found)-1]}
	if s.dir, err = os.MkdirTemp("", "fleetmesh-postgres-"); err != nil {
		return nil, err
	}
	if err = s.start(ctx); err != nil {
		s.Stop()
		return nil, fmt.Errorf("start PostgreSQL: %w", err)
	}
	return s, nil
}

func (s *Server) start(ctx context.Context) (err error) {
	if s.attr, err = unprivileged(s.dir); err != nil {
		return err
	}
	data := filepath.Join(s.dir, "data")
	if err := s.run(ctx, "initdb", "-D", data, "-U", role, "--auth=trust", "--no-sync", "-E", "UTF8", "--locale=C"); err != nil {
		return err
	}
	return s.run(ctx, "pg_ctl", "-D", data, "-w", "-t", strconv.Itoa(int(patience.Seconds())), "-l", filepath.Join(s.dir, "log"),
		"-o", "-k "+s.dir+" -c listen_addresses= -c fsync=off", "start")
}

// run runs one of PostgreSQL's own programs as somebody who may.
func (s *Server) run(ctx context.Context, name string, args ...string) error {
	cmd := exec.CommandContext(ctx, filepath.Join(s.bin, name), args...)
	cmd.SysProcAttr, cmd.Dir = s.attr, s.dir
	out, err := os.CreateTemp(s.dir, "out")
	if err != nil {
		return err
	}
	defer out.Close()
	cmd.Stdout, cmd.Stderr = out, out // a file, not a pipe: the server that pg_ctl leaves behind keeps it open
	if err := cmd.Run(); err != nil {
		text, _ := os.ReadFile(out.Name())
		return fmt.Errorf("%s: %w: %s", name, err, text)
	}
	return nil
}

// Database makes an empty database and returns its address.
func (s *Server) Database(ctx context.Context, name string) (string, error) {
	if err := s.run(ctx, "createdb", "-h", s.dir, "-U", role, name); err != nil {
		return "", err
	}
	return "host=" + s.dir + " user=" + role + " dbname=" + name, nil
}

// Stop ends the server and removes its directory.
func (s *Server) Stop() {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	_ = s.run(ctx, "pg_ctl", "-D", filepath.Join(s.dir, "data"), "-m", "immediate", "stop") // it may not have come up
	_ = os.RemoveAll(s.dir)
}

// unprivileged makes the server's processes somebody else's where we are root, as it demands.
func unprivileged(dir string) (*syscall.SysProcAttr, error) {
	if os.Getuid() != 0 {
		return nil, nil
	}
	u, err := user.Lookup("postgres")
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrAbsent, err)
	}
	uid, err := strconv.Atoi(u.Uid)
	if err != nil {
		return nil, err
	}
	gid, err := strconv.Atoi(u.Gid)
	if err != nil {
		return nil, err
	}
	if err := os.Chown(dir, uid, gid); err != nil {
		return nil, err
	}
	return &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}}, nil
}
