package main

import (
	"errors"
	"fmt"
	"io"
	"time"

	"fleetmesh.org/fleetmesh/internal/cluster"
	"fleetmesh.org/fleetmesh/internal/control"
	"fleetmesh.org/fleetmesh/spec"
)

// cluster runs one method of the running cluster.
func (a *app) cluster(method string, p cluster.FaultParams) error {
	dir, _ := a.clusterDir()
	s, err := cluster.Call(a.ctx, dir, method, p)
	if errors.Is(err, control.ErrNoNode) {
		return &exit{spec.ExitUnreachable, fmt.Sprintf("no cluster runs in %s: start one with `meshnode cluster start`, or name its directory with --dir", dir)}
	}
	if err != nil {
		return err
	}
	return a.print(s, func(w io.Writer) { fmt.Fprintln(w, statusLine(s)) })
}

type clusterStatusCmd struct{}

func (clusterStatusCmd) Run(a *app) error { return a.cluster("cluster.status", cluster.FaultParams{}) }

type clusterStopCmd struct{}

func (clusterStopCmd) Run(a *app) error { return a.cluster("cluster.stop", cluster.FaultParams{}) }

type clusterKillCmd struct {
	Node int           `arg:"" help:"The node's number."`
	For  time.Duration `help:"Start it again after so long; without, it stays down until it is healed." placeholder:"DURATION"`
}

func (c *clusterKillCmd) Help() string {
	return `Examples:
  meshnode cluster kill 2 --for 10s
  meshnode cluster kill 2; meshnode cluster heal 2`
}

func (c *clusterKillCmd) Run(a *app) error {
	return a.cluster("cluster.kill", cluster.FaultParams{Node: c.Node, Seconds: c.For.Seconds()})
}

type clusterCutCmd struct {
	Node  int  `arg:"" help:"The node's number."`
	Other *int `arg:"" optional:"" help:"Only the link to this one."`
}

func (c *clusterCutCmd) Help() string {
	return `What is under way is lost and nothing new gets through, until the link is healed.

Examples:
  meshnode cluster cut 2        # every link of node 2
  meshnode cluster cut 2 3      # the one between 2 and 3`
}

func (c *clusterCutCmd) Run(a *app) error {
	return a.cluster("cluster.cut", cluster.FaultParams{Node: c.Node, Other: c.Other})
}

type clusterSlowCmd struct {
	Node  int           `arg:"" help:"The node's number."`
	Other *int          `arg:"" optional:"" help:"Only the link to this one."`
	By    time.Duration `help:"How much later everything comes, each way; 0s ends it." default:"300ms"`
}

func (c *clusterSlowCmd) Help() string {
	return `Examples:
  meshnode cluster slow 2 --by 1s
  meshnode cluster slow 2 3 --by 0s`
}

func (c *clusterSlowCmd) Run(a *app) error {
	return a.cluster("cluster.slow", cluster.FaultParams{Node: c.Node, Other: c.Other, Seconds: c.By.Seconds()})
}

type clusterSkewCmd struct {
	Node int           `arg:"" help:"The node's number."`
	By   time.Duration `help:"How far ahead its clock is; below zero, behind; 0s is right again." required:"" placeholder:"DURATION"`
}

func (c *clusterSkewCmd) Help() string {
	return `Examples:
  meshnode cluster skew 1 --by 50s
  meshnode cluster skew 1 --by 0s`
}

func (c *clusterSkewCmd) Run(a *app) error {
	return a.cluster("cluster.skew", cluster.FaultParams{Node: c.Node, Seconds: c.By.Seconds()})
}

type clusterHealCmd struct {
	Node  int  `arg:"" help:"The node's number."`
	Other *int `arg:"" optional:"" help:"Only the link to this one."`
}

func (c *clusterHealCmd) Run(a *app) error {
	return a.cluster("cluster.heal", cluster.FaultParams{Node: c.Node, Other: c.Other})
}
