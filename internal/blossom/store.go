package blossom

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io"
	"time"

	"fleetmesh.org/fleetmesh/nostr"
)

// Errors that callers branch on.
var (
	ErrNotFound  = errors.New("blob not found")
	ErrBlocked   = errors.New("the blob was erased here and may not come back")
	ErrFull      = errors.New("the blob store is over its quota")
	ErrTooLarge  = errors.New("the blob is larger than allowed")
	ErrTruncated = errors.New("the blob ended early")
	ErrCorrupt   = errors.New("the bytes on disk are no longer the blob's")
	ErrReadOnly  = errors.New("the blob store takes no writes until it is opened again")
	ErrClosed    = errors.New("the blob store is closed")
)

// Owner is a key that uploaded a blob, and when.
type Owner struct {
	PubKey nostr.PubKey
	At     int64 // unix seconds
}

// Meta is what a store knows of a blob.
type Meta struct {
	Hash     Hash
	Size     int64  // octets
	Type     string // media type, never ""
	Uploaded int64  // unix seconds, of the first upload
	Owners   []Owner
}

// OwnedBy returns since when a key owns the blob.
func (m *Meta) OwnedBy(k nostr.PubKey) (at int64, ok bool) {
	for _, o := range m.Owners {
		if o.PubKey == k {
			return o.At, true
		}
	}
	return 0, false
}

// Incoming says what is known of a blob before its bytes are.
type Incoming struct {
	Size  int64        // octets, -1 if unknown; a body of another length is ErrTruncated or ErrTooLarge
	Limit int64        // octets, 0: none
	Type  string       // media type
	Owner nostr.PubKey // the zero key: nobody, the operator's own
	Now   int64        // unix seconds
	// Check is asked once the hash and the size are known, and before anything is kept; its error ends the
	// upload and is returned as it is. nil: all is well.
	Check func(Hash, int64) error
}

// Usage are a store's sizes.
type Usage struct {
	Blobs    int64
	Verified int64 // of those, blobs whose bytes have been hashed since the store was opened: only these count as held
	Corrupt  int64 // of those, blobs whose bytes are not what they were
	Bytes    int64 // octets of all blobs
	Blocked  int64 // names that may not come back
}

// Store keeps blobs. Implementations are safe for concurrent use.
type Store interface {
	// Stat returns what is known of a blob, or ErrNotFound, ErrBlocked or ErrCorrupt.
	Stat(ctx context.Context, h Hash) (Meta, error)
	// Open opens a blob for reading; its errors are Stat's. The bytes are as they are on disk: whoever reads all
	// of them checks the hash and tells Suspect; whoever reads a part asks Verify first.
	Open(ctx context.Context, h Hash) (io.ReadSeekCloser, Meta, error)
	// Verify hashes the blob unless it has been since the store was opened, and returns ErrCorrupt if the hash differs.
	Verify(ctx context.Context, h Hash) error
	// Suspect tells that the blob did not hash to its name. The store looks again and, if it is so, treats the blob
	// as missing until it is stored anew.
	Suspect(ctx context.Context, h Hash) error

	// Put stores what r yields under its hash and makes in.Owner an owner. It reports whether the blob is new. What is
	// returned without error is durable. On error nothing is stored and nothing that was stored before is lost.
	Put(ctx context.Context, r io.Reader, in Incoming) (m Meta, created bool, err error)
	// Own makes a key an owner of a blob that is held.
	Own(ctx context.Context, h Hash, k nostr.PubKey, now int64) (Meta, error)
	// Disown takes an owner away and removes the blob with the last one. ErrNotFound also if the key owns no such blob.
	Disown(ctx context.Context, h Hash, k nostr.PubKey) (removed bool, err error)
	// Remove removes a blob whoever owns it, and returns what was known of it. With block the name may not come
	// back, whether or not the blob was held; ErrNotFound then only says that there were no bytes.
	Remove(ctx context.Context, h Hash, block bool) (Meta, error)
	// Unblock lets a name come back.
	Unblock(ctx context.Context, h Hash) error

	// List returns what a key owns, the newest upload by that key first, at equal times the lower hash first.
	List(ctx context.Context, k nostr.PubKey) ([]Meta, error)
	// All returns every blob held, in no order.
	All(ctx context.Context) ([]Meta, error)
	// Usage returns the store's sizes.
	Usage(ctx context.Context) (Usage, error)
	// Close ends the store. A second call is harmless.
	Close() error
}

// pourSize is how much is read, hashed and written at a time.
const pourSize = 256 << 10

// pour copies a blob and hashes it on the way. grow is told of every piece before it is written.
func pour(ctx context.Context, w io.Writer, r io.Reader, in *Incoming, grow func(int64) error) (h Hash, n int64, err error) {
	sum := sha256.New()
	buf := make([]byte, pourSize)
	for {
		if err := ctx.Err(); err != nil {
			return h, n, fmt.Errorf("receive the blob: %w", context.Cause(ctx))
		}
		k, rerr := r.Read(buf)
		n += int64(k)
		if (in.Limit > 0 && n > in.Limit) || (in.Size >= 0 && n > in.Size) {
			return h, n, ErrTooLarge
		}
		if err := grow(int64(k)); err != nil {
			return h, n, err
		}
		sum.Write(buf[:k])
		if _, err := w.Write(buf[:k]); err != nil {
			return h, n, fmt.Errorf("write the blob: %w", err)
		}
		switch {
		case errors.Is(rerr, io.ErrUnexpectedEOF), rerr == io.EOF && in.Size >= 0 && n < in.Size:
			return h, n, ErrTruncated
		case rerr == io.EOF:
			return digest(sum), n, nil
		case rerr != nil:
			return h, n, fmt.Errorf("receive the blob: %w", rerr)
		}
	}
}

func digest(sum hash.Hash) (h Hash) {
	sum.Sum(h[:0])
	return h
}

// hashOf hashes all that is left in r.
func hashOf(ctx context.Context, r io.Reader) (Hash, int64, error) {
	in := &Incoming{Size: -1}
	return pour(ctx, io.Discard, r, in, func(int64) error { return nil })
}

// mark remembers a verification: it holds as long as the file's time of change is the same.
type mark struct {
	done  bool
	mtime time.Time
}
