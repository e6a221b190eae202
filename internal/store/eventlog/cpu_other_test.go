//go:build !unix

package eventlog

import "time"

func cpu() time.Duration { return 0 }
