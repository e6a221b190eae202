package manifest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
)

// MaxSize bounds one file of manifests, in octets.
const MaxSize = 256 << 10

// maxDepth bounds nesting: a manifest has no use for more, and the stack of a reader has an end.
const maxDepth = 64

// Problem is one thing wrong with a manifest and where it stands.
type Problem struct {
	File   string `json:"file"`
	Line   int    `json:"line"`   // from 1
	Column int    `json:"column"` // from 1
	Path   string `json:"path,omitempty"`
	Reason string `json:"reason"`
}

// Error is "file:line:column: path: reason".
func (p *Problem) Error() string {
	at := fmt.Sprintf("%s:%d:%d: ", p.File, p.Line, p.Column)
	if p.Path != "" {
		at += p.Path + ": "
	}
	return at + p.Reason
}

// Problems are all that is wrong, in the order of the files. It is an error where it is not empty.
type Problems []*Problem

// Error is one problem a line.
func (p Problems) Error() string {
	lines := make([]string, len(p))
	for i, q := range p {
		lines[i] = q.Error()
	}
	return strings.Join(lines, "\n")
}

func (p Problems) err() error {
	if len(p) == 0 {
		return nil
	}
	return p
}

type position struct{ line, column int }

// Object is one manifest document.
type Object struct {
	File string
	Kind string
	Name string

	value map[string]any      // JSON values; numbers are int64, uint64 or float64
	at    map[string]position // by JSON pointer: where a value begins
	keys  map[string]position // by JSON pointer: where its key stands
}

// Ref is the object's name among all: "Peering/harbour-sync".
func (o *Object) Ref() string { return o.Kind + "/" + o.Name }

// problem makes a Problem at a JSON pointer, or at the nearest place above it that has a position.
func (o *Object) problem(pointer, format string, args ...any) *Problem {
	p := pointer
	for {
		pos, ok := o.at[p]
		if k, has := o.keys[p]; has {
			pos, ok = k, true
		}
		if ok {
			return &Problem{o.File, pos.line, pos.column, dotted(pointer), fmt.Sprintf(format, args...)}
		}
		i := strings.LastIndexByte(p, '/')
		if i < 0 {
			return &Problem{o.File, 1, 1, dotted(pointer), fmt.Sprintf(format, args...)}
		}
		p = p[:i]
	}
}

// dotted writes a JSON pointer as people write keys: spec.ingress.filter.
func dotted(pointer string) string {
	s := strings.ReplaceAll(strings.TrimPrefix(pointer, "/"), "/", ".")
	return strings.NewReplacer("~1", "/", "~0", "~").Replace(s)
}

func under(pointer, name string) string {
	return pointer + "/" + strings.NewReplacer("~", "~0", "/", "~1").Replace(name)
}

// Parse reads every document of a file: YAML, one or many, or JSON values one after another. It checks the form alone: see
// Check. Anchors, aliases, merges and tags are refused, so that what a reader sees is what holds. The error is Problems.
func Parse(file string, text []byte) ([]*Object, error) {
	if len(text) > MaxSize {
		return nil, Problems{{file, 1, 1, "", fmt.Sprintf("the file has %d octets, a file of manifests may have %d", len(text), MaxSize)}}
	}
	r := &reader{file: file}
	var docs []*Object
	if first := bytes.TrimLeft(text, " \t\r\n"); strings.HasSuffix(file, ".json") || (bytes.HasPrefix(first, []byte("{")) && json.Valid(text)) {
		docs = r.json(text)
	} else {
		docs = r.yaml(text)
	}
	if len(docs) == 0 && len(r.problems) == 0 {
		r.problems = append(r.problems, &Problem{file, 1, 1, "", "there is no manifest in it"})
	}
	for _, o := range docs {
		o.name(&r.problems)
	}
	return docs, r.problems.err()
}

// name takes up kind and name, without which nothing can be said about a document.
func (o *Object) name(bad *Problems) {
	o.Kind, _ = o.value["kind"].(string)
	meta, _ := o.value["metadata"].(map[string]any)
	o.Name, _ = meta["name"].(string)
	switch {
	case o.Kind == "":
		*bad = append(*bad, o.problem("/kind", "it is missing: MeshNode, Peering, GrantPolicy, ComputeProvider or InferenceRouter"))
	case o.Name == "":
		*bad = append(*bad, o.problem("/metadata/name", "it is missing: lower-case letters, digits and dashes"))
	}
}

