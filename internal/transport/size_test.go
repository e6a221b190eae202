package transport_test

import (
	"net/http/httptest"
	"strings"
	"testing"

	"fleetmesh.org/fleetmesh/internal/transport"
)

// A message that says that it is too large is refused before it is sent.
func TestPostTooLargeIsRefusedAtOnce(t *testing.T) {
	r := httptest.NewRequest("POST", "/didcomm", strings.NewReader("{}"))
	r.Header.Set("Content-Type", transport.ContentType)
	r.ContentLength = transport.MaxFrame + 1
	w := httptest.NewRecorder()
	transport.NewHTTPS(direct(t)).ServeHTTP(w, r)
	if w.Code != 413 || w.Header().Get("Connection") != "close" {
		t.Errorf("%d, %v", w.Code, w.Header())
	}
}
