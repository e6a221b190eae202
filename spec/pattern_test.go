package spec

import (
	"regexp"
	"strings"
	"testing"
)

// FuzzPatterns: the quick patterns match what the regular expressions of the same text match.
func FuzzPatterns(f *testing.F) {
	h := strings.Repeat("0123456789abcdef", 4)
	for _, s := range []string{"", h, h[:63], h + "0", h[:63] + "g", h[:63] + "A", h[:63] + "\n", h + "\n", h + h, "é" + h[:62], h[:32]} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		for _, text := range []string{"^[0-9a-f]{64}$", "^[0-9a-f]{128}$", "^[0-9a-f]{32}$", "^[0-9a-f]{0}$", "^[0-9a-f]{2,4}$", "^([0-9a-f]{64}|x)$"} {
			quick, err := patterns(text)
			if err != nil {
				t.Fatal(err)
			}
			if slow := regexp.MustCompile(text); quick.MatchString(s) != slow.MatchString(s) || quick.String() != text {
				t.Errorf("%s on %q: %v", quick, s, quick.MatchString(s))
			}
		}
	})
}

func TestHexPatternIsUsed(t *testing.T) {
	if p, err := patterns("^[0-9a-f]{64}$"); err != nil || p != hexPattern(64) {
		t.Errorf("%T, %v", p, err)
	}
}
