// Package manifest is what an operator wants of a node, as files: it reads manifests (§ Operator surface), says with file,
// line and column what is wrong with them, runs the tests that stand in them, compares them with what a node runs, plans the
// way from the one to the other, and writes them out for the systems that start nodes.
//
// Everything here but the reading of files is a pure function of its arguments. The node itself carries a plan out: see the methods
// manifest.get, manifest.plan and manifest.apply of the control socket.
package manifest
