package daemon

import (
	"strings"
	"testing"
)

func TestWhatIsNoConfigurationIsSaidSo(t *testing.T) {
	whole := string(DefaultConfig("127.0.0.1:7777").YAML())
	for _, c := range []struct{ name, text, want string }{
		{"empty", "", "it is empty"},
		{"a comment", "# nothing\n", "it is empty"},
		{"null", "---\n", "it is empty"},
		{"two documents", whole + "---\n" + whole, "more than one document"},
		{"another kind behind it", whole + "---\nkind: Peering\n", "meshctl apply"},
		{"an unknown key", strings.Replace(whole, "class:", "clas:", 1), "clas"},
		{"only an end mark", whole + "...\n", ""},
		{"a start mark", "---\n" + whole, ""},
	} {
		_, err := ParseConfig([]byte(c.text))
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
	}
}
