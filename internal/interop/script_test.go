package interop

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

// TestScripts runs the scripts in testdata/script on the real binary. They double as the documentation's examples.
// Beside testscript's own commands there is `serve NAME DIR`, which runs a node and sets the variable NAME to its URL, `halt NAME`, and `spoil FILE TEXT`,
// which changes one octet after the first place where the text stands, as a bad disk does, and `expand FILE`, which puts the values of variables into a file.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir: "testdata/script",
		Setup: func(env *testscript.Env) error {
			env.Setenv("PATH", filepath.Dir(binary)+string(os.PathListSeparator)+env.Getenv("PATH"))
			env.Values["nodes"] = map[string]*node{}
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){"serve": serve, "halt": halt, "crash": crash, "spoil": spoil, "expand": expand},
	})
}

func serve(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: serve NAME DIR [flag...]")
	}
	n, err := launch(ts.MkAbs(args[1]), args[2:]...)
	if err != nil {
		ts.Fatalf("%v", err)
	}
	ts.Defer(n.kill)
	ts.Value("nodes").(map[string]*node)[args[0]] = n
	ts.Setenv(args[0], n.url)
	out, err := exec.Command(binary, "--dir", n.dir, "--json", "status").Output()
	var s struct{ DID string }
	if err == nil {
		err = json.Unmarshal(out, &s)
	}
	if err != nil {
		ts.Fatalf("ask %s who it is: %v", args[0], err)
	}
	ts.Setenv(args[0]+"_DID", s.DID)
}

func crash(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: crash NAME")
	}
	ts.Value("nodes").(map[string]*node)[args[0]].kill()
}

func halt(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: halt NAME")
	}
	if err := ts.Value("nodes").(map[string]*node)[args[0]].halt(); err != nil {
		ts.Fatalf("%v", err)
	}
}

func spoil(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: spoil FILE TEXT")
	}
	path := ts.MkAbs(args[0])
	data := []byte(ts.ReadFile(args[0]))
	at := bytes.Index(data, []byte(args[1]))
	if at < 0 {
		ts.Fatalf("%s does not stand in %s", args[1], args[0])
	}
	data[at+len(args[1])] ^= 1
	ts.Check(os.WriteFile(path, data, 0o600))
}

func expand(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: expand FILE")
	}
	ts.Check(os.WriteFile(ts.MkAbs(args[0]), []byte(os.Expand(ts.ReadFile(args[0]), ts.Getenv)), 0o600))
}
