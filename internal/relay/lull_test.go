package relay

import "testing"

func TestLull(t *testing.T) {
	var l lull
	total := int64(0)
	for i, c := range []struct {
		work  int64
		falls bool
	}{{0, false}, {5, false}, {10_000, false}, {9_000, false}, {20, true}, {20, false}, {0, false}, {500, false}, {0, true}} {
		total += c.work
		if got := l.falls(total); got != c.falls {
			t.Errorf("minute %d, %d messages: %v", i, c.work, got)
		}
	}
}
