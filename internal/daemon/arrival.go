package daemon

import (
	"io"
	"net/http"
	"time"
)

const (
	// headPatience is how long the head of a request may take.
	headPatience = 10 * time.Second
	// bodyPatience is how long the body of a request may take, where its handler sets no time of its own as uploads of blobs do.
	bodyPatience = time.Minute
	// idlePatience is how long a connection may wait for its next request.
	idlePatience = time.Minute
)

// faceServer serves the relay face. Nobody holds a connection by saying nothing: not before a request, not within its
// body, and not between two. WebSockets have times of their own.
func faceServer(h http.Handler, body, idle time.Duration) *http.Server {
	return &http.Server{Handler: bodyInTime(h, body), ReadHeaderTimeout: headPatience, IdleTimeout: idle}
}

// bodyInTime ends a connection whose request's body has not come after patience, whether the handler reads it or not:
// the server itself reads what a handler left, and waits for it without end.
func bodyInTime(h http.Handler, patience time.Duration) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ContentLength != 0 {
			c := http.NewResponseController(w)
			if c.SetReadDeadline(time.Now().Add(patience)) == nil {
				r.Body = &arriving{r.Body, c}
			}
		}
		h.ServeHTTP(w, r)
	})
}

// arriving is a body that takes the deadline away once it is whole, so that the answer may take as long as it needs.
type arriving struct {
	io.ReadCloser
	c *http.ResponseController
}

func (a *arriving) Read(p []byte) (int, error) {
	n, err := a.ReadCloser.Read(p)
	if err == io.EOF {
		_ = a.c.SetReadDeadline(time.Time{}) // a connection that is gone is found by its next use
	}
	return n, err
}
