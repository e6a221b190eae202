package command

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/alecthomas/kong"
)

// verb is a node of the grammar with the words that lead to it.
type verb struct {
	path string // "peer add"; "" for the command itself
	*kong.Node
}

// verbs lists the whole grammar that is not hidden, parents before children.
func verbs(m *kong.Application) (out []verb) {
	var walk func(n *kong.Node, path string)
	walk = func(n *kong.Node, path string) {
		out = append(out, verb{path, n})
		for _, c := range n.Children {
			if !c.Hidden {
				walk(c, strings.TrimSpace(path+" "+c.Name))
			}
		}
	}
	walk(m.Node, "")
	return out
}

// flags are those of a verb and of all above it.
func (v verb) flags() (out []*kong.Flag) {
	for n := v.Node; n != nil; n = n.Parent {
		for _, f := range n.Flags {
			if !f.Hidden {
				out = append(out, f)
			}
		}
	}
	return out
}

// values are what an option may be set to, where that is a closed list.
func values(f *kong.Flag) []string {
	if f.Enum == "" {
		return nil
	}
	return slices.DeleteFunc(slices.Sorted(maps.Keys(f.EnumMap())), func(s string) bool { return s == "" })
}

// takesValue says whether a word follows the option.
func takesValue(f *kong.Flag) bool { return !f.IsBool() && !f.IsCounter() }

// Examples are the command lines in a help text: the indented lines under "Example:" or "Examples:", without what follows a # that begins a comment.
func Examples(detail string) (out []string) {
	in := false
	for line := range strings.SplitSeq(detail, "\n") {
		text := strings.TrimSpace(line)
		switch {
		case text == "Example:" || text == "Examples:":
			in = true
		case !in || text == "":
		case !strings.HasPrefix(line, " "):
			in = false
		default:
			if i := strings.Index(text, "  #"); i >= 0 {
				text = strings.TrimSpace(text[:i])
			}
			out = append(out, text)
		}
	}
	return out
}

// AddExamples gives verbs whose help has none the examples of a table, by path. A path that is not in the grammar is an error, after the others were added.
func AddExamples(m *kong.Application, table map[string]string) (err error) {
	known := map[string]verb{}
	for _, v := range verbs(m) {
		known[v.path] = v
	}
	for _, path := range slices.Sorted(maps.Keys(table)) {
		v, ok := known[path]
		if !ok {
			err = errors.Join(err, fmt.Errorf("examples of %q: there is no such verb", path))
			continue
		}
		if len(Examples(v.Detail)) > 0 {
			continue
		}
		text := "Examples:"
		for line := range strings.SplitSeq(strings.TrimSpace(table[path]), "\n") {
			text += "\n  " + strings.TrimSpace(line)
		}
		if v.Detail != "" {
			text = v.Detail + "\n\n" + text
		}
		v.Detail = text
	}
	return err
}

// Lacking lists the verbs, those that do something, which neither their own help nor that of the verb above them shows in an example.
func Lacking(m *kong.Application) (out []string) {
	for _, v := range verbs(m) {
		if v.Leaf() && len(Examples(v.Detail)) == 0 && len(Examples(v.Parent.Detail)) == 0 {
			out = append(out, v.path)
		}
	}
	return out
}

// AllExamples are the examples of all verbs.
func AllExamples(m *kong.Application) (out []string) {
	for _, v := range verbs(m) {
		out = append(out, Examples(v.Detail)...)
	}
	return out
}

// Calls are the argument lists of every call of a command in a line of shell: pipes, redirections, variables before it and a & behind it are left out.
func Calls(name, line string) (out [][]string, err error) {
	var words []string
	var word strings.Builder
	quote, open := rune(0), false
	flush := func() {
		if open {
			words = append(words, word.String())
		}
		word.Reset()
		open = false
	}
	end := func() {
		flush()
		if i := slices.Index(words, name); i >= 0 {
			args := words[i+1:]
			if j := slices.IndexFunc(args, func(s string) bool { return s == ">" || s == "<" || s == "2>" || s == ">>" }); j >= 0 {
				args = args[:j]
			}
			out = append(out, slices.Clone(args))
		}
		words = nil
	}
	for _, r := range line {
		switch {
		case quote != 0 && r == quote:
			quote = 0
		case quote != 0:
			word.WriteRune(r)
		case r == '\'' || r == '"':
			quote, open = r, true
		case strings.ContainsRune("|;&()", r):
			end()
		case r == '#' && !open:
			end()
			return out, nil
		case r == ' ' || r == '\t':
			flush()
		default:
			word.WriteRune(r)
			open = true
		}
	}
	if quote != 0 {
		return nil, fmt.Errorf("a quote is not closed in %q", line)
	}
	end()
	return out, nil
}
