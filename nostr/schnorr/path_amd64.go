//go:build amd64 && !purego

package schnorr

import (
	"fmt"
	"slices"
	"strings"
)

// The paths that this processor has, the fastest first.
var possible = func() (paths []string) {
	if haveIFMA {
		paths = append(paths, "ifma")
	}
	if haveADX {
		paths = append(paths, "adx")
	}
	return append(paths, "portable")
}()

// Paths lists the paths that this processor has, the fastest first.
func Paths() []string { return slices.Clone(possible) }

// Use has everything run on a path, one of Paths. It is for measuring and testing:
// nothing may verify at the same time.
func Use(path string) error {
	if !slices.Contains(possible, path) {
		return fmt.Errorf("path %q: this processor has %s", path, strings.Join(possible, ", "))
	}
	haveIFMA, haveADX = path == "ifma", path != "portable"
	return nil
}
