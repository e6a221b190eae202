package tracing

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"sync/atomic"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdk "go.opentelemetry.io/otel/sdk/trace"
)

// The JSON encoding of OTLP (opentelemetry.io, Protocol Buffers encoding in JSON): ids in hex, 64-bit integers as text, enumerations as numbers. The
// library's own exporter would bring gRPC and protobuf, 7.7 MB of binary, to say the same.
type (
	exportRequest struct {
		ResourceSpans []resourceSpans `json:"resourceSpans"`
	}
	resourceSpans struct {
		Resource struct {
			Attributes []keyValue `json:"attributes"`
		} `json:"resource"`
		ScopeSpans []scopeSpans `json:"scopeSpans"`
	}
	scopeSpans struct {
		Scope struct {
			Name string `json:"name"`
		} `json:"scope"`
		Spans []span `json:"spans"`
	}
	span struct {
		TraceID    string     `json:"traceId"`
		SpanID     string     `json:"spanId"`
		ParentID   string     `json:"parentSpanId,omitempty"`
		Name       string     `json:"name"`
		Kind       int        `json:"kind"` // 1: internal
		Start      string     `json:"startTimeUnixNano"`
		End        string     `json:"endTimeUnixNano"`
		Attributes []keyValue `json:"attributes"`
		Status     status     `json:"status"`
	}
	status struct {
		Message string `json:"message,omitempty"`
		Code    int    `json:"code,omitempty"` // 0: unset, 2: error
	}
	keyValue struct {
		Key   string         `json:"key"`
		Value map[string]any `json:"value"`
	}
)

// encode writes spans of one resource and one scope, which is all that there are here.
func encode(list []sdk.ReadOnlySpan) ([]byte, error) {
	var rs resourceSpans
	ss := scopeSpans{}
	ss.Scope.Name = scope
	for i, s := range list {
		if i == 0 {
			rs.Resource.Attributes = keyValues(s.Resource().Attributes())
		}
		one := span{
			TraceID: s.SpanContext().TraceID().String(), SpanID: s.SpanContext().SpanID().String(), Name: s.Name(), Kind: 1,
			Start: strconv.FormatInt(s.StartTime().UnixNano(), 10), End: strconv.FormatInt(s.EndTime().UnixNano(), 10), Attributes: keyValues(s.Attributes()),
		}
		if s.Parent().IsValid() {
			one.ParentID = s.Parent().SpanID().String()
		}
		if s.Status().Code == codes.Error {
			one.Status = status{Message: s.Status().Description, Code: 2}
		}
		ss.Spans = append(ss.Spans, one)
	}
	rs.ScopeSpans = []scopeSpans{ss}
	return json.Marshal(exportRequest{[]resourceSpans{rs}})
}

func keyValues(list []attribute.KeyValue) []keyValue {
	out := []keyValue{}
	for _, a := range list {
		v := map[string]any{"stringValue": a.Value.String()}
		if a.Value.Type() == attribute.INT64 {
			v = map[string]any{"intValue": strconv.FormatInt(a.Value.AsInt64(), 10)}
		}
		out = append(out, keyValue{string(a.Key), v})
	}
	return out
}

// exporter posts spans to a collector. What the collector does not take is let go: a trace is no reason to hold a node up.
type exporter struct {
	cfg     Config
	failing atomic.Bool // the log knows
}

// ExportSpans implements sdk.SpanExporter. Its failures go to the node's log, once until it works again, and not to the library's.
func (e *exporter) ExportSpans(ctx context.Context, list []sdk.ReadOnlySpan) error {
	switch err := e.post(ctx, list); {
	case err == nil && e.failing.Swap(false):
		e.cfg.Log.Info("the collector takes traces again")
	case err != nil && !e.failing.Swap(true):
		e.cfg.Log.Warn("the collector takes no traces; they are let go until it does", "err", err)
	}
	return nil
}

func (e *exporter) post(ctx context.Context, list []sdk.ReadOnlySpan) error {
	if len(list) == 0 {
		return nil
	}
	text, err := encode(list)
	if err != nil {
		return fmt.Errorf("encode %d spans: %w", len(list), err)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, e.cfg.Endpoint, bytes.NewReader(text))
	if err != nil {
		return fmt.Errorf("post spans: %w", err)
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := e.cfg.Client.Do(req)
	if err != nil {
		return fmt.Errorf("post spans: %w", err)
	}
	defer resp.Body.Close()
	_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, 64<<10)) // so that the connection is used again
	if resp.StatusCode < 200 || resp.StatusCode > 299 {
		return fmt.Errorf("post spans: the collector answers %s", resp.Status)
	}
	return nil
}

// Shutdown implements sdk.SpanExporter.
func (e *exporter) Shutdown(context.Context) error { return nil }
