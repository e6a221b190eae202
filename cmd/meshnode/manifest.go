package main

import (
	"errors"

	"fleetmesh.org/fleetmesh/internal/daemon"
	"fleetmesh.org/fleetmesh/internal/manifest"
	"fleetmesh.org/fleetmesh/spec"
)

// wanted is the configuration of a new node, from manifests or from the flags.
func (c *initCmd) wanted(a *app) (*daemon.Config, error) {
	if len(c.Manifest) == 0 {
		cfg, err := c.config()
		if err != nil {
			return nil, &exit{spec.ExitUsage, err.Error()}
		}
		return cfg, nil
	}
	set, err := manifest.Load(c.Manifest, a.in)
	if err == nil {
		err = manifest.Failed(manifest.RunTests(set))
	}
	var bad manifest.Problems
	if errors.As(err, &bad) {
		return nil, &exit{spec.ExitInvalid, err.Error()}
	}
	if err != nil {
		return nil, err
	}
	return daemon.ConfigOf(set)
}
