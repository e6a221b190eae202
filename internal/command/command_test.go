package command

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/alecthomas/kong"

	"fleetmesh.org/fleetmesh/internal/control"
)

type sample struct {
	JSON bool `help:"Print JSON."`
	Peer struct {
		Add struct {
			DID   string   `arg:"" help:"The other's."`
			Mode  string   `help:"Which way: it's a word." enum:"pull,push" default:"pull"`
			Relay []string `help:"Where." short:"r" placeholder:"URL"`
		} `cmd:"" help:"Add one."`
		List struct{} `cmd:"" help:"List them."`
	} `cmd:"" help:"Peers." group:"fed"`
	Up struct {
		Key string `help:"A file." placeholder:"FILE"`
	} `cmd:"" help:"Run."`
	Secret struct{} `cmd:"" hidden:""`
}

func model(t *testing.T) *kong.Application {
	t.Helper()
	var s sample
	k, err := kong.New(&s, kong.Name("sample"), kong.Description("A sample.\n\nStart with: sample up"), kong.ExplicitGroups([]kong.Group{{Key: "fed", Title: "Federation"}}))
	if err != nil {
		t.Fatal(err)
	}
	return k.Model
}

// complete asks a real shell what it offers after some words, the last of which is being written.
func complete(t *testing.T, shell string, words ...string) []string {
	t.Helper()
	path, err := exec.LookPath(shell)
	if err != nil {
		t.Skipf("no %s here", shell)
	}
	text, err := Completion(model(t), shell)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	file := filepath.Join(dir, "completion")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	var script string
	switch shell {
	case "bash":
		script = fmt.Sprintf("source %s; COMP_WORDS=(sample %s); COMP_CWORD=%d; _sample; printf '%%s\\n' \"${COMPREPLY[@]}\"", file, quoted(words), len(words))
	case "zsh": // the editor's own words cannot be had without a terminal: what they are made of can
		script = fmt.Sprintf("source %s; prev=%q; at=$(_sample_at %s); _sample_values \"$at $prev\" || _sample_words \"$at\"", file, last(words[:len(words)-1]), quoted(words[:len(words)-1]))
	case "fish":
		script = fmt.Sprintf("source %s; complete -C %q", file, "sample "+strings.Join(words, " "))
	}
	cmd := exec.Command(path, "-c", script)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "HOME="+dir)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", shell, err, out)
	}
	var offers []string
	for line := range strings.Lines(string(out)) {
		word, _, _ := strings.Cut(strings.TrimSpace(line), "\t")
		for w := range strings.FieldsSeq(word) {
			if strings.HasPrefix(w, words[len(words)-1]) {
				offers = append(offers, w)
			}
		}
	}
	slices.Sort(offers)
	return slices.Compact(offers)
}

func quoted(words []string) string {
	var out []string
	for _, w := range words {
		out = append(out, "'"+w+"'")
	}
	return strings.Join(out, " ")
}

func last(words []string) string {
	if len(words) == 0 {
		return "sample"
	}
	return words[len(words)-1]
}

func TestShellsComplete(t *testing.T) {
	for _, shell := range Shells {
		t.Run(shell, func(t *testing.T) {
			for _, c := range []struct {
				words []string
				want  []string
			}{
				{[]string{"p"}, []string{"peer"}},
				{[]string{"s"}, nil}, // what is hidden stays so
				{[]string{"peer", ""}, []string{"add", "list"}},
				{[]string{"--json", "peer", "l"}, []string{"list"}},
				{[]string{"peer", "add", "--"}, []string{"--help", "--json", "--mode", "--relay"}},
				{[]string{"peer", "add", "--mode", "pu"}, []string{"pull", "push"}},
				{[]string{"up", "--k"}, []string{"--key"}},
			} {
				got := complete(t, shell, c.words...)
				if c.words[len(c.words)-1] == "" {
					got = slices.DeleteFunc(got, func(s string) bool { return strings.HasPrefix(s, "-") || s == "completion" })
				}
				if !slices.Equal(got, c.want) {
					t.Errorf("after %q it offers %q, want %q", c.words, got, c.want)
				}
			}
		})
	}
	if _, err := Completion(model(t), "tcsh"); err == nil {
		t.Error("a completion for tcsh")
	}
}

func TestAnOptionsValueIsNoVerb(t *testing.T) {
	if got := complete(t, "bash", "peer", "add", "-r", "list", "--m"); !slices.Equal(got, []string{"--mode"}) {
		t.Errorf("offers %q", got)
	}
}

