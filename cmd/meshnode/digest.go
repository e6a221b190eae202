package main

import (
	"fmt"
	"io"
	"runtime"

	"fleetmesh.org/fleetmesh/spec"
)

type digestCmd struct {
	Protocols bool `help:"Also the digest of each protocol's block."`
}

func (c *digestCmd) Run(a *app) error {
	type result struct {
		Protocol  string            `json:"protocol"`
		Digest    string            `json:"digest"`
		Protocols map[string]string `json:"protocols,omitempty"`
	}
	r := result{Protocol: spec.C().Protocol.Name, Digest: spec.DigestHex()}
	if c.Protocols {
		r.Protocols = map[string]string{}
		for _, p := range spec.Messages().Protocols {
			if d, ok := spec.ProtocolDigest(p.PIURI); ok {
				r.Protocols[p.PIURI] = fmt.Sprintf("%x", d)
			}
		}
	}
	return a.print(r, func(w io.Writer) {
		fmt.Fprintln(w, r.Digest)
		for _, p := range spec.Messages().Protocols {
			if d, ok := r.Protocols[p.PIURI]; ok {
				fmt.Fprintf(w, "%s  %s\n", d, p.PIURI)
			}
		}
	})
}

type versionCmd struct{}

func (versionCmd) Run(a *app) error {
	return a.print(map[string]string{"version": version, "protocol": spec.C().Protocol.Name, "digest": spec.DigestHex(), "go": runtime.Version()}, func(w io.Writer) {
		fmt.Fprintf(w, "meshnode %s, %s, digest %s, %s %s/%s\n", version, spec.C().Protocol.Name, spec.DigestHex(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
	})
}
