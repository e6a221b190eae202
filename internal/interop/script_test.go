package interop

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

// TestScripts runs the scripts in testdata/script on the real binary. They double as the documentation's examples.
// Beside testscript's own commands there is `serve NAME DIR`, which runs a node and sets the variable NAME to its URL, and `halt NAME`.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir: "testdata/script",
		Setup: func(env *testscript.Env) error {
			env.Setenv("PATH", filepath.Dir(binary)+string(os.PathListSeparator)+env.Getenv("PATH"))
			env.Values["nodes"] = map[string]*node{}
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){"serve": serve, "halt": halt},
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
}

func halt(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: halt NAME")
	}
	if err := ts.Value("nodes").(map[string]*node)[args[0]].halt(); err != nil {
		ts.Fatalf("%v", err)
	}
}
