package manifest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"fleetmesh.org/fleetmesh/internal/control"
	"fleetmesh.org/fleetmesh/spec"
)

// Methods of the control socket by which a node takes manifests.
const (
	MethodGet   = "manifest.get"   // no parameters; answers Running
	MethodPlan  = "manifest.plan"  // Params; answers Plan
	MethodApply = "manifest.apply" // Params; answers Applied
)

// Params are those of manifest.plan and manifest.apply.
type Params struct {
	Documents []json.RawMessage `json:"documents"` // canonical forms, see Set.Documents
	Owner     string            `json:"owner,omitempty"`
	Prune     bool              `json:"prune,omitempty"`
	Hash      string            `json:"running,omitempty"` // apply only if this is still the hash of what runs
}

// Applied is what apply did.
type Applied struct {
	Plan
	Done int `json:"done"` // how many steps; all of them
}

// ErrOldNode says that a node does not speak of manifests.
var ErrOldNode = errors.New("the node is of a build that takes no manifests over its control socket")

// Caller is the part of a control client that is needed here.
type Caller interface {
	Call(ctx context.Context, method string, params, result any, onStep func(json.RawMessage)) error
}

// Ask runs one of the methods on a node.
func Ask(ctx context.Context, c Caller, method string, params, result any) error {
	err := c.Call(ctx, method, params, result, nil)
	var e *control.Error
	if errors.As(err, &e) && e.Code == control.CodeMethod {
		return ErrOldNode
	}
	return err
}

// Serve reads and checks what came over the socket, for the node's side. The error is fit for the caller.
func (p *Params) Serve() (Set, Options, error) {
	set, err := FromDocuments(p.Documents)
	if err == nil {
		err = Check(set)
	}
	if err != nil {
		return nil, Options{}, control.Refuse(string(spec.CodeInvalid), "%v", err)
	}
	return set, Options{Owner: p.Owner, Prune: p.Prune}, nil
}

// RefusedError says why a plan cannot be applied.
func (p *Plan) RefusedError() error {
	for _, c := range p.Changes {
		if c.Effect == Refused {
			return control.Refuse(string(spec.CodePolicy), "nothing was applied: %s", c.line())
		}
	}
	if err := Failed(p.Tests); err != nil {
		return control.Refuse(string(spec.CodeInvalid), "nothing was applied: %v", err)
	}
	return nil
}

func (c *Change) line() string {
	at := c.Object
	if c.Key != "" {
		at += " " + c.Key
	}
	return fmt.Sprintf("%s is refused: %s", at, c.Why)
}