type reader struct {
	file     string
	problems Problems
	doc      *Object
}

func (r *reader) begin() *Object {
	r.doc = &Object{File: r.file, at: map[string]position{}, keys: map[string]position{}}
	return r.doc
}

func (r *reader) bad(pos position, pointer, format string, args ...any) {
	r.problems = append(r.problems, &Problem{r.file, pos.line, pos.column, dotted(pointer), fmt.Sprintf(format, args...)})
}

// yaml reads YAML documents.
func (r *reader) yaml(text []byte) (docs []*Object) {
	if pos, deep := nesting(text); deep {
		r.bad(pos, "", "it is nested too deeply here: %d levels are the most", maxDepth)
		return nil
	}
	file, err := parseYAML(text)
	if err != nil {
		pos := position{1, 1}
		reason := err.Error()
		var e yaml.Error
		if errors.As(err, &e) {
			if t := e.GetToken(); t != nil && t.Position != nil {
				pos = position{max(1, t.Position.Line), max(1, t.Position.Column)}
			}
			reason = e.GetMessage()
		}
		r.bad(pos, "", "%s", reason)
		return nil
	}
	for _, d := range file.Docs {
		switch d.Body.(type) {
		case nil, *ast.CommentGroupNode, *ast.NullNode:
			continue // an empty document, such as the one after a last ---
		}
		o := r.begin()
		v, ok := r.node(d.Body, "", 0).(map[string]any)
		if !ok {
			r.bad(place(d.Body), "", "a document is a mapping that begins with apiVersion, kind and metadata")
			continue
		}
		o.value = v
		docs = append(docs, o)
	}
	return docs
}

// parseYAML calls the library's parser. Should it panic on strange text, the operator gets a sentence and not a trace.
func parseYAML(text []byte) (f *ast.File, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = errors.New("this YAML cannot be read")
		}
	}()
	return parser.ParseBytes(text, 0)
}

// nesting bounds how deep the text can nest before it is handed to a recursive parser. It counts brackets without regard to
// quotes and the dashes at the head of a line: more than enough for what a manifest needs.
func nesting(text []byte) (position, bool) {
	pos := position{1, 0}
	depth, head, start := 0, 0, true
	for _, c := range text {
		pos.column++
		switch c {
		case '\n':
			pos, head, start = position{pos.line + 1, 0}, 0, true
			continue
		case '[', '{':
			depth++
		case ']', '}':
			depth = max(0, depth-1)
		case '-', '?', ':':
			if start {
				head++
			}
		case ' ', '\t':
		default:
			start = false
		}
		if depth > maxDepth || (head > maxDepth && start && c != '-') {
			return pos, true
		}
	}
	return pos, false
}

func place(n ast.Node) position {
	// A mapping's own token is a colon: its place is that of its first key.
	switch m := n.(type) {
	case *ast.MappingNode:
		if !m.IsFlowStyle && len(m.Values) > 0 {
			return place(m.Values[0])
		}
	case *ast.MappingValueNode:
		return place(m.Key)
	}
	if n == nil || n.GetToken() == nil || n.GetToken().Position == nil {
		return position{1, 1}
	}
	p := n.GetToken().Position
	return position{max(1, p.Line), max(1, p.Column)}
}

func (r *reader) node(n ast.Node, pointer string, depth int) any {
	pos := place(n)
	r.doc.at[pointer] = pos
	if depth > maxDepth {
		r.bad(pos, pointer, "it is nested too deeply: %d levels are the most", maxDepth)
		return nil
	}
	switch n := n.(type) {
	case nil, *ast.NullNode:
		return nil
	case *ast.StringNode:
		return n.Value
	case *ast.LiteralNode:
		return n.Value.Value
	case *ast.IntegerNode:
		if u, ok := n.Value.(uint64); ok && u <= 1<<63-1 {
			return int64(u)
		}
		return n.Value
	case *ast.FloatNode:
		return n.Value
	case *ast.BoolNode:
		return n.Value
	case *ast.SequenceNode:
		list := make([]any, 0, len(n.Values))
		for i, v := range n.Values {
			list = append(list, r.node(v, fmt.Sprintf("%s/%d", pointer, i), depth+1))
		}
		return list
	case *ast.MappingNode:
		return r.mapping(n.Values, pointer, depth)
	case *ast.MappingValueNode:
		return r.mapping([]*ast.MappingValueNode{n}, pointer, depth)
	case *ast.AnchorNode, *ast.AliasNode, *ast.MergeKeyNode, *ast.TagNode:
		r.bad(pos, pointer, "anchors, aliases, merges and tags are not allowed: write it out")
	default:
		r.bad(pos, pointer, "this is no value that a manifest may have")
	}
	return nil
}

