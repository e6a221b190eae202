// Package control is meshnode-control/1: JSON-RPC 2.0 over a Unix socket of
// mode 0600, one object a line (spec/constants.json). The command line and everything else that
// operates a running node goes through it, and can do nothing that it does not offer.
package control

import (
	"encoding/json"
	"fmt"
)

// Protocol names the protocol and its version; the method "hello" answers it.
const Protocol = "meshnode-control/1"

// MaxPath is how many octets the path of a Unix socket may have everywhere.
const MaxPath = 104

// MaxLine bounds one object, in octets.
const MaxLine = 64 << 20

// Codes of JSON-RPC 2.0, and ours for a refusal that the node decided.
const (
	CodeParse    = -32700
	CodeInvalid  = -32600
	CodeMethod   = -32601
	CodeParams   = -32602
	CodeInternal = -32603
	CodeRefused  = -32000
)

// Error is a JSON-RPC error object. Refusal is a code of package spec where the node refused, else empty.
type Error struct {
	Code    int        `json:"code"`
	Message string     `json:"message"`
	Data    *ErrorData `json:"data,omitempty"`
}

// ErrorData carries what a program needs to act on a refusal.
type ErrorData struct {
	Refusal string `json:"refusal,omitempty"`
}

func (e *Error) Error() string { return e.Message }

// Refuse makes the error that answers a refused request.
func Refuse(refusal, format string, args ...any) *Error {
	return &Error{Code: CodeRefused, Message: fmt.Sprintf(format, args...), Data: &ErrorData{Refusal: refusal}}
}

// BadParams makes the error that answers parameters of the wrong shape.
func BadParams(format string, args ...any) *Error {
	return &Error{Code: CodeParams, Message: fmt.Sprintf(format, args...)}
}

// request is one call; response is its end; progress is a notification before it.
type request struct {
	Version string          `json:"jsonrpc"`
	ID      json.RawMessage `json:"id,omitempty"`
	Method  string          `json:"method"`
	Params  json.RawMessage `json:"params,omitempty"`
}

type response struct {
	Version string          `json:"jsonrpc"`
	ID      json.RawMessage `json:"id"`
	Result  json.RawMessage `json:"result,omitempty"`
	Error   *Error          `json:"error,omitempty"`
}

type progress struct {
	Version string         `json:"jsonrpc"`
	Method  string         `json:"method"` // always "progress"
	Params  progressParams `json:"params"`
}

type progressParams struct {
	ID   json.RawMessage `json:"id"`
	Step json.RawMessage `json:"step"`
}
