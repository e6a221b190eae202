package daemon

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"testing"
	"time"
)

// Whoever says nothing more is let go: within a body that is read, within one that is not, and between two requests.
func TestFaceServerEndsSilence(t *testing.T) {
	mux := http.NewServeMux()
	mux.HandleFunc("/read", func(w http.ResponseWriter, r *http.Request) {
		if _, err := io.ReadAll(r.Body); err != nil {
			w.WriteHeader(http.StatusBadRequest)
		}
	})
	mux.HandleFunc("/leave", func(http.ResponseWriter, *http.Request) {})
	server := faceServer(mux, 50*time.Millisecond, 50*time.Millisecond)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go server.Serve(ln)
	t.Cleanup(func() { server.Close() })
	for name, head := range map[string]string{
		"within a body that is read":     "POST /read HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\nabc",
		"within chunks":                  "POST /read HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n",
		"within a body that nobody read": "POST /leave HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\nabc",
		"between two requests":           "GET /leave HTTP/1.1\r\nHost: x\r\n\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			conn, err := net.Dial("tcp", ln.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			conn.SetDeadline(time.Now().Add(10 * time.Second))
			fmt.Fprint(conn, head)
			if _, err := io.Copy(io.Discard, conn); err != nil {
				if ne, ok := err.(net.Error); ok && ne.Timeout() {
					t.Error("the connection is held for as long as its client likes")
				}
			}
		})
	}
}

// An answer may take longer than its request might: the deadline is for the body alone.
func TestBodyInTimeLeavesTheAnswerAlone(t *testing.T) {
	const patience = 20 * time.Millisecond
	gone := make(chan bool, 1)
	server := faceServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		select {
		case <-r.Context().Done():
			gone <- true
		case <-time.After(5 * patience):
			gone <- false
		}
	}), patience, time.Minute)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go server.Serve(ln)
	t.Cleanup(func() { server.Close() })
	conn, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprint(conn, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc")
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if <-gone {
		t.Error("the handler was told that its client is gone")
	}
}
