package main

import (
	"strings"
	"testing"
)

func TestSlug(t *testing.T) {
	for name, want := range map[string]string{
		"harbour": "harbour", "My Relay": "my-relay", "--a  b--": "a-b", "<script>": "script", "Ünï": "n", "日本": "", "\xff\x00": "",
		strings.Repeat("a", 62) + " b": strings.Repeat("a", 62), strings.Repeat("x", 200): strings.Repeat("x", 63),
	} {
		if got := slug(name); got != want {
			t.Errorf("slug(%q) is %q, want %q", name, got, want)
		}
	}
}
