package control

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"syscall"
	"testing"
	"time"
)

// raw connects without a client.
func raw(t *testing.T, path string) net.Conn {
	t.Helper()
	conn, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(30 * time.Second)); err != nil {
		t.Fatal(err)
	}
	return conn
}

// works says that the socket serves an ordinary caller.
func works(t *testing.T, path string) {
	t.Helper()
	var sum int
	if err := dial(t, path).Call(t.Context(), "sum", sumParams{2, 3}, &sum, nil); err != nil || sum != 5 {
		t.Errorf("the socket serves no longer: %v", err)
	}
}

func TestOversizedIsSaidAndClosed(t *testing.T) {
	path := start(t, methods)
	conn := raw(t, path)
	go func() {
		block := []byte(strings.Repeat("x", 1<<20))
		for range MaxLine>>20 + 2 {
			if _, err := conn.Write(block); err != nil {
				return // it was closed
			}
		}
	}()
	line, err := bufio.NewReader(conn).ReadString('\n')
	if err != nil || !strings.Contains(line, "more than") {
		t.Errorf("%q, %v", line, err)
	}
	works(t, path)
}

func TestMalformedHarmsNobody(t *testing.T) {
	path := start(t, methods)
	for _, line := range []string{
		strings.Repeat("[", 200_000), strings.Repeat(`{"a":`, 200_000), "\x00\xff\xfe", `{"jsonrpc":"2.0","id":1,"method":"sum","params":[1,2]}`,
		`{"jsonrpc":"2.0","id":1,"method":"../../etc/passwd"}`, `{"jsonrpc":"2.0","id":1,"method":"sum","params":{"A":1e999}}`, `{"jsonrpc":"1.0","id":1,"method":"sum"}`,
		`{"jsonrpc":"2.0","id":1,"method":"sum","params":{"A":1,"B":2},"method":"fail"}`,
	} {
		conn := raw(t, path)
		if _, err := io.WriteString(conn, line+"\n"); err != nil {
			t.Fatal(err)
		}
		got, err := bufio.NewReader(conn).ReadString('\n')
		if err != nil || !strings.Contains(got, `"error"`) {
			t.Errorf("%.60q: %.200q, %v", line, got, err)
		}
		conn.Close()
	}
	works(t, path)
}

// Slow and silent callers hold their own places and nobody else's; when all are taken the next is told, and a place that is left is free.
func TestManyAndSlowConnections(t *testing.T) {
	path := start(t, methods)
	var held []net.Conn
	for range MaxConnections {
		conn := raw(t, path)
		if _, err := io.WriteString(conn, `{"jsonrpc":"2.0","id":1,`); err != nil {
			t.Fatal(err)
		}
		held = append(held, conn)
	}
	line, err := bufio.NewReader(raw(t, path)).ReadString('\n')
	if err != nil || !strings.Contains(line, "64 callers are connected") {
		t.Errorf("one too many: %q, %v", line, err)
	}
	for _, conn := range held {
		conn.Close()
	}
	deadline := time.Now().Add(20 * time.Second)
	for {
		c, err := Dial(t.Context(), path)
		if err != nil {
			t.Fatal(err)
		}
		err = c.Call(t.Context(), "sum", sumParams{1, 1}, nil, nil)
		c.Close()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("the places are not free again: %v", err)
		}
	}
}

// A caller that goes away in the middle of its call ends it, and the socket goes on.
func TestTornCalls(t *testing.T) {
	path := start(t, methods)
	for range 200 {
		conn := raw(t, path)
		if _, err := io.WriteString(conn, `{"jsonrpc":"2.0","id":1,"method":"sum","params":{"A":1,"B":2}}`+"\n{"); err != nil {
			t.Fatal(err)
		}
		conn.Close()
	}
	works(t, path)
}

const asCaller = "FLEETMESH_TEST_CALLER"

// TestMain lets this binary be a caller of another user.
func TestMain(m *testing.M) {
	if path := os.Getenv(asCaller); path != "" {
		c, err := Dial(context.Background(), path)
		if err == nil {
			err = c.Call(context.Background(), "hello", nil, nil, nil)
		}
		if err != nil {
			os.Stdout.WriteString(err.Error())
			os.Exit(3)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func TestAnotherUserIsTurnedAway(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can be another user")
	}
	path := start(t, methods)
	dir := filepath.Dir(path)
	me, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	copied := filepath.Join(dir, "caller") // where the other user may run it
	text, err := os.ReadFile(me)
	if err == nil {
		err = errors.Join(os.WriteFile(copied, text, 0o755), os.Chmod(dir, 0o755))
	}
	if err != nil {
		t.Fatal(err)
	}
	call := func(uid uint32) (string, error) {
		cmd := exec.Command(copied)
		cmd.Env = []string{asCaller + "=" + path}
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
		out, err := cmd.Output()
		return string(out), err
	}
	if out, err := call(0); err != nil {
		t.Fatalf("the owner: %v, %s", err, out)
	}
	if out, err := call(65534); err == nil || !strings.Contains(out, "permission denied") {
		t.Errorf("another user, by the mode of the socket: %v, %s", err, out)
	}
	if err := os.Chmod(path, 0o666); err != nil { // somebody meant well
		t.Fatal(err)
	}
	if out, err := call(65534); err == nil || !strings.Contains(out, "user 65534") {
		t.Errorf("another user, through an open socket: %v, %s", err, out)
	}
	works(t, path)
}

func TestShapes(t *testing.T) {
	type inner struct {
		N int `json:"n"`
	}
	type params struct {
		inner
		Name  string          `json:"name,omitempty"`
		Any   json.RawMessage `json:"any"`
		List  []inner         `json:"list"`
		Table map[string]bool `json:"table"`
		At    *time.Time      `json:"at"`
		Hide  string          `json:"-"`
		Share float64         `json:"share"`
		Bytes []byte          `json:"bytes"`
	}
	h := Shaped[params, struct{}, []string](func(context.Context, json.RawMessage, func(any)) (any, error) { panic("it ran") })
	s := SchemaOf(Describe(h).Params, true)
	p := s["properties"].(map[string]any)
	if len(p) != 8 || s["additionalProperties"] != false || !reflect.DeepEqual(p["at"], map[string]any{"type": "string"}) || !reflect.DeepEqual(p["n"], map[string]any{"type": "integer"}) {
		t.Errorf("%v", s)
	}
	if r := SchemaOf(Describe(h).Result, false); r["type"] != "array" {
		t.Errorf("%v", r)
	}
}
