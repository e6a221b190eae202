// Package lint holds the house rules as tests, so that one `go test ./...`
// says whether the house still stands as ARCHITECTURE.md draws it.
package lint

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strconv"
	"strings"
	"testing"
)

const module = "fleetmesh.org/fleetmesh"

// table says which packages of ours each package may import. A line names only
// packages of lines above it, so the picture can have no cycle. Adding an edge is
// a design decision: change this table and ARCHITECTURE.md in the same commit.
// Below the vocabulary, paths are under internal/.
var table = []struct {
	pkg  string
	may  string
	pure bool // floors 1 and 2: no goroutine, no clock, no log, no network, no disk
}{
	// 1 Vocabulary: the public packages.
	{"nostr/schnorr", "", true},
	{"nostr", "nostr/schnorr", true},
	{"nostr/negentropy", "nostr", true},
	{"spec", "nostr", true},
	// 2 Pure: whatever two nodes could argue about.
	{"didcomm", "", true},
	{"didcomm/mediate", "didcomm", true},
	{"identity", "nostr spec", true},
	{"ledger", "nostr spec identity", true},
	{"strain", "spec", true},
	{"mesh", "nostr spec identity ledger strain", true},
	{"sim", "nostr spec identity ledger strain mesh", true},
	// 3 Ports: an interface, its in-memory form, and fenced adapters.
	{"tracing", "", false},
	{"store", "nostr nostr/negentropy spec", false},
	{"store/eventlog", "nostr nostr/negentropy spec store", false},
	{"store/lmdb", "nostr nostr/negentropy store", false},
	{"store/pgtest", "", false},
	{"store/sqlstore", "nostr nostr/negentropy store", false},
	{"store/sqlite", "store/sqlstore", false},
	{"store/postgres", "nostr store store/sqlstore", false},
	{"store/storetest", "nostr nostr/negentropy spec store", false},
	{"transport", "nostr spec", false},
	{"transport/transporttest", "nostr spec transport", false},
	{"policy", "nostr spec store ledger", false},
	{"trail", "nostr", false},
	// 4 Services: goroutines, contexts, logs.
	{"relay", "nostr nostr/negentropy spec strain store policy", false},
	{"relay/relaytest", "nostr nostr/negentropy spec store policy relay", false},
	{"blossom", "nostr spec policy", false},
	{"blossom/s3", "blossom", false},
	{"gateway", "nostr nostr/negentropy spec store policy", false},
	{"gateway/gatewaytest", "nostr spec store policy relay", false},
	{"gateway/bridge", "nostr nostr/negentropy spec store policy trail gateway", false},
	{"gateway/border", "nostr nostr/negentropy spec store policy trail gateway gateway/bridge", false},
	{"attach", "nostr nostr/negentropy spec store gateway", false},
	{"selftest", "nostr nostr/negentropy spec gateway", false},
	{"host", "nostr nostr/negentropy spec didcomm didcomm/mediate identity ledger strain mesh store transport", false},
	// 5 Operation.
	{"control", "spec ledger", false},
	{"cluster", "nostr nostr/negentropy spec control", false},
	{"command", "spec control", false},
	{"monitor", "spec control", false},
	{"manifest", "nostr spec control", false},
	{"manifest/export", "spec manifest", false},
	{"web", "nostr spec control monitor", false},
	{"daemon", "*", false},
	{"doctor", "control monitor daemon", false},
	{"cmd/meshnode", "nostr spec identity ledger control command cluster monitor manifest gateway gateway/bridge gateway/border selftest mesh sim web daemon doctor", false},
	{"cmd/meshctl", "spec control command manifest manifest/export", false},
}

// outside lists packages that hold tests or helpers for tests only; nothing that ships may import them.
var outside = []string{"lint", "vectors", "interop"}

func full(short string) string {
	switch {
	case short == "nostr", strings.HasPrefix(short, "nostr/"), short == "spec", strings.HasPrefix(short, "cmd/"):
		return module + "/" + short
	}
	return module + "/internal/" + short
}

type source struct {
	path string // relative to the module root
	pkg  string // import path
	test bool
	file *ast.File
	fset *token.FileSet
	text []byte
}

