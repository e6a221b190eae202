package relay_test

import (
	"errors"
	"strings"
	"testing"

	"fleetmesh.org/fleetmesh/internal/relay"
	"fleetmesh.org/fleetmesh/internal/relay/relaytest"
)

const (
	opContinuation = 0x0
	opText         = 0x1
	opBinary       = 0x2
	opClose        = 0x8
	opPing         = 0x9
	opPong         = 0xa
)

func frame(fin bool, op byte, p string) []byte {
	return relaytest.AppendFrame(nil, fin, op, []byte(p))
}

func TestFragments(t *testing.T) {
	c := relaytest.Start(t, memory(t)).Dial(t)
	c.Alive()
	req := `["REQ","frag",{"limit":1}]`
	var raw []byte
	raw = append(raw, frame(false, opText, "")...)
	for i := range len(req) {
		raw = append(raw, frame(false, opContinuation, req[i:i+1])...)
		if i == 5 {
			raw = append(raw, frame(true, opPing, "in between")...)
		}
	}
	raw = append(raw, frame(true, opContinuation, "")...)
	for i := range raw { // octet by octet
		c.Raw(raw[i : i+1])
	}
	op, p, err := c.ReadFrame()
	if err != nil || op != opPong || string(p) != "in between" {
		t.Fatalf("ping inside a message: %x %q %v", op, p, err)
	}
	if a := c.AwaitAnswer("frag"); !a.EOSE {
		t.Errorf("fragmented REQ: %+v", a)
	}

	// A character that is split between two fragments is no fault.
	e := relaytest.Event(relaytest.A, relaytest.T0, 1, nil, "é")
	note := string(e.JSON())
	cut := strings.Index(note, "é") + 1
	c.Raw(append(frame(false, opText, `["EVENT",`+note[:cut]), frame(true, opContinuation, note[cut:]+"]")...))
	c.AwaitOK(e.ID.String())
	if got := c.Get(`{"kinds":[1]}`).Contents(); len(got) != 1 || got[0] != "é" {
		t.Errorf("split character: %q", got)
	}
}

func TestLargeMessages(t *testing.T) {
	c := relaytest.Start(t, memory(t)).Dial(t)
	for _, n := range []int{1, 100, 125, 126, 1000, 1 << 10, 32 << 10, 65535 - 400, 65536, 200 << 10, 500 << 10} {
		e := relaytest.Event(relaytest.A, relaytest.T0, 1, nil, strings.Repeat("y", n))
		c.MustPublish(e)
		if got := c.Get(`{"ids":["` + e.ID.String() + `"]}`).Events; len(got) != 1 || len(got[0].Content) != n {
			t.Errorf("content of %d octets: not served", n)
		}
	}
}

// TestBadFrames checks that what RFC 6455 forbids ends the connection with the code that it names.
func TestBadFrames(t *testing.T) {
	r := relaytest.Start(t, memory(t))
	unmasked := append([]byte{0x81, 2}, "[]"...)
	for name, c := range map[string]struct {
		raw  []byte
		code int
	}{
		"not masked":               {unmasked, 1002},
		"reserved bit":             {append([]byte{0xc1}, frame(true, opText, "[]")[1:]...), 1002},
		"unknown opcode":           {frame(true, 0x3, "[]"), 1002},
		"unknown control opcode":   {frame(true, 0xb, ""), 1002},
		"continuation of nothing":  {frame(true, opContinuation, "x"), 1002},
		"text inside a message":    {append(frame(false, opText, "["), frame(true, opText, "[]")...), 1002},
		"long ping":                {frame(true, opPing, strings.Repeat("p", 126)), 1002},
		"ping in fragments":        {frame(false, opPing, "p"), 1002},
		"close of one octet":       {frame(true, opClose, "x"), 1002},
		"close with code 1005":     {frame(true, opClose, "\x03\xed"), 1002},
		"close with code 999":      {frame(true, opClose, "\x03\xe7"), 1002},
		"close reason not UTF-8":   {frame(true, opClose, "\x03\xe8\xff"), 1007},
		"text not UTF-8":           {frame(true, opText, "[\"\xff\"]"), 1007},
		"surrogate in text":        {frame(true, opText, "\xed\xa0\x80"), 1007},
		"too large":                {[]byte{0x81, 0xff, 0, 0, 0, 1, 0, 0, 0, 0, 1, 2, 3, 4}, 1009},
		"length with its top bit":  {[]byte{0x81, 0xff, 0x80, 0, 0, 1, 0, 0, 0, 0, 1, 2, 3, 4}, 1002},
		"too large in fragments":   {append(frame(false, opText, strings.Repeat("[", 2<<20)), frame(true, opContinuation, "[")...), 1009},
		"a proper goodbye":         {frame(true, opClose, "\x03\xe8bye"), 1000},
		"a goodbye without a code": {frame(true, opClose, ""), 1000},
		"a private code":           {frame(true, opClose, "\x0f\xa0"), 4000},
	} {
		t.Run(name, func(t *testing.T) {
			client := r.Dial(t)
			client.Raw(c.raw)
			if got := client.AwaitClose(); got.Code != c.code {
				t.Errorf("closed with %d %q, want %d", got.Code, got.Reason, c.code)
			}
			if _, _, err := client.ReadFrame(); err == nil {
				t.Error("frames after the close frame")
			}
		})
	}
}

func TestBinaryIsRefusedKindly(t *testing.T) {
	c := relaytest.Start(t, memory(t)).Dial(t)
	c.Raw(frame(true, opBinary, "\xff\xfe"))
	if m := c.Next(); m.Label() != "NOTICE" {
		t.Errorf("binary: %v", m)
	}
	c.Alive()
}

func TestSilence(t *testing.T) {
	r := relaytest.Start(t, memory(t), func(c *relay.Config) { c.Limits.PingInterval = 1e6 })
	c := r.Dial(t)
	for { // a ping comes; no answer, and the connection ends with a code
		op, _, err := c.ReadFrame()
		if err != nil {
			t.Fatal(err)
		}
		if op == opPing {
			break
		}
	}
	var closed *relaytest.Closed
	for err := error(nil); !errors.As(err, &closed); {
		op, p, rerr := c.ReadFrame()
		if rerr != nil {
			t.Fatal(rerr)
		}
		if op == opClose {
			closed = &relaytest.Closed{Code: int(p[0])<<8 | int(p[1]), Reason: string(p[2:])}
			break
		}
	}
	if closed.Code != 1008 || !strings.Contains(closed.Reason, "ping") {
		t.Errorf("closed with %v", closed)
	}
}

func TestHandshakeRefusals(t *testing.T) {
	r := relaytest.Start(t, memory(t), func(c *relay.Config) { c.Limits.ConnectionsPerIP = 2 })
	r.Dial(t)
	second := r.Dial(t)
	if _, status, err := relaytest.Handshake(t, r.Addr, "/"); err != nil || status != 429 {
		t.Errorf("third connection: %d %v", status, err)
	}
	second.Raw(frame(true, opClose, ""))
	second.AwaitClose()
	_ = second.Conn.Close()
	r.AwaitOpen(t, 1)
	r.Dial(t).Alive()
}
