//go:build !lmdb || !cgo

package lmdb

import (
	"errors"
	"strings"
	"testing"
)

// TestAbsent has a build without the engine say how to get one with it.
func TestAbsent(t *testing.T) {
	_, err := Open(t.Context(), t.TempDir(), Options{})
	if !errors.Is(err, ErrAbsent) || !strings.Contains(err.Error(), "-tags lmdb") {
		t.Fatal(err)
	}
}
