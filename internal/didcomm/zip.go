package didcomm

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/klauspost/compress/flate"
)

// DIDComm v2 names no compression, but its envelopes are JWE, which has one: zip in the protected header (RFC 7516 § 4.1.3). A receiver that does
// not know it reads rubbish or refuses, so it is for senders that were told that it is read. It is allowed in authcrypt alone: a stranger must not
// have us inflate anything.

const (
	// ZipDeflate is the raw DEFLATE of RFC 1951, the one zip that is registered.
	ZipDeflate = "DEF"
	// MaxZipRatio bounds what a compressed plaintext may grow to: that many octets for each octet of it, and MaxEnvelope in all.
	MaxZipRatio = 32
	// minZip is below what a compressed plaintext is not worth its header.
	minZip = 256
)

var errInflate = errors.New("it does not inflate within its bounds")

var deflaters = sync.Pool{New: func() any {
	w, _ := flate.NewWriter(io.Discard, flate.BestSpeed) // fails for an unknown level alone
	return w
}}

// deflate returns the compressed form of plain; nil where that is no smaller, or smaller than a receiver takes.
func deflate(plain []byte) []byte {
	if len(plain) < minZip {
		return nil
	}
	buf := bytes.NewBuffer(make([]byte, 0, len(plain)/2))
	w := deflaters.Get().(*flate.Writer)
	defer deflaters.Put(w)
	w.Reset(buf)
	if _, err := w.Write(plain); err != nil {
		return nil
	}
	if err := w.Close(); err != nil {
		return nil
	}
	if n := buf.Len(); n >= len(plain) || n*MaxZipRatio < len(plain) {
		return nil
	}
	return buf.Bytes()
}

var inflaters = sync.Pool{New: func() any { return flate.NewReader(bytes.NewReader(nil)) }}

// inflate undoes deflate. It holds no more than MaxZipRatio times what it is given, and never more than MaxEnvelope.
func inflate(zipped []byte) ([]byte, error) {
	most := min(MaxZipRatio*len(zipped), MaxEnvelope)
	r := inflaters.Get().(io.ReadCloser)
	defer inflaters.Put(r)
	src := bytes.NewReader(zipped)
	if err := r.(flate.Resetter).Reset(src, nil); err != nil {
		return nil, fmt.Errorf("inflate: %w", err)
	}
	out := bytes.NewBuffer(make([]byte, 0, min(3*len(zipped)+bytes.MinRead, most)))
	n, err := io.Copy(out, io.LimitReader(r, int64(most)+1))
	if err != nil || n > int64(most) || src.Len() > 0 {
		return nil, errInflate
	}
	return out.Bytes(), nil
}
