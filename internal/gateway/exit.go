package gateway

import (
	"context"
	"errors"

	"fleetmesh.org/fleetmesh/spec"
)

// Exit codes of a sync beyond the ones that all verbs share.
const (
	ExitPartial = 9  // the run ended well, but something could not be settled; another run may
	ExitLocal   = 10 // the local store failed
)

// ExitCodes documents the exit codes of a sync, in order.
var ExitCodes = []struct {
	Code    int
	Meaning string
}{
	{spec.ExitOK, "both sides agree, as far as each may and will hold what the other has"},
	{spec.ExitFailure, "interrupted, or a failure that has no code of its own"},
	{spec.ExitUsage, "the URL, the filter or an option is wrong"},
	{spec.ExitRefused, "the relay refuses to serve or to take the events"},
	{spec.ExitRetry, "the relay limits the rate and did not relent"},
	{spec.ExitCredential, "the relay requires authentication, and there is no key or it is not accepted"},
	{spec.ExitInvalid, "the relay's messages make no sense"},
	{spec.ExitUnreachable, "the relay cannot be reached, or went away and did not come back"},
	{ExitPartial, "some events could not be settled; run it again"},
	{ExitLocal, "the local store failed"},
}

// Errors of a sync that callers tell apart. ErrAuthRequired, ErrURL and ErrTimeout belong to them too.
var (
	ErrUsage       = errors.New("cannot be synced like this")
	ErrUnreachable = errors.New("the relay cannot be reached")
	ErrRefused     = errors.New("refused by the relay")
	ErrLimited     = errors.New("the relay limits the rate")
	ErrProtocol    = errors.New("the relay's messages make no sense")
	ErrPartial     = errors.New("not everything could be settled")
	ErrLocal       = errors.New("local store")
)

// ExitCode returns the exit code for an error of this package, 0 for nil.
func ExitCode(err error) int {
	var lost *LostError
	var closed *ClosedError
	var neg *NegError
	switch {
	case err == nil:
		return spec.ExitOK
	case errors.Is(err, ErrURL), errors.Is(err, ErrUsage):
		return spec.ExitUsage
	case errors.Is(err, ErrLocal):
		return ExitLocal
	case errors.Is(err, context.Canceled):
		return spec.ExitFailure
	case errors.Is(err, ErrAuthRequired):
		return spec.ExitCredential
	case errors.Is(err, ErrLimited):
		return spec.ExitRetry
	case errors.As(err, &closed) && Prefix(closed.Reason) == "auth-required", errors.As(err, &neg) && Prefix(neg.Reason) == "auth-required":
		return spec.ExitCredential
	case errors.As(err, &closed) && Prefix(closed.Reason) == "rate-limited", errors.As(err, &neg) && Prefix(neg.Reason) == "rate-limited":
		return spec.ExitRetry
	case errors.Is(err, ErrRefused), closed != nil, neg != nil:
		return spec.ExitRefused
	case errors.Is(err, ErrProtocol):
		return spec.ExitInvalid
	case errors.Is(err, ErrUnreachable), errors.Is(err, ErrTimeout), errors.As(err, &lost):
		return spec.ExitUnreachable
	case errors.Is(err, ErrPartial):
		return ExitPartial
	}
	return spec.ExitFailure
}
