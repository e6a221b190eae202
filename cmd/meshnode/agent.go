package main

import (
	"fmt"
	"io"

	"fleetmesh.org/fleetmesh/internal/daemon"
	"fleetmesh.org/fleetmesh/internal/identity"
	"fleetmesh.org/fleetmesh/spec"
)

type keyAgentCmd struct {
	Key    string `help:"File with the node key: nsec, hex or ncryptsec; - for stdin." required:"" placeholder:"FILE"`
	Socket string `help:"Socket to serve on, of mode 0600." required:"" placeholder:"PATH"`
}

func (c *keyAgentCmd) Help() string {
	return `The node directory then holds no secret that can sign. The key stays in this process, which does two things: it signs digests, and agrees with other keys.

Example:
  mv node/keys/node.key /secure/node.key
  meshnode key agent --key /secure/node.key --socket /run/user/1000/agent.sock &
  meshnode key attach --dir node /run/user/1000/agent.sock
  meshnode up --dir node

A node with an agent sends and reads no gift wraps and answers no AUTH of other relays, which need the key itself.`
}

func (c *keyAgentCmd) Run(a *app) error {
	k, err := readSecret(a, c.Key)
	if err != nil {
		return err
	}
	if err := a.print(map[string]string{"event": "ready", "did": identity.FormatDID(k.PubKey()), "socket": c.Socket}, func(w io.Writer) {
		fmt.Fprintf(w, "keeping the key of %s, serving on %s\n", identity.FormatDID(k.PubKey()), c.Socket)
	}); err != nil {
		return err
	}
	return daemon.ServeAgent(a.ctx, c.Socket, k)
}

type keyAttachCmd struct {
	Socket string `arg:"" help:"The agent's socket." type:"path"`
}

func (c *keyAttachCmd) Run(a *app) error {
	if a.running() {
		return &exit{spec.ExitUsage, "the node is running: stop it first"}
	}
	key, err := a.dir.Attach(c.Socket)
	if err != nil {
		return err
	}
	return a.print(map[string]string{"did": identity.FormatDID(key), "agent": c.Socket}, func(w io.Writer) {
		fmt.Fprintf(w, "%s signs through the agent at %s\n", identity.FormatDID(key), c.Socket)
	})
}
