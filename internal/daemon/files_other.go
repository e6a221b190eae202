//go:build !unix

package daemon

func raiseFileLimit() int { return 0 }
