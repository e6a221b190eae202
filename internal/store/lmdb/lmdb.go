// Package lmdb is the event store in an LMDB environment, for operators who know and trust that file format. LMDB is a C library, so the package
// does its work only in a build with cgo and the tag lmdb; any other build has an Open that says so.
package lmdb

// Options set up a Store. The zero value is usable.
type Options struct {
	OwnURLs  []string // by which a vanish request (NIP-62) can name this relay
	MaxBytes int64    // octets that the database may hold; 0: no limit
	Advisory int      // remembered refusals of the bounded reasons; 0: store.DefaultAdvisory
	MapBytes int64    // the memory map at first, which grows as needed; 0: 256 MiB
}

// Tag is the build tag with which a binary has this engine.
const Tag = "lmdb"