func root(t *testing.T) string {
	t.Helper()
	dir, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// sources parses every Go file of the module, but not those of nested modules.
func sources(t *testing.T) []source {
	t.Helper()
	top := root(t)
	var out []source
	err := filepath.WalkDir(top, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, _ := filepath.Rel(top, path)
		if d.IsDir() {
			if path == top {
				return nil
			}
			if strings.HasPrefix(d.Name(), ".") || d.Name() == "testdata" || d.Name() == "node_modules" {
				return filepath.SkipDir
			}
			if _, err := os.Stat(filepath.Join(path, "go.mod")); err == nil {
				return filepath.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(path, ".go") {
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		fset := token.NewFileSet()
		f, err := parser.ParseFile(fset, rel, text, parser.ParseComments)
		if err != nil {
			return err
		}
		pkg := module
		if dir := filepath.ToSlash(filepath.Dir(rel)); dir != "." {
			pkg += "/" + dir
		}
		out = append(out, source{rel, pkg, strings.HasSuffix(rel, "_test.go"), f, fset, text})
		return nil
	})
	if err != nil {
		t.Fatalf("read the module: %v", err)
	}
	return out
}

func isOutside(pkg string) bool {
	return slices.ContainsFunc(outside, func(s string) bool { return pkg == full(s) || strings.HasPrefix(pkg, full(s)+"/") }) ||
		strings.Contains(pkg, "/internal/gen") || strings.HasPrefix(pkg, module+"/bench")
}

func TestImportTable(t *testing.T) {
	seen := map[string]bool{}
	allowed := map[string]map[string]bool{}
	for _, line := range table {
		set := map[string]bool{}
		for _, dep := range strings.Fields(line.may) {
			if dep == "*" {
				for p := range seen {
					set[p] = true
				}
				continue
			}
			if !seen[full(dep)] {
				t.Errorf("table: %s names %s, which stands on no line above it", line.pkg, dep)
			}
			set[full(dep)] = true
		}
		seen[full(line.pkg)] = true
		allowed[full(line.pkg)] = set
	}
	missing := map[string]bool{}
	for _, s := range sources(t) {
		if s.test || isOutside(s.pkg) {
			continue
		}
		may, ok := allowed[s.pkg]
		if !ok {
			missing[s.pkg] = true
			continue
		}
		for _, imp := range s.file.Imports {
			path, _ := strconv.Unquote(imp.Path.Value)
			if strings.HasPrefix(path, module) && path != s.pkg && !may[path] {
				t.Errorf("%s imports %s, which the table does not allow to %s", s.path, path, s.pkg)
			}
		}
	}
	for pkg := range missing {
		t.Errorf("package %s stands on no floor: give it a line in the table", pkg)
	}
}

// pureBan lists what the pure floors may not reach: clocks, logs, disks, networks, goroutines' company.
var pureBan = []string{"log", "log/slog", "net", "net/http", "os", "os/exec", "syscall", "sync", "context", "math/rand", "math/rand/v2", "io/ioutil"}

func TestPureFloors(t *testing.T) {
	pure := map[string]bool{}
	for _, line := range table {
		pure[full(line.pkg)] = line.pure
	}
	for _, s := range sources(t) {
		if s.test || !pure[s.pkg] {
			continue
		}
		for _, imp := range s.file.Imports {
			path, _ := strconv.Unquote(imp.Path.Value)
			if slices.Contains(pureBan, path) && !pureExcuse(s.path, path) {
				t.Errorf("%s: a pure floor imports %q", s.path, path)
			}
		}
		ast.Inspect(s.file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.GoStmt:
				t.Errorf("%s: a pure floor starts a goroutine", s.fset.Position(n.Pos()))
			case *ast.SelectorExpr:
				x, ok := n.X.(*ast.Ident)
				if ok && x.Name == "time" && slices.Contains([]string{"Now", "Since", "Until", "Sleep", "After", "AfterFunc", "NewTimer", "NewTicker", "Tick"}, n.Sel.Name) {
					t.Errorf("%s: a pure floor reads the clock (time.%s)", s.fset.Position(n.Pos()), n.Sel.Name)
				}
			}
			return true
		})
	}
}

// pureExcuse allows sync for a pool of scratch memory or a thing computed once: it changes no result.
func pureExcuse(path, imp string) bool { return imp == "sync" }

func TestEdgesAreUsed(t *testing.T) {
	used := map[[2]string]bool{}
	for _, s := range sources(t) {
		for _, imp := range s.file.Imports {
			path, _ := strconv.Unquote(imp.Path.Value)
			used[[2]string{s.pkg, path}] = true
		}
	}
	var idle []string
	for _, line := range table {
		for _, dep := range strings.Fields(line.may) {
			if dep != "*" && !used[[2]string{full(line.pkg), full(dep)}] {
				idle = append(idle, line.pkg+" -> "+dep)
			}
		}
	}
	sort.Strings(idle)
	if len(idle) > 0 {
		t.Logf("edges that the table allows and nobody uses yet: %s", strings.Join(idle, ", "))
	}
}
