// Command meshctl manages nodes by manifests: it checks files, shows what they would change on a running node, applies them, and writes
// them out for the systems that start nodes.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/alecthomas/kong"

	"fleetmesh.org/fleetmesh/internal/command"
	"fleetmesh.org/fleetmesh/internal/control"
	"fleetmesh.org/fleetmesh/internal/manifest"
	"fleetmesh.org/fleetmesh/spec"
)

// version is set by the build (-ldflags -X main.version=…).
var version = "0.1-draft"

type cli struct {
	JSON bool `help:"Print JSON, one object." name:"json"`

	Validate validateCmd `cmd:"" help:"Check files: form, schema, constants, and the tests that stand in them. Needs no node."`
	Plan     planCmd     `cmd:"" help:"What apply would do to a running node, key by key. Changes nothing."`
	Diff     diffCmd     `cmd:"" help:"The lines in which a running node differs from the files."`
	Apply    applyCmd    `cmd:"" help:"Make a running node what the files say: all of it, or nothing."`
	Get      getCmd      `cmd:"" help:"What a running node has applied, with its hash and its drift."`
	Export   exportCmd   `cmd:"" help:"Write files for Kubernetes, Podman, systemd, Compose or a Raspberry Pi's first boot."`
	Keys     keysCmd     `cmd:"" help:"For each key of a manifest: applied live, needs restart, or refused."`
	Schema   schemaCmd   `cmd:"" help:"The JSON Schema of a manifest kind, for an editor."`
	Version  versionCmd  `cmd:"" help:"The version of this build."`

	Completion completionCmd `cmd:"" help:"Completion of these verbs for a shell: bash, zsh or fish."`
	Man        manCmd        `cmd:"" help:"The manual page."`
}

const intro = `Manage fleetmesh nodes by manifests.

A manifest says what you want of a node. Start with the files, then ask what they would change, then apply:

  meshctl validate node.yaml peers/
  meshctl plan  -f node.yaml -f peers/ --socket node/control.sock
  meshctl apply -f node.yaml -f peers/ --socket node/control.sock

Exit status: 0 done; 1 failed; 2 wrong command line; 3 refused; 6 wrong manifest; 7 the node takes no manifests; 8 no node.`

// app is what every verb gets.
type app struct {
	ctx  context.Context
	json bool
	in   io.Reader
	out  io.Writer
	err  io.Writer

	model *kong.Application // the grammar
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// run is the whole command; it returns the exit status.
func run(ctx context.Context, args []string, in io.Reader, out, errOut io.Writer) (code int) {
	var c cli
	ended := -1
	parser := kong.Must(&c, kong.Name("meshctl"), kong.Description(intro), kong.Writers(out, errOut),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true, FlagsLast: true, WrapUpperBound: 110}),
		kong.Exit(func(code int) {
			ended = code
			panic(exitNow{}) // unwinds the parser, which goes on after --help otherwise
		}))
	defer func() {
		if p := recover(); p != nil {
			if _, ok := p.(exitNow); !ok {
				panic(p)
			}
			if code = spec.ExitOK; ended != 0 {
				code = spec.ExitUsage
			}
		}
	}()
	_ = command.AddExamples(parser.Model, examples) // a test says which verb is gone; the others still have theirs
	k, err := parser.Parse(args)
	if err != nil {
		fmt.Fprintf(errOut, "meshctl: %v\nmeshctl --help tells more.\n", err)
		return spec.ExitUsage
	}
	a := &app{ctx: ctx, json: c.JSON, in: in, out: out, err: errOut, model: parser.Model}
	return a.status(k.Run(a))
}

type exitNow struct{}

// exit is an error that chose its status. An empty message prints nothing more.
type exit struct {
	code int
	msg  string
}

func (e *exit) Error() string { return e.msg }

// ExitCode is the status that the error chose.
func (e *exit) ExitCode() int { return e.code }

// status prints what went wrong and maps it to an exit code.
func (a *app) status(err error) int {
	var problems manifest.Problems
	if errors.As(err, &problems) {
		if a.json {
			if err := a.print(map[string]any{"valid": false, "problems": problems}, nil); err != nil {
				return spec.ExitFailure
			}
			return spec.ExitInvalid
		}
		fmt.Fprintln(a.err, problems)
		return spec.ExitInvalid
	}
	return command.Status(a.err, "meshctl", err,
		command.Hint{Is: control.ErrNoNode, Code: spec.ExitUnreachable, Advice: "start the node, or name its control socket with --socket"},
		command.Hint{Is: manifest.ErrOldNode, Code: spec.ExitUnsupported})
}

// print writes v as JSON, or calls plain.
func (a *app) print(v any, plain func(w io.Writer)) error {
	return command.Print(a.out, a.json, v, plain)
}

// files are the flags that name manifests.
type files struct {
	Files []string `help:"A manifest file, a folder of them, or - for stdin; may be repeated." name:"file" short:"f" required:"" placeholder:"FILE"`
}

func (f *files) load(a *app) (manifest.Set, error) { return manifest.Load(f.Files, a.in) }

// socket is the flag that names a node.
type socket struct {
	Socket string `help:"The node's control socket: control.sock in its directory." default:"node/control.sock" env:"MESHNODE_SOCKET" placeholder:"PATH"`
}

// ask runs one method of the running node, waiting up to patience for it to appear.
func (s *socket) ask(a *app, patience time.Duration, method string, params, result any) error {
	ctx, cancel := context.WithTimeout(a.ctx, patience)
	defer cancel()
	for {
		c, err := control.Dial(a.ctx, s.Socket)
		if err == nil {
			defer c.Close()
			return manifest.Ask(a.ctx, c, method, params, result)
		}
		if !errors.Is(err, control.ErrNoNode) {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(200 * time.Millisecond):
		}
	}
}

type versionCmd struct{}

func (versionCmd) Run(a *app) error {
	return a.print(map[string]string{"version": version, "manifests": spec.ManifestAPIVersion}, func(w io.Writer) {
		fmt.Fprintf(w, "meshctl %s, manifests %s\n", version, spec.ManifestAPIVersion)
	})
}
