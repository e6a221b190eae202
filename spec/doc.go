// Package spec is what two implementations of fleetmesh must agree on byte for
// byte: the constants, the event kinds, the DIDComm messages and the refusal
// codes, the JSON Schemas of each, the canonical form and the digest taken
// over them, and the vectors that pin what this package computes.
//
// Three embedded files are the normative source and are covered by the digest
// (§ Governance): kinds.json, messages.json and constants.json. The Go
// identifiers here only name what those files say, and tests hold the two
// together. Prose is never digested, so a comment may be corrected without
// forking the network.
//
// Every number that arithmetic compares is an integer or an exact Ratio; there
// is no floating point anywhere in the vocabulary.
//
// The package is pure: it reads no clock, starts no goroutine and keeps no
// state but decoded copies of its embedded files.
package spec
