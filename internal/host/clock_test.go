package host

import (
	"testing"
	"time"
)

func TestClockOffset(t *testing.T) {
	t.Cleanup(func() { SetClockOffset(0) })
	for _, d := range []time.Duration{0, 50 * time.Second, -50 * time.Second} {
		SetClockOffset(d)
		if off := time.Until(Now()) - d; off > time.Second || off < -time.Second {
			t.Errorf("asked for %s, off by %s more", d, off)
		}
	}
}
