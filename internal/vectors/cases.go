package vectors

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

var update = flag.Bool("update-vectors", false, "write the project's own vectors anew instead of checking them")

// Case is one of the project's own vectors, a file in spec/vectors/<area>/. A second
// implementation checks itself by calling what Function names with Input: it must refuse with
// the code Refuse, or, where that is empty, give Output.
type Case struct {
	Name     string          `json:"-"`        // file name without its ending
	About    string          `json:"about"`    // what the case is there to show
	Layer    string          `json:"layer"`    // the layer that must answer; a refusal by another is a failure
	Function string          `json:"function"` // see spec/vectors/README.md
	Refuse   string          `json:"refuse,omitempty"`
	Input    json.RawMessage `json:"input"`
	Output   json.RawMessage `json:"output,omitempty"`
}

// Function computes a case: an output to compare, or a refusal's code.
type Function func(input json.RawMessage) (output any, refuse string)

// Draft is a case before its output is known. Refuse is what the author expects, and the
// implementation is held to it when the file is written, not only when it is read.
type Draft struct {
	Name, About, Layer, Function, Refuse string
	Input                                any
}

// Updating reports whether generated files are to be written anew.
func Updating() bool { return *update }

// Own returns the folder of the project's own vectors of an area.
func Own(t testing.TB, area string) string {
	t.Helper()
	return filepath.Join(moduleRoot(t), "spec", "vectors", area)
}

// Check runs every case of an area. With -update-vectors it first writes the drafts.
func Check(t *testing.T, area string, functions map[string]Function, drafts []Draft) {
	t.Helper()
	dir := Own(t, area)
	if *update {
		write(t, dir, functions, drafts)
	}
	files, err := filepath.Glob(filepath.Join(dir, "*.json"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no vectors in %s: %v", dir, err)
	}
	if len(files) != len(drafts) {
		t.Errorf("%d vectors in %s, %d drafts: run with -update-vectors", len(files), area, len(drafts))
	}
	for _, path := range files {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".json"), func(t *testing.T) { checkFile(t, path, functions) })
	}
}

func checkFile(t *testing.T, path string, functions map[string]Function) {
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var c Case
	if err := json.Unmarshal(text, &c); err != nil {
		t.Fatal(err)
	}
	f, ok := functions[c.Function]
	if !ok {
		t.Fatalf("no function %q", c.Function)
	}
	out, refuse := f(c.Input)
	if refuse != c.Refuse {
		t.Fatalf("%s\nrefused with %q, want %q", c.About, refuse, c.Refuse)
	}
	if refuse != "" {
		return
	}
	if got, want := normal(t, marshal(t, out)), normal(t, c.Output); !reflect.DeepEqual(got, want) {
		t.Fatalf("%s\ngot  %s\nwant %s", c.About, marshal(t, out), c.Output)
	}
}

func write(t *testing.T, dir string, functions map[string]Function, drafts []Draft) {
	t.Helper()
	old, _ := filepath.Glob(filepath.Join(dir, "*.json"))
	for _, path := range old {
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, d := range drafts {
		c := Case{About: d.About, Layer: d.Layer, Function: d.Function, Refuse: d.Refuse, Input: marshal(t, d.Input)}
		f, ok := functions[d.Function]
		if !ok {
			t.Fatalf("%s: no function %q", d.Name, d.Function)
		}
		out, refuse := f(c.Input)
		if refuse != d.Refuse {
			t.Fatalf("%s: refused with %q, want %q", d.Name, refuse, d.Refuse)
		}
		if refuse == "" {
			c.Output = marshal(t, out)
		}
		text, err := json.MarshalIndent(c, "", "  ")
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, d.Name+".json"), append(text, '\n'), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

func marshal(t *testing.T, v any) json.RawMessage {
	t.Helper()
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		t.Fatal(err)
	}
	return buf.Bytes()
}

func normal(t *testing.T, text []byte) any {
	t.Helper()
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.UseNumber()
	var v any
	if err := dec.Decode(&v); err != nil {
		t.Fatalf("output is not JSON: %v", err)
	}
	return v
}