func TestManualIsWellFormed(t *testing.T) {
	m := model(t)
	if err := AddExamples(m, map[string]string{"up": "sample up # begins\n.hidden sample up"}); err != nil {
		t.Fatal(err)
	}
	page := Manual(m, "1")
	for _, want := range []string{".SH NAME\nsample \\- A sample", ".SH FEDERATION", ".SS sample peer add <did>", "\\-r, \\-\\-relay=\\fIURL", ".SH EXIT STATUS"} {
		if !strings.Contains(page, want) {
			t.Errorf("the page lacks %q:\n%s", want, page)
		}
	}
	if strings.Contains(page, "secret") {
		t.Error("a hidden verb stands in the page")
	}
	mandoc, err := exec.LookPath("mandoc")
	if err != nil {
		t.Skip("no mandoc here")
	}
	cmd := exec.Command(mandoc, "-T", "lint", "-W", "warning,stop")
	cmd.Stdin = strings.NewReader(page)
	if out, err := cmd.CombinedOutput(); err != nil {
		for line := range strings.Lines(string(out)) {
			if !strings.Contains(line, "missing date") && !strings.Contains(line, "skipping paragraph macro") {
				t.Errorf("mandoc: %s", line)
			}
		}
	}
}

func TestExamplesOfAHelpText(t *testing.T) {
	m := model(t)
	if lacks := Lacking(m); !slices.Equal(lacks, []string{"peer add", "peer list", "up"}) {
		t.Errorf("lacking %q", lacks)
	}
	if err := AddExamples(m, map[string]string{"peer list": "sample peer list\nx | sample peer list --json   # all"}); err != nil {
		t.Fatal(err)
	}
	if got := AllExamples(m); !slices.Equal(got, []string{"sample peer list", "x | sample peer list --json"}) {
		t.Errorf("%q", got)
	}
	if AddExamples(m, map[string]string{"peer lost": "x"}) == nil {
		t.Error("an example of a verb that there is not")
	}
	for line, want := range map[string][][]string{
		`strfry export | sample import`:                                  {{"import"}},
		`sample req --relay ws://x '{"kinds":[1], "limit":5}' > out.txt`: {{"req", "--relay", "ws://x", `{"kinds":[1], "limit":5}`}},
		`A=b sample up & sample stop # at once`:                          {{"up"}, {"stop"}},
		`mv a b`:                                                         nil,
	} {
		if got, err := Calls("sample", line); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %q, %v", line, got, err)
		}
	}
	if _, err := Calls("sample", `sample 'open`); err == nil {
		t.Error("an open quote was read")
	}
}

type coded struct{ error }

func (coded) ExitCode() int { return 42 }

func TestStatusAndPrint(t *testing.T) {
	there := errors.New("there")
	for _, c := range []struct {
		err  error
		code int
		says string
	}{
		{nil, 0, ""},
		{errors.New("x"), 1, "me: x\n"},
		{coded{errors.New("")}, 42, ""},
		{fmt.Errorf("deep: %w", coded{errors.New("y")}), 42, "me: deep: y\n"},
		{control.BadParams("bad"), 2, "me: bad\n"},
		{control.Refuse("POLICY", "no"), 3, "me: no\n"},
		{fmt.Errorf("not %w", there), 8, "me: not there: go on\n"},
	} {
		var b bytes.Buffer
		if code := Status(&b, "me", c.err, Hint{there, 8, "go on"}); code != c.code || b.String() != c.says {
			t.Errorf("%v: status %d, %q", c.err, code, b.String())
		}
	}
	for _, c := range []struct {
		v    any
		want string
	}{{map[string]string{"a": "<b>"}, "{\"a\":\"<b>\"}\n"}, {[]int{1, 2}, "1\n2\n"}, {[]string(nil), ""},
		{json.RawMessage(`[{"a":1}, 2]`), "{\"a\":1}\n2\n"}, {json.RawMessage(`{"a": [1]}`), "{\"a\":[1]}\n"}, {json.RawMessage(`[]`), ""}} {
		var b bytes.Buffer
		if err := Print(&b, true, c.v, nil); err != nil || b.String() != c.want {
			t.Errorf("%v: %q, %v", c.v, b.String(), err)
		}
	}
	if Print(io.Discard, true, func() {}, nil) == nil {
		t.Error("a function is no JSON")
	}
}
