// Command meshnode is a fleetmesh node: a Nostr relay that can federate with others, and the verbs to live with it.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/alecthomas/kong"

	"fleetmesh.org/fleetmesh/internal/command"
	"fleetmesh.org/fleetmesh/internal/control"
	"fleetmesh.org/fleetmesh/internal/daemon"
	"fleetmesh.org/fleetmesh/spec"
)

// version is set by the build (-ldflags -X main.version=…).
var version = "0.1-draft"

type cli struct {
	Dir  string `help:"The node directory." default:"node" env:"MESHNODE_DIR" type:"path"`
	JSON bool   `help:"Print JSON, one object a line." name:"json"`

	Up       upCmd       `cmd:"" help:"Run the node here; make it first, with defaults, if there is none." group:"node"`
	Init     initCmd     `cmd:"" help:"Make a node directory without starting it." group:"node"`
	Status   statusCmd   `cmd:"" help:"What the running node is and does." group:"node"`
	Watch    watchCmd    `cmd:"" help:"Audit the running node for a monitoring system: OK, WARNING or CRITICAL." group:"node"`
	Doctor   machineCmd  `cmd:"" help:"Examine the node directory and the machine, running or not; each finding says what to do." group:"node"`
	Migrate  migrateCmd  `cmd:"" help:"Bring a stopped node's directory to this build's version, in place." group:"node"`
	Stop     stopCmd     `cmd:"" help:"Stop the running node; it says goodbye to its peers first." group:"node"`
	Digest   digestCmd   `cmd:"" help:"The digest of the protocol's schema that this build speaks: 64 hex digits." group:"node"`
	UI       uiCmd       `cmd:"" name:"ui" help:"The operator's page: sign in to it, see who is, sign everybody out." group:"node"`
	Selftest selftestCmd `cmd:"" help:"Probe every NIP that a relay advertises, over its socket." group:"node"`
	Bench    benchCmd    `cmd:"" help:"Measure this machine: bench verify." group:"node"`
	Version  versionCmd  `cmd:"" help:"The version of this build." group:"node"`

	Completion completionCmd `cmd:"" help:"Completion of these verbs for a shell: bash, zsh or fish." group:"node"`
	Man        manCmd        `cmd:"" help:"The manual page." group:"node"`

	Import  importCmd  `cmd:"" help:"Take events from a JSONL file or stdin (as strfry export writes them)." group:"events"`
	Export  exportCmd  `cmd:"" help:"Write events as JSONL, oldest arrival first." group:"events"`
	Sync    syncCmd    `cmd:"" help:"Reconcile with another relay (NIP-77): pull, push or both." group:"events"`
	Bridge  bridgeCmd  `cmd:"" help:"Connect with ordinary relays by streams, as strfry's router does." group:"events"`
	Gateway gatewayCmd `cmd:"" help:"Stand between an estate of your own relays and the mesh, as a process of its own." group:"federation"`
	Event   eventCmd   `cmd:"" help:"Make, sign and publish one event." group:"events"`
	Req     reqCmd     `cmd:"" help:"Query a relay, or follow it live." group:"events"`
	Count   countCmd   `cmd:"" help:"Count events at a relay (NIP-45)." group:"events"`

	Blobs blobsCmd `cmd:"" help:"The blob face: what it holds, where a blob is, what was erased." group:"store"`
	Store storeCmd `cmd:"" help:"Look after the store of a stopped node." group:"store"`
	Key   keyCmd   `cmd:"" help:"The node's keys." group:"identity"`
	DID   didCmd   `cmd:"" name:"did" help:"The node's DID document, or another's." group:"identity"`

	ID       idCmd       `cmd:"" name:"id" help:"Who this node is: DID, keys, operator, endpoints, descriptor." group:"identity"`
	Invite   inviteCmd   `cmd:"" help:"Invite other nodes, by link and QR code." group:"identity"`
	Coverage coverageCmd `cmd:"" help:"What this node claims to hold, and a sample of what peers do." group:"identity"`
	Revoke   revokeCmd   `cmd:"" help:"Retire this node's key for good." group:"identity"`
	Known    knownCmd    `cmd:"" help:"The nodes that this one has heard of, and from where." group:"identity"`

	Peer     peerCmd     `cmd:"" aliases:"peers" help:"Federate with other nodes." group:"federation"`
	Left     leftCmd     `cmd:"" help:"To whom an event went, by which road and under which grant." group:"federation"`
	Report   reportCmd   `cmd:"" aliases:"reports" help:"Complaints and reports: list, verify from a file, withdraw." group:"federation"`
	Grant    grantCmd    `cmd:"" aliases:"grants" help:"The grants in force." group:"federation"`
	Capacity capacityCmd `cmd:"" help:"What all peers together use of what you declared, and what is shed." group:"federation"`
	Strain   strainCmd   `cmd:"" help:"What this node survived, and whom it depends on." group:"federation"`

	Receipts receiptsCmd `cmd:"" help:"The receipts of a peering, window by window; --verify does their chains again." group:"federation"`

	Why     whyCmd     `cmd:"" help:"Why an event is here or is not, why a peer gets what it gets, what happened in a window." group:"federation"`
	Cluster clusterCmd `cmd:"" help:"Several real nodes on this machine: peered, fed, broken and audited." group:"federation"`
	Sim     simCmd     `cmd:"" help:"Simulate a fleet: faulty network, crashes, adversaries and what they pay." group:"federation"`
	Ping    pingCmd    `cmd:"" help:"Ask another node whether it is there, by DIDComm trust-ping." group:"federation"`
	Net     netCmd     `cmd:"" help:"Look after the ways between nodes." group:"federation"`
}

