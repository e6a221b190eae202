package lint

import (
	"bytes"
	"go/ast"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

const (
	maxFunction = 70  // lines of one function
	maxFile     = 900 // lines of one file
)

func generated(s source) bool {
	return bytes.Contains(s.text[:min(len(s.text), 400)], []byte("Code generated"))
}

func TestPackageComments(t *testing.T) {
	has := map[string]bool{}
	for _, s := range sources(t) {
		if s.test && !strings.HasSuffix(s.pkg, "/lint") {
			continue
		}
		has[s.pkg] = has[s.pkg] || s.file.Doc != nil
	}
	for pkg, ok := range has {
		if !ok {
			t.Errorf("package %s has no package comment", pkg)
		}
	}
}

func TestSizes(t *testing.T) {
	for _, s := range sources(t) {
		if s.test || generated(s) {
			continue
		}
		if n := bytes.Count(s.text, []byte("\n")); n > maxFile {
			t.Errorf("%s has %d lines, more than %d", s.path, n, maxFile)
		}
		for _, d := range s.file.Decls {
			f, ok := d.(*ast.FuncDecl)
			if !ok || f.Body == nil {
				continue
			}
			n := s.fset.Position(f.End()).Line - s.fset.Position(f.Pos()).Line + 1
			if n > maxFunction {
				t.Errorf("%s: %s has %d lines, more than %d", s.fset.Position(f.Pos()), f.Name.Name, n, maxFunction)
			}
		}
	}
}

var badNames = []string{"util", "utils", "common", "types", "helpers", "pkg", "lib", "misc"}

func TestNames(t *testing.T) {
	for _, s := range sources(t) {
		for _, bad := range badNames {
			if s.file.Name.Name == bad {
				t.Errorf("%s: package %s says nothing about what it holds", s.path, bad)
			}
		}
	}
}

func TestNoSleeps(t *testing.T) {
	for _, s := range sources(t) {
		if s.test && !strings.HasPrefix(s.path, "internal/lint/") && bytes.Contains(s.text, []byte("time.Sleep(")) {
			t.Errorf("%s sleeps: wait on a channel, or use testing/synctest", s.path)
		}
	}
}

func TestNoUnfinishedWords(t *testing.T) {
	words := regexp.MustCompile(`\b(TODO|FIXME|XXX)\b`)
	for _, s := range sources(t) {
		if strings.HasPrefix(s.path, "internal/lint/") {
			continue
		}
		if m := words.Find(s.text); m != nil {
			t.Errorf("%s says %s: finish it, or write an issue", s.path, m)
		}
	}
}

// TestDocLinks follows every relative link of the Markdown files.
func TestDocLinks(t *testing.T) {
	top := root(t)
	link := regexp.MustCompile(`\]\(([^)#:]+)(#[^)]*)?\)`)
	docs, _ := filepath.Glob(filepath.Join(top, "*.md"))
	more, _ := filepath.Glob(filepath.Join(top, "docs", "*.md"))
	for _, doc := range append(docs, more...) {
		text, err := os.ReadFile(doc)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range link.FindAllSubmatch(text, -1) {
			if _, err := os.Stat(filepath.Join(filepath.Dir(doc), string(m[1]))); err != nil {
				t.Errorf("%s links to %s, which is not there", filepath.Base(doc), m[1])
			}
		}
	}
}
