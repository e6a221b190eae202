package gateway

import (
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
)

func TestFetchInfo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newPipeListener()
		body, status := "", http.StatusOK
		srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
			if req.Header.Get("Accept") != "application/nostr+json" || req.Header.Get("X-Test") != "1" {
				t.Errorf("headers %v", req.Header)
			}
			w.Header().Set("Access-Control-Allow-Origin", "*")
			w.WriteHeader(status)
			_, _ = w.Write([]byte(body))
		})}
		go func() { _ = srv.Serve(l) }()
		defer srv.Close()
		o := (&fakeRelay{l: l}).options()
		o.Header = http.Header{"X-Test": {"1"}}

		body = `{"name":"n","supported_nips":[1,"x",77],"limitation":{"max_limit":300,"auth_required":"yes"},"pubkey":7}`
		info, err := FetchInfo(t.Context(), fakeURL, o)
		if err != nil || info.Name != "n" || !slices.Equal(info.SupportedNIPs, []int{1, 77}) || info.Limitation.MaxLimit != 300 || info.PubKey != "" || !info.CORS {
			t.Errorf("%+v, %v", info, err)
		}
		if !info.Supports(77) || info.Supports(50) {
			t.Error("supports")
		}
		for _, bad := range []string{"", "[]", "null", "<html>", `{"name":`} {
			body = bad
			if _, err := FetchInfo(t.Context(), fakeURL, o); err == nil {
				t.Errorf("%q is taken", bad)
			}
		}
		status = http.StatusNotFound
		if _, err := FetchInfo(t.Context(), fakeURL, o); err == nil || !strings.Contains(err.Error(), "404") {
			t.Error(err)
		}
		if _, err := FetchInfo(t.Context(), "mailto:x", o); err == nil {
			t.Error("bad url")
		}
	})
}

func FuzzParseInfo(f *testing.F) {
	f.Add([]byte(`{"name":"n","supported_nips":[1,77],"limitation":{"max_limit":300}}`))
	f.Add([]byte(`{"supported_nips":{},"limitation":[],"name":1}`))
	f.Add([]byte(`null`))
	f.Fuzz(func(t *testing.T, b []byte) {
		info, err := ParseInfo(b)
		if (info == nil) == (err == nil) {
			t.Errorf("%v, %v", info, err)
		}
	})
}
