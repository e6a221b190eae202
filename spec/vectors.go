package spec

import "embed"

// Vectors holds spec/vectors: one case a file, one folder a layer. The form is
// told in vectors/README.md (§ Conformance, suite 1).
//
//go:embed vectors
var Vectors embed.FS
