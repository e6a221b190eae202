package daemon

import (
	"strings"
	"testing"
)

func TestPageSpec(t *testing.T) {
	config := string(DefaultConfig("127.0.0.1:7777").YAML())
	with := func(page string) error {
		_, err := ParseConfig([]byte(strings.Replace(config, "  relay:\n", "  page: "+page+"\n  relay:\n", 1)))
		return err
	}
	if err := with("{off: [landing, operator], hosts: [node.example.org, raspberry]}"); err != nil {
		t.Error(err)
	}
	for page, want := range map[string]string{
		"{off: [all]}":                          `spec.page.off has "all", want some of landing, operator`,
		"{hosts: ['node.example.org:7777']}":    "spec.page.hosts",
		"{hosts: ['https://node.example.org']}": "spec.page.hosts",
		"{on: true}":                            "unknown field",
	} {
		if err := with(page); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", page, err, want)
		}
	}
}
