package control

import (
	"context"
	"encoding/json"
	"fmt"
)

// Local calls a set of methods from within the process that serves them. What goes in and comes out passes through the same text as
// over the socket, so that a caller within can do exactly what a caller without can. It may serve many calls at once.
type Local map[string]Handler

// Call runs one method, as Client.Call does.
func (l Local) Call(ctx context.Context, method string, params, result any, onStep func(json.RawMessage)) error {
	raw, err := json.Marshal(params)
	if err != nil {
		return fmt.Errorf("encode the parameters of %s: %w", method, err)
	}
	out, err := serveMethod(ctx, l, method, raw, func(step any) {
		if text, err := json.Marshal(step); err == nil && onStep != nil {
			onStep(text)
		}
	})
	if err != nil {
		return asError(err)
	}
	text, err := json.Marshal(out)
	if err != nil {
		return fmt.Errorf("encode the result of %s: %w", method, err)
	}
	if result == nil {
		return nil
	}
	if err := json.Unmarshal(text, result); err != nil {
		return fmt.Errorf("read the result of %s: %w", method, err)
	}
	return nil
}
