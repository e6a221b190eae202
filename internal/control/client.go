package control

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"syscall"
)

// ErrNoNode says that no node runs behind the socket.
var ErrNoNode = errors.New("no node is running there")

// Client calls a running node. It serves one call at a time.
type Client struct {
	conn net.Conn
	r    *bufio.Reader
	next int
}

// Dial connects to a node's control socket, or says ErrNoNode.
func Dial(ctx context.Context, path string) (*Client, error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "unix", path)
	switch {
	case errors.Is(err, os.ErrNotExist), errors.Is(err, syscall.ECONNREFUSED):
		return nil, fmt.Errorf("%w (%s)", ErrNoNode, path)
	case err != nil:
		return nil, fmt.Errorf("connect to the control socket: %w", err)
	}
	return &Client{conn: conn, r: bufio.NewReaderSize(conn, 64<<10)}, nil
}

// Close ends the connection, and a call that is under way at the node.
func (c *Client) Close() error { return c.conn.Close() }

// Call runs one method. Progress steps go to onStep, which may be nil. The result is decoded into result, which may be
// nil. A refusal comes back as *Error.
func (c *Client) Call(ctx context.Context, method string, params, result any, onStep func(json.RawMessage)) error {
	c.next++
	id := json.RawMessage(fmt.Sprint(c.next))
	raw, err := json.Marshal(params)
	if err != nil {
		return fmt.Errorf("encode the parameters of %s: %w", method, err)
	}
	line, err := json.Marshal(request{Version: "2.0", ID: id, Method: method, Params: raw})
	if err != nil {
		return fmt.Errorf("encode the call of %s: %w", method, err)
	}
	defer context.AfterFunc(ctx, func() { c.conn.Close() })()
	_, wrote := c.conn.Write(append(line, '\n'))
	for {
		line, err := readLine(c.r) // a node that turns its caller away says why before it closes
		if err != nil {
			return c.lost(ctx, method, cmp.Or(wrote, err))
		}
		var msg struct {
			response
			Method string         `json:"method"`
			Params progressParams `json:"params"`
		}
		if err := json.Unmarshal(line, &msg); err != nil {
			return fmt.Errorf("read the answer of %s: %w", method, err)
		}
		switch {
		case msg.Method == "progress":
			if onStep != nil {
				onStep(msg.Params.Step)
			}
		case msg.Error != nil:
			return msg.Error
		case result == nil:
			return nil
		default:
			if err := json.Unmarshal(msg.Result, result); err != nil {
				return fmt.Errorf("read the result of %s: %w", method, err)
			}
			return nil
		}
	}
}

func (c *Client) lost(ctx context.Context, method string, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return fmt.Errorf("the node went away during %s: %w", method, err)
}

// strict decodes one JSON value and refuses unknown fields and trailing text.
func strict(raw []byte, v any) error {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		return err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errors.New("text after the value")
	}
	return nil
}
