package blossom

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"
)

// drip is a body of which one octet comes every half minute. It obeys the deadline as a connection does.
type drip struct {
	until   time.Time
	read    int
	timeout bool
	cleared bool
}

func (d *drip) Read(p []byte) (int, error) {
	<-time.After(30 * time.Second)
	if time.Now().After(d.until) {
		d.timeout = true
		return 0, http.ErrHandlerTimeout
	}
	d.read++
	p[0] = 'x'
	return 1, nil
}

func (d *drip) Close() error { return nil }

type deadlineWriter struct {
	*httptest.ResponseRecorder
	d *drip
}

func (w deadlineWriter) SetReadDeadline(t time.Time) error {
	if !t.IsZero() {
		w.d.until = t
	}
	w.d.cleared = w.d.cleared || t.IsZero() && w.d.timeout
	return nil
}

// TestDrippingUpload: a client that sends an octet now and then does not hold a place for ever.
func TestDrippingUpload(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, err := New(Config{Store: NewMemory(0), Now: func() int64 { return testNow }})
		if err != nil {
			t.Fatal(err)
		}
		k := key(t)
		d := &drip{}
		r := httptest.NewRequest("PUT", "/upload", d)
		r.ContentLength = 1000
		r.Header.Set("Authorization", token(t, k, VerbUpload, hashed("x")))
		w := deadlineWriter{httptest.NewRecorder(), d}
		begin := time.Now()
		f.ServeHTTP(w, r)
		if took := time.Since(begin); took > 2*patience || w.Code != 400 {
			t.Errorf("it held a place for %v and got %d", took, w.Code)
		}
		if d.cleared {
			t.Error("the deadline was taken away before the answer: the server would wait for the rest of the body without end")
		}
	})
	if allowance(1<<20) < 4*time.Minute {
		t.Error("a steady slow client is cut off")
	}
}
