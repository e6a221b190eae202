package interop

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"fleetmesh.org/fleetmesh/internal/command"
)

// tell runs a verb that may fail, and returns everything it said and its status.
func tell(t *testing.T, args ...string) (string, int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, binary, args...)
	var all bytes.Buffer
	cmd.Stdout, cmd.Stderr = &all, &all
	if err := cmd.Run(); err != nil && cmd.ProcessState == nil {
		t.Fatal(err)
	}
	return all.String(), cmd.ProcessState.ExitCode()
}

// block is a piece of shell in a page.
type block struct{ mark, text string }

var fence = regexp.MustCompile("(?ms)^(?:<!-- (run(?:: [a-z]+)?) -->\n)?```([a-z]*)\n(.*?)^```$")

func blocks(t *testing.T, path string) (out []block) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range fence.FindAllStringSubmatch(string(text), -1) {
		if m[2] == "" || m[2] == "sh" {
			out = append(out, block{m[1], m[3]})
		}
	}
	return out
}

// Every call of a command that a page shows is one that the binary understands, with its flags and arguments as they stand there.
func TestPagesCallWhatThereIs(t *testing.T) {
	pages, err := filepath.Glob("../../docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	work := t.TempDir() // with what some examples say is there
	if err := errors.Join(os.Mkdir(filepath.Join(work, "docs"), 0o700), os.WriteFile(filepath.Join(work, "backup.tar"), nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	asked := map[string]bool{}
	for _, page := range append(pages, "../../README.md") {
		for _, b := range blocks(t, page) {
			for line := range strings.SplitSeq(strings.ReplaceAll(b.text, "\\\n", " "), "\n") {
				for _, name := range []string{"meshnode", "meshctl"} {
					calls, err := command.Calls(name, strings.ReplaceAll(line, "go run ./cmd/", ""))
					if err != nil {
						continue // prose with an apostrophe
					}
					for _, args := range calls {
						key := strings.Join(append([]string{name}, args...), " ")
						if len(args) == 0 || asked[key] {
							continue
						}
						asked[key] = true
						cmd := exec.Command(filepath.Join(filepath.Dir(binary), name), append(args, "--help")...)
						cmd.Dir = work
						out, err := cmd.CombinedOutput()
						if err != nil || !strings.Contains(string(out), "Usage:") {
							t.Errorf("%s: %q: %v\n%s", filepath.Base(page), line, err, bytes.TrimSpace(out[bytes.LastIndexByte(bytes.TrimSpace(out), '\n')+1:]))
						}
					}
				}
			}
		}
	}
	if len(asked) < 60 {
		t.Errorf("only %d calls were found in the pages", len(asked))
	}
}

// The blocks of the operator's manual, run in order; a node runs for those that want one.
func TestOperatorsManualRuns(t *testing.T) {
	work, err := os.MkdirTemp("", "op")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(work) })
	ran := 0
	for _, b := range blocks(t, "../../docs/operator.md") {
		if b.mark == "" {
			continue
		}
		ran++
		var n *node
		if b.mark == "run: node" {
			n = up(t, filepath.Join(work, "node"))
			until(t, "the node is ready", time.Minute, func() bool {
				out, _ := tell(t, "--dir", n.dir, "watch", "--offline", "--json")
				return strings.Contains(out, `"federation":"up"`)
			})
		}
		cmd := exec.Command("sh", "-eu", "-c", b.text)
		cmd.Dir = work
		cmd.Env = append(os.Environ(), "PATH="+filepath.Dir(binary)+string(os.PathListSeparator)+os.Getenv("PATH"))
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%v\n%s\n%s", err, b.text, out)
		}
		if n != nil {
			n.stop(t)
		}
	}
	if ran < 5 {
		t.Errorf("only %d blocks were run", ran)
	}
}

// The newcomer's path takes less than five minutes.
func TestNewcomer(t *testing.T) {
	if testing.Short() {
		t.Skip("builds the binary")
	}
	if _, err := exec.LookPath("curl"); err != nil {
		t.Skip("no curl here")
	}
	out, err := exec.Command("../../scripts/newcomer.sh").CombinedOutput()
	t.Logf("%s", out)
	if err != nil {
		t.Error(err)
	}
}