// app is what every verb gets.
type app struct {
	ctx  context.Context
	dir  daemon.Dir
	json bool
	in   io.Reader
	out  io.Writer
	err  io.Writer

	model *kong.Application // the grammar
}

// exit is an error that chose its status. An empty message prints nothing more.
type exit struct {
	code int
	msg  string
}

func (e *exit) Error() string { return e.msg }

// ExitCode is the status that the error chose.
func (e *exit) ExitCode() int { return e.code }

// grammar makes the parser of the command line.
func grammar(c *cli, options ...kong.Option) *kong.Kong {
	parser := kong.Must(c, append([]kong.Option{
		kong.Name("meshnode"),
		kong.Description(intro),
		kong.UsageOnError(),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true, FlagsLast: true, WrapUpperBound: 110}),
		kong.ExplicitGroups([]kong.Group{
			{Key: "node", Title: "The node"}, {Key: "events", Title: "Events"}, {Key: "store", Title: "The store"},
			{Key: "identity", Title: "Identity"}, {Key: "federation", Title: "Federation"},
		}),
	}, options...)...)
	_ = command.AddExamples(parser.Model, examples) // a test says which verb is gone; the others still have theirs
	return parser
}

const intro = `A Nostr relay that can federate with others and hold them to account.

Start with: meshnode up

Every verb explains itself with examples: meshnode VERB --help. With --json a verb prints JSON, one object a line; one that lists prints a line for each.

Exit status: 0 done; 1 failed; 2 wrong command line; 3 refused; 4 refused for now; 5 something must be supplied; 6 what was sent is wrong; 7 not done there; 8 nobody answered. The
verbs for monitoring systems say so in their own help.`

func main() {
	var c cli
	parser := grammar(&c, kong.Exit(func(code int) {
		if code != 0 {
			code = spec.ExitUsage
		}
		os.Exit(code)
	}))
	args := os.Args[1:]
	if len(args) > 0 && args[0] == "help" {
		args = append(args[1:len(args):len(args)], "--help")
	}
	k, err := parser.Parse(args)
	if err != nil {
		parser.Stdout = parser.Stderr // the usage is no result
	}
	parser.FatalIfErrorf(err)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	a := &app{ctx: ctx, dir: daemon.Dir(c.Dir), json: c.JSON, in: os.Stdin, out: os.Stdout, err: os.Stderr, model: parser.Model}
	code := a.status(k.Run(a))
	stop()
	os.Exit(code)
}

// status prints what went wrong and maps it to an exit code.
func (a *app) status(err error) int {
	return command.Status(a.err, "meshnode", err,
		command.Hint{Is: control.ErrNoNode, Code: spec.ExitUnreachable, Advice: fmt.Sprintf("start it with `meshnode up --dir %s`", a.dir)})
}

// print writes v as one JSON line, or calls plain.
func (a *app) print(v any, plain func(w io.Writer)) error {
	return command.Print(a.out, a.json, v, plain)
}

// line writes v as one line of JSON.
func (a *app) line(v any) error { return command.Print(a.out, true, v, nil) }

// call runs one method of the running node.
func (a *app) call(method string, params, result any, onStep func(json.RawMessage)) error {
	c, err := control.Dial(a.ctx, a.dir.Control())
	if err != nil {
		return err
	}
	defer c.Close()
	return c.Call(a.ctx, method, params, result, onStep)
}

// stopped opens the store of a stopped node, which has to be there.
func (a *app) stopped(work func(*daemon.Offline) error) error {
	s, err := a.offline()
	if err != nil {
		return err
	}
	return errors.Join(work(s), s.Close())
}

// running says whether a node answers on the directory's control socket.
func (a *app) running() bool {
	c, err := control.Dial(a.ctx, a.dir.Control())
	if err != nil {
		return false
	}
	c.Close()
	return true
}
