// Package tracing tells an OpenTelemetry collector how syncs went: OTLP over HTTP, as JSON. A span says which end began, which way events go, how many
// crossed, how long it took and how it ended; it never names a peer, an event, a key or an address.
package tracing

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
)

// Config is what a Tracer is made of.
type Config struct {
	Endpoint string       // of the collector, such as http://127.0.0.1:4318/v1/traces
	Client   *http.Client // by which spans are posted
	Version  string       // of this program
	Log      *slog.Logger
}

// What is kept while the collector is slow or away; what is more is dropped.
const (
	queued        = 1024
	perBatch      = 256
	batchEvery    = 5 * time.Second
	exportTimeout = 10 * time.Second
)

// CheckEndpoint says what is wrong with the address of a collector.
func CheckEndpoint(s string) error {
	u, err := url.Parse(s)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.Path == "" || u.Path == "/" {
		return errors.New("want a URL with a path such as http://127.0.0.1:4318/v1/traces")
	}
	return nil
}

// Tracer makes traces of syncs.
type Tracer struct {
	provider *sdk.TracerProvider
	tracer   trace.Tracer
}

// Open makes a tracer. It posts in the background, and holds nothing up.
func Open(cfg Config) (*Tracer, error) {
	if err := CheckEndpoint(cfg.Endpoint); err != nil {
		return nil, fmt.Errorf("trace to %q: %w", cfg.Endpoint, err)
	}
	about := resource.NewSchemaless(attribute.String("service.name", "meshnode"), attribute.String("service.version", cfg.Version))
	p := sdk.NewTracerProvider(sdk.WithResource(about), sdk.WithSampler(sdk.AlwaysSample()),
		sdk.WithBatcher(&exporter{cfg: cfg}, sdk.WithMaxQueueSize(queued), sdk.WithMaxExportBatchSize(perBatch), sdk.WithBatchTimeout(batchEvery), sdk.WithExportTimeout(exportTimeout)))
	return &Tracer{p, p.Tracer(scope)}, nil
}

// scope is the instrumentation scope of every span.
const scope = "fleetmesh.org/fleetmesh/sync"

// Close posts what is left, within ctx.
func (t *Tracer) Close(ctx context.Context) error {
	if err := t.provider.Shutdown(ctx); err != nil {
		return fmt.Errorf("end the traces: %w", err)
	}
	return nil
}

// Sync is the trace of one sync: a span over all of it, and below that one of the reconciliation and one of the time that it was live.
type Sync struct {
	t     *Tracer
	ctx   context.Context
	whole trace.Span
	part  trace.Span
}

// Sync begins the trace of a sync. role is initiator or responder, mode pull, push or both.
func (t *Tracer) Sync(role, mode string) *Sync {
	ctx, whole := t.tracer.Start(context.Background(), "sync", trace.WithAttributes(attribute.String("fleetmesh.sync.role", role), attribute.String("fleetmesh.sync.mode", mode)))
	_, part := t.tracer.Start(ctx, "sync.reconcile")
	return &Sync{t, ctx, whole, part}
}

// Live says that the ends have reconciled, and what that moved.
func (s *Sync) Live(delivered, taken int64) {
	count(s.part, delivered, taken)
	s.part.End()
	_, s.part = s.t.tracer.Start(s.ctx, "sync.live")
}

// End says how it ended: code is "" where both ends were done with it, and a refusal code or ERROR else.
func (s *Sync) End(code string, delivered, taken int64) {
	for _, span := range []trace.Span{s.part, s.whole} {
		if code != "" {
			span.SetStatus(codes.Error, code)
			span.SetAttributes(attribute.String("fleetmesh.sync.code", code))
		}
		count(span, delivered, taken)
		span.End()
	}
}

func count(span trace.Span, delivered, taken int64) {
	span.SetAttributes(attribute.Int64("fleetmesh.sync.events_delivered", delivered), attribute.Int64("fleetmesh.sync.events_taken", taken))
}
