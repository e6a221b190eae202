// Package ledger is the arithmetic of accountability: grants and their blinding,
// receipts and their chain, delivery envelopes, the window and its severity, remedies
// and growth, reports and what a reader makes of them, and trust. Two strangers who hold
// the same artefacts compute the same answer, so everything here is a pure function:
// integers and exact rationals rounded down, time and randomness as arguments.
//
// Protocol text: § Grants & receipts, § Severity ladder, § Trust weighting, § Replication.
// Vectors: spec/vectors/ledger.
package ledger
