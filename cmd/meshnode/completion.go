package main

import (
	"fmt"

	"fleetmesh.org/fleetmesh/internal/command"
)

type completionCmd struct {
	Shell string `arg:"" help:"The shell." enum:"bash,zsh,fish"`
}

func (completionCmd) Help() string {
	return `Examples:
  source <(meshnode completion bash)
  meshnode completion zsh > _meshnode
  meshnode completion fish > ~/.config/fish/completions/meshnode.fish`
}

func (c *completionCmd) Run(a *app) error {
	text, err := command.Completion(a.model, c.Shell)
	if err != nil {
		return err
	}
	_, err = fmt.Fprint(a.out, text)
	return err
}

type manCmd struct{}

func (manCmd) Help() string {
	return `Examples:
  meshnode man > meshnode.1
  meshnode man | man -l -`
}

func (manCmd) Run(a *app) error {
	_, err := fmt.Fprint(a.out, command.Manual(a.model, version))
	return err
}
