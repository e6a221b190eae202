// Package blossom is the blob face of a node: the Blossom server (BUD-01, 02, 04, 05, 06, 08, 09, 11 and 12) as an
// http.Handler over a Store, and the stores themselves, on disk and in memory.
//
// A blob is named by the SHA-256 of its bytes and by nothing else. So every byte that comes in is hashed before it is
// kept, whoever sent it, and every blob that goes out whole is hashed again on its way; its last block is held back
// until the hash fits. The same digest is an IPFS CID (§ Transports, "Content Addressing & CIDs"), which is told with each
// blob and resolved under /ipfs/.
//
// Nothing here knows of peers, grants or events: who may store what, what is metered and which blobs an event names
// are questions that the Config's functions answer.
package blossom
