package main

import (
	"fmt"
	"io"

	"fleetmesh.org/fleetmesh/internal/manifest"
)

type validateCmd struct {
	Files []string `arg:"" help:"Manifest files, folders of them, or - for stdin." placeholder:"FILE"`
}

func (validateCmd) Help() string {
	return `Reads every document strictly: an unknown key, a limit above its tier's ceiling, a filter that is none: each is a line with file, line and column. The tests that stand in the manifests run too.

Examples:
  meshctl validate node.yaml
  meshctl validate --json manifests/
  cat *.yaml | meshctl validate -`
}

// validated is the outcome of validate.
type validated struct {
	Valid   bool                  `json:"valid"`
	Hash    string                `json:"hash"`
	Objects []string              `json:"objects"`
	Tests   []manifest.TestResult `json:"tests"`
}

func (c *validateCmd) Run(a *app) error {
	set, err := manifest.Load(c.Files, a.in)
	if err != nil {
		return err
	}
	v := validated{Valid: true, Hash: set.Hash(), Tests: manifest.RunTests(set)}
	if err := manifest.Failed(v.Tests); err != nil {
		return err
	}
	for _, o := range set.Sorted() {
		v.Objects = append(v.Objects, o.Ref())
	}
	return a.print(v, func(w io.Writer) {
		for _, ref := range v.Objects {
			fmt.Fprintln(w, "ok ", ref)
		}
		fmt.Fprintf(w, "%d tests passed; the hash of the set is %s\n", len(v.Tests), v.Hash)
	})
}
