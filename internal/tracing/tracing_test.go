package tracing

import (
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// collected decodes what a collector was posted.
type collected struct {
	ResourceSpans []struct {
		Resource   struct{ Attributes []attr }
		ScopeSpans []struct {
			Scope struct{ Name string }
			Spans []struct {
				TraceID, SpanID, ParentSpanID, Name string
				StartTimeUnixNano, EndTimeUnixNano  json.Number
				Kind                                int
				Attributes                          []attr
				Status                              struct {
					Code    int
					Message string
				}
			}
		}
	}
}

type attr struct {
	Key   string
	Value struct {
		StringValue string
		IntValue    json.Number
	}
}

func open(t *testing.T, url string, log io.Writer) *Tracer {
	t.Helper()
	tr, err := Open(Config{Endpoint: url + "/v1/traces", Client: http.DefaultClient, Version: "v9", Log: slog.New(slog.NewTextHandler(log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	return tr
}

// A collector gets a trace of each sync: the whole, the reconciliation and the live part.
func TestSyncTrace(t *testing.T) {
	var got collected
	var path, kind string
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		path, kind = r.URL.Path, r.Header.Get("Content-Type")
		if err := json.NewDecoder(r.Body).Decode(&got); err != nil {
			t.Error(err)
		}
		io.WriteString(w, "{}")
	}))
	defer srv.Close()
	tr := open(t, srv.URL, io.Discard)
	s := tr.Sync("initiator", "both")
	s.Live(3, 4)
	s.End("", 5, 6)
	tr.Sync("responder", "pull").End("OVER_BUDGET", 1, 0)
	if err := tr.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if path != "/v1/traces" || kind != "application/json" || len(got.ResourceSpans) != 1 || len(got.ResourceSpans[0].ScopeSpans) != 1 {
		t.Fatalf("%s %s %+v", path, kind, got)
	}
	spans := got.ResourceSpans[0].ScopeSpans[0].Spans
	var names []string
	for _, s := range spans {
		names = append(names, s.Name)
		if len(s.TraceID) != 32 || len(s.SpanID) != 16 || s.Kind != 1 || s.StartTimeUnixNano == "" || s.EndTimeUnixNano < s.StartTimeUnixNano {
			t.Errorf("%+v", s)
		}
	}
	if strings.Join(names, " ") != "sync.reconcile sync.live sync sync.reconcile sync" {
		t.Fatalf("spans %v", names)
	}
	if spans[0].TraceID != spans[2].TraceID || spans[0].ParentSpanID != spans[2].SpanID || spans[2].ParentSpanID != "" || spans[4].TraceID == spans[2].TraceID {
		t.Errorf("parents: %+v", spans)
	}
	if spans[2].Status.Code != 0 || spans[4].Status.Code != 2 || spans[4].Status.Message != "OVER_BUDGET" {
		t.Errorf("status: %+v, %+v", spans[2].Status, spans[4].Status)
	}
	values := map[string]string{}
	for _, a := range spans[2].Attributes {
		values[a.Key] = a.Value.StringValue + string(a.Value.IntValue)
	}
	if values["fleetmesh.sync.role"] != "initiator" || values["fleetmesh.sync.mode"] != "both" || values["fleetmesh.sync.events_delivered"] != "5" || values["fleetmesh.sync.events_taken"] != "6" {
		t.Errorf("attributes %v", values)
	}
	if a := got.ResourceSpans[0].Resource.Attributes; len(a) != 2 || a[0].Value.StringValue != "meshnode" || a[1].Value.StringValue != "v9" {
		t.Errorf("resource %+v", a)
	}
}

// A collector that is away, or refuses, is a line in the log and nothing else.
func TestCollectorFails(t *testing.T) {
	refusing := httptest.NewServer(http.NotFoundHandler())
	defer refusing.Close()
	gone := httptest.NewServer(nil)
	gone.Close()
	for url, want := range map[string]string{refusing.URL: "404", gone.URL: "refused"} {
		var log strings.Builder
		tr := open(t, url, &log)
		for range 3 {
			tr.Sync("initiator", "both").End("", 0, 0)
			if err := tr.provider.ForceFlush(t.Context()); err != nil {
				t.Error(err)
			}
		}
		if err := tr.Close(t.Context()); err != nil {
			t.Error(err)
		}
		if strings.Count(log.String(), "takes no traces") != 1 || !strings.Contains(log.String(), want) {
			t.Errorf("%s: %s", want, log.String())
		}
	}
	for _, bad := range []string{"", "127.0.0.1:4318", "http://127.0.0.1:4318", "grpc://x/y"} {
		if _, err := Open(Config{Endpoint: bad}); err == nil {
			t.Errorf("%q passes", bad)
		}
	}
}
