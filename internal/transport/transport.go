// Package transport carries sealed frames between two nodes over whatever the
// two of them share. It never sees plaintext and decides nothing about peers:
// it listens, dials and walks the ladder (protocol § Transports).
//
// The port is in this file; [Memory] is its in-process form; the adapters wss,
// https, unix and giftwrap each have a file. A heavier carrier is a package of
// its own beside this one and only has to satisfy [Transport].
package transport

import (
	"context"
	"errors"
	"fmt"

	"fleetmesh.org/fleetmesh/nostr"
)

// MaxFrame is the largest frame, in octets: one DIDComm encrypted message
// (spec/constants.json, stream framing).
const MaxFrame = 4 << 20

// StreamProtocol names the stream framing where a carrier negotiates one
// (spec/constants.json).
const StreamProtocol = "fleetmesh/didcomm/1"

// Subprotocol is the WebSocket subprotocol a dialer offers on the URL of a
// relay face (spec/constants.json).
const Subprotocol = "didcomm/v2"

// ContentType is the media type of a frame over HTTPS (spec/constants.json).
const ContentType = "application/didcomm-encrypted+json"

// Endpoint is one way to reach a node, as its descriptor advertises it.
type Endpoint struct {
	Scheme     string // "wss", "https", "unix", "giftwrap", "memory", …
	Address    string // what Dial and Listen of that scheme understand: a URL, a path, a name
	Preference int    // lower is liked better; the ladder adds both sides' numbers
}

// Errors that a caller tells apart.
var (
	// ErrClosed is returned by a stream or listener that was closed, by either end.
	ErrClosed = errors.New("transport: closed")
	// ErrFrameTooLarge is returned for a frame over MaxFrame, sent or received.
	ErrFrameTooLarge = fmt.Errorf("transport: frame is larger than %d octets", MaxFrame)
	// ErrOrdinaryRelay says that a WebSocket face does not echo the subprotocol:
	// it is a relay and no more; gift wrap may still reach the peer through it.
	ErrOrdinaryRelay = errors.New("transport: the face does not speak " + Subprotocol + ": an ordinary relay")
	// ErrOneWay is returned by Send on a stream that only receives, such as an
	// accepted https POST: dial the peer to answer.
	ErrOneWay = errors.New("transport: nothing can be sent back on this stream")
)

// Transport is one carrier. Its methods are safe for use by several goroutines.
type Transport interface {
	// Scheme is the name that descriptors advertise.
	Scheme() string
	// Listen accepts streams at ep until the listener is closed or ctx is done.
	Listen(ctx context.Context, ep Endpoint) (Listener, error)
	// Dial opens a stream to the peer at ep. ctx bounds the dial alone, not the
	// stream's life. The carrier does not authenticate the peer: the sealed
	// frames do. Those that address by key (giftwrap, memory) use peer.
	Dial(ctx context.Context, ep Endpoint, peer nostr.PubKey) (Stream, error)
}

// Listener hands out inbound streams.
type Listener interface {
	// Accept waits for the next stream. After Close it returns ErrClosed.
	Accept(ctx context.Context) (Stream, error)
	// Endpoint is what was really bound: with port 0, the port chosen.
	Endpoint() Endpoint
	// Close stops listening and closes the streams nobody accepted. Streams
	// already accepted live on.
	Close() error
}

// Stream carries whole frames both ways, in order, each at most MaxFrame. One
// goroutine may send while another receives; Close may be called by any, often.
type Stream interface {
	// Send hands frame to the carrier before ctx is done. It does not keep
	// frame. An error other than ErrFrameTooLarge ends the stream: how much of
	// the frame arrived is unknown, so the frame may be sent again on another
	// stream and the receiver drops what it has seen.
	Send(ctx context.Context, frame []byte) error
	// Receive waits for the next frame, which the caller then owns. When ctx
	// is done first, the stream is closed or still whole, as the carrier can.
	Receive(ctx context.Context) ([]byte, error)
	// Scheme names the carrier.
	Scheme() string
	// Close ends the stream; the other end reads ErrClosed once it has read
	// what was sent before.
	Close() error
}