func (r *reader) mapping(values []*ast.MappingValueNode, pointer string, depth int) any {
	out := make(map[string]any, len(values))
	for _, v := range values {
		key, ok := v.Key.(*ast.StringNode)
		if !ok {
			r.bad(place(v.Key), pointer, "a key is plain text; put it in quotes if it looks like something else")
			continue
		}
		at := under(pointer, key.Value)
		if _, twice := out[key.Value]; twice {
			r.bad(place(key), at, "the key stands here twice")
			continue
		}
		r.doc.keys[at] = place(key)
		out[key.Value] = r.node(v.Value, at, depth+1)
	}
	return out
}

// json reads JSON values, one after another, and where each stands.
func (r *reader) json(text []byte) (docs []*Object) {
	j := &jsonReader{reader: r, text: text, d: jsontext.NewDecoder(bytes.NewReader(text))}
	for j.d.PeekKind() != 0 {
		o := r.begin()
		pos := j.next()
		v, err := j.value("", 0)
		if err != nil {
			j.fail(err)
			return nil
		}
		m, ok := v.(map[string]any)
		if !ok {
			r.bad(pos, "", "a document is an object that begins with apiVersion, kind and metadata")
			continue
		}
		o.value = m
		docs = append(docs, o)
	}
	if _, err := j.d.ReadToken(); err != nil && err.Error() != "EOF" {
		j.fail(err)
	}
	return docs
}

type jsonReader struct {
	*reader
	text []byte
	d    *jsontext.Decoder
}

func (j *jsonReader) place(offset int64) position {
	head := j.text[:min(int(offset), len(j.text))]
	line := bytes.Count(head, []byte("\n")) + 1
	return position{line, len(head) - bytes.LastIndexByte(head, '\n')}
}

// next is where the next token begins.
func (j *jsonReader) next() position {
	off := int(j.d.InputOffset())
	for off < len(j.text) && strings.IndexByte(" \t\r\n,:", j.text[off]) >= 0 {
		off++
	}
	return j.place(int64(off))
}

func (j *jsonReader) fail(err error) {
	var e *jsontext.SyntacticError
	if errors.As(err, &e) {
		j.bad(j.place(e.ByteOffset), string(e.JSONPointer), "%v", e.Err)
		return
	}
	j.bad(j.place(j.d.InputOffset()), "", "%v", err)
}

func (j *jsonReader) value(pointer string, depth int) (any, error) {
	pos := j.next()
	j.doc.at[pointer] = pos
	if depth > maxDepth {
		return nil, fmt.Errorf("it is nested too deeply: %d levels are the most", maxDepth)
	}
	tok, err := j.d.ReadToken()
	if err != nil {
		return nil, err
	}
	switch tok.Kind() {
	case '{':
		out := map[string]any{}
		for j.d.PeekKind() != '}' {
			pos := j.next()
			name, err := j.d.ReadToken()
			if err != nil {
				return nil, err
			}
			key := name.String()
			at := under(pointer, key)
			j.doc.keys[at] = pos
			if out[key], err = j.value(at, depth+1); err != nil {
				return nil, err
			}
		}
		_, err = j.d.ReadToken()
		return out, err
	case '[':
		list := []any{}
		for j.d.PeekKind() != ']' {
			v, err := j.value(fmt.Sprintf("%s/%d", pointer, len(list)), depth+1)
			if err != nil {
				return nil, err
			}
			list = append(list, v)
		}
		_, err = j.d.ReadToken()
		return list, err
	case '"':
		return tok.String(), nil
	case 't', 'f':
		return tok.Bool(), nil
	case '0':
		return number(tok.String())
	}
	return nil, nil
}

// number keeps an integer exact.
func number(text string) (any, error) {
	var i int64
	if json.Unmarshal([]byte(text), &i) == nil {
		return i, nil
	}
	var f float64
	if err := json.Unmarshal([]byte(text), &f); err != nil {
		return nil, fmt.Errorf("the number %s is out of range", text)
	}
	return f, nil
}
