package didcomm

import (
	"fmt"
	"strconv"
	"strings"
)

// Message types of report-problem/2.0.
const (
	ReportProblem     = "https://didcomm.org/report-problem/2.0"
	TypeProblemReport = ReportProblem + "/problem-report"
)

// Problem says what went wrong in a thread. Code is dotted: a sorter (e error, w
// warning), a scope (p protocol, m message, or a state's name), and what it is.
type Problem struct {
	Code       string   `json:"code"`
	Comment    string   `json:"comment,omitempty"` // with {1}, {2}… for Args
	Args       []string `json:"args,omitempty"`
	EscalateTo string   `json:"escalate_to,omitempty"`
}

// NewProblemReport reports a problem with cause, in a thread of its own whose
// parent is the cause's.
func NewProblemReport(id, from string, now int64, cause *Message, p Problem) (*Message, error) {
	m := &Message{ID: id, Type: TypeProblemReport, From: from, To: answerTo(cause), ParentThreadID: cause.Thread(), CreatedTime: now}
	if cause.ID != "" {
		m.Ack = []string{cause.ID}
	}
	if err := p.check(); err != nil {
		return nil, err
	}
	return m, m.SetBody(p)
}

// ParseProblemReport reads a problem report. Whoever gets one must not answer with
// another, or two ends could report to each other for ever.
func ParseProblemReport(m *Message) (Problem, error) {
	var p Problem
	if m.Type != TypeProblemReport {
		return p, fmt.Errorf("%w: %.80q is not a problem report", ErrSyntax, m.Type)
	}
	if err := m.DecodeBody(&p); err != nil {
		return p, err
	}
	return p, p.check()
}

func (p *Problem) check() error {
	if parts := strings.Split(p.Code, "."); len(parts) < 3 || parts[0] != "e" && parts[0] != "w" {
		return fmt.Errorf("%w: problem code %.80q is not sorter.scope.descriptor", ErrSyntax, p.Code)
	}
	return nil
}

// Text is the comment with its arguments put in; "?" stands for one that is
// missing.
func (p *Problem) Text() string {
	var b strings.Builder
	rest := p.Comment
	for {
		open := strings.IndexByte(rest, '{')
		end := strings.IndexByte(rest[max(open, 0):], '}')
		if open < 0 || end < 0 {
			return b.String() + rest
		}
		end += open
		n, err := strconv.Atoi(rest[open+1 : end])
		switch {
		case err != nil || n < 1:
			b.WriteString(rest[:end+1])
		case n > len(p.Args):
			b.WriteString(rest[:open] + "?")
		default:
			b.WriteString(rest[:open] + p.Args[n-1])
		}
		rest = rest[end+1:]
	}
}
