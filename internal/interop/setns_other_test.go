//go:build !linux

package interop

import "errors"

func setns(uintptr) error { return errors.New("namespaces are Linux's") }
