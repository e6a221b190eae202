package daemon

import (
	"context"
	"fmt"

	"fleetmesh.org/fleetmesh/internal/host"
	"fleetmesh.org/fleetmesh/internal/tracing"
)

// TracingSpec says where traces of syncs go.
type TracingSpec struct {
	Endpoint string `yaml:"endpoint,omitempty"` // of an OpenTelemetry collector, such as http://127.0.0.1:4318/v1/traces; empty: nowhere
}

func (s *TracingSpec) check() (errs []error) {
	if s.Endpoint != "" {
		if err := tracing.CheckEndpoint(s.Endpoint); err != nil {
			errs = append(errs, fmt.Errorf("spec.tracing.endpoint is %q: %w", s.Endpoint, err))
		}
	}
	return errs
}

// openTraces makes the tracer, if the operator wants one. It posts the way that everything goes out.
func (f *federation) openTraces() (err error) {
	if e := f.n.cfg().Spec.Tracing.Endpoint; e != "" {
		f.traces, err = tracing.Open(tracing.Config{Endpoint: e, Client: f.net.HTTPClient(), Version: f.n.opt.Build, Log: f.n.log})
	}
	return err
}

// trace is what the host calls, nil where nothing is traced.
func (f *federation) trace() func(role, mode string) host.SyncTrace {
	if f.traces == nil {
		return nil
	}
	return func(role, mode string) host.SyncTrace { return f.traces.Sync(role, mode) }
}

// closeTraces posts what is left.
func (f *federation) closeTraces(ctx context.Context) {
	if f.traces == nil {
		return
	}
	if err := f.traces.Close(ctx); err != nil {
		f.n.log.Warn("traces were not posted to their end", "err", err)
	}
}
