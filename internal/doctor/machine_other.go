//go:build !linux

package doctor

import "strings"

// What this system is not asked.
func fileLimit() int64           { return 0 }
func memoryLimit() int64         { return 0 }
func ownerOf(string) (int, bool) { return 0, false }
func writable(string) bool       { return true }
func isInUse(err error) bool     { return strings.Contains(err.Error(), "in use") }
