//go:build !amd64 || purego

package schnorr

import "testing"

func eachPath(t *testing.T, f func(t *testing.T)) { t.Run("portable", f) }

func eachPathBench(b *testing.B, f func(b *testing.B)) { b.Run("portable", f) }

func paths(f func(name string, on func(func()))) { f("portable", func(f func()) { f() }) }
