//go:build !amd64 || purego

package schnorr

import "fmt"

// Paths lists the paths that this processor has, the fastest first.
func Paths() []string { return []string{"portable"} }

// Use has everything run on a path, one of Paths.
func Use(path string) error {
	if path != "portable" {
		return fmt.Errorf("path %q: this build has portable", path)
	}
	return nil
}
