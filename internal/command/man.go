package command

import (
	"fmt"
	"strings"

	"github.com/alecthomas/kong"

	"fleetmesh.org/fleetmesh/spec"
)

// ExitStatuses are the statuses that commands end with, and what each says.
var ExitStatuses = []struct {
	Code int
	Says string
}{
	{spec.ExitOK, "done"},
	{spec.ExitFailure, "it failed"},
	{spec.ExitUsage, "the command line is wrong"},
	{spec.ExitRefused, "refused as a matter of policy: asking again is no use"},
	{spec.ExitRetry, "refused for now: ask less, or later"},
	{spec.ExitCredential, "something must be supplied first: a key, a grant, work, payment"},
	{spec.ExitInvalid, "what was sent is wrong"},
	{spec.ExitUnsupported, "the other side does not do this"},
	{spec.ExitUnreachable, "nobody answered"},
}

// Manual writes the manual page of a command, section 1, made of its grammar.
func Manual(m *kong.Application, build string) string {
	var b strings.Builder
	about, _, _ := strings.Cut(m.Help, "\n")
	fmt.Fprintf(&b, ".TH %s 1 \"\" \"fleetmesh %s\" \"fleetmesh\"\n.SH NAME\n%s \\- %s\n", strings.ToUpper(m.Name), roff(build), m.Name, roff(strings.TrimSuffix(about, ".")))
	fmt.Fprintf(&b, ".SH SYNOPSIS\n.B %s\n.I verb\n[\\fIoption\\fR ...]\n.SH DESCRIPTION\n", m.Name)
	paragraphs(&b, m.Help)
	b.WriteString(".SH OPTIONS\n")
	options(&b, m.Node)
	group := ""
	for _, v := range verbs(m) {
		if v.path == "" {
			continue
		}
		if v.Parent == m.Node {
			title := "Verbs"
			if v.Group != nil && v.Group.Title != "" {
				title = v.Group.Title
			}
			if title != group {
				fmt.Fprintf(&b, ".SH %s\n", strings.ToUpper(roff(title)))
				group = title
			}
		}
		fmt.Fprintf(&b, ".SS %s\n%s\n", roff(strings.TrimSpace(m.Name+" "+v.path+" "+positionals(v.Node))), roff(v.Help))
		options(&b, v.Node)
		paragraphs(&b, v.Detail)
	}
	b.WriteString(".SH EXIT STATUS\n")
	for _, s := range ExitStatuses {
		fmt.Fprintf(&b, ".TP\n.B %d\n%s\n", s.Code, roff(s.Says))
	}
	b.WriteString(".PP\nThe verbs for monitoring systems say 0, 1 and 2 in the sense of those; their own sections tell.\n")
	return b.String()
}

func positionals(n *kong.Node) string {
	var out []string
	for _, p := range n.Positional {
		out = append(out, p.Summary())
	}
	return strings.Join(out, " ")
}

func options(b *strings.Builder, n *kong.Node) {
	for _, f := range n.Flags {
		if f.Hidden {
			continue
		}
		name := "\\-\\-" + roff(f.Name)
		if f.Short != 0 {
			name = fmt.Sprintf("\\-%c, %s", f.Short, name)
		}
		if takesValue(f) {
			name += "=\\fI" + roff(f.FormatPlaceHolder()) + "\\fR"
		}
		fmt.Fprintf(b, ".TP\n.B %s\n%s\n", name, roff(f.Help))
	}
}

// paragraphs writes text; what is indented stands as it is.
func paragraphs(b *strings.Builder, text string) {
	literal := false
	for line := range strings.SplitSeq(strings.TrimSpace(text), "\n") {
		indented := strings.HasPrefix(line, " ")
		if indented != literal {
			literal = indented
			b.WriteString(map[bool]string{true: ".PP\n.nf\n", false: ".fi\n.PP\n"}[literal])
		}
		switch {
		case strings.TrimSpace(line) == "":
			b.WriteString(".PP\n")
		default:
			b.WriteString(roff(line) + "\n")
		}
	}
	if literal {
		b.WriteString(".fi\n")
	}
	b.WriteString(".PP\n")
}

// roff escapes text for a line that begins with none of roff's requests.
func roff(s string) string {
	s = strings.NewReplacer(`\`, `\e`, "-", `\-`, "…", `\[u2026]`, "—", `\(em`).Replace(s)
	if strings.HasPrefix(s, ".") || strings.HasPrefix(s, "'") {
		s = `\&` + s
	}
	return s
}
