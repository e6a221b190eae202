// Package command is what the commands share: how a result is printed, which status an error becomes, and what is made of their grammar: shell completion, manual
// pages, and the examples in their help, which tests run.
package command

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"

	"fleetmesh.org/fleetmesh/internal/control"
	"fleetmesh.org/fleetmesh/spec"
)

// Coded is an error that chose its exit status. If its text is empty, nothing more is said.
type Coded interface {
	error
	ExitCode() int
}

// Hint is what a command knows of an error that this package does not: the status, and the words to say.
type Hint struct {
	Is     error
	Code   int
	Advice string // appended to the error's own words
}

// Status maps an error to an exit status (spec/codes.go) and prints it to w after the name of the command.
func Status(w io.Writer, name string, err error, hints ...Hint) int {
	if err == nil {
		return spec.ExitOK
	}
	code := spec.ExitFailure
	var chosen Coded
	var refused *control.Error
	switch {
	case errors.As(err, &chosen):
		code = chosen.ExitCode()
	case errors.As(err, &refused) && refused.Code == control.CodeParams:
		code = spec.ExitUsage
	case errors.As(err, &refused) && refused.Data != nil && refused.Data.Refusal != "":
		code = spec.Code(refused.Data.Refusal).Refusal().Exit
	default:
		for _, h := range hints {
			if errors.Is(err, h.Is) {
				code = h.Code
				if h.Advice != "" {
					err = fmt.Errorf("%w: %s", err, h.Advice)
				}
				break
			}
		}
	}
	if msg := err.Error(); msg != "" {
		fmt.Fprintf(w, "%s: %s\n", name, msg)
	}
	return code
}

// members is a list's own members, and of anything else that one thing.
func members(raw json.RawMessage) []json.RawMessage {
	var list []json.RawMessage
	if json.Unmarshal(raw, &list) != nil || list == nil {
		return []json.RawMessage{raw}
	}
	return list
}

// Print writes v as one line of JSON, or calls plain. Of a slice, or of text that is a JSON list, each member is a line: whoever reads a list needs no end to begin, and none is an empty output.
func Print(w io.Writer, asJSON bool, v any, plain func(io.Writer)) error {
	if !asJSON {
		plain(w)
		return nil
	}
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	if raw, ok := v.(json.RawMessage); ok {
		v = members(raw)
	}
	list := reflect.ValueOf(v)
	if list.Kind() != reflect.Slice {
		list = reflect.ValueOf([]any{v})
	}
	for i := range list.Len() {
		if err := e.Encode(list.Index(i).Interface()); err != nil {
			return fmt.Errorf("print the result: %w", err)
		}
	}
	return nil
}
