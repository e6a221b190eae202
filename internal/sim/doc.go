// Package sim runs many mesh nodes in one goroutine, from one heap of events and one seed: the same seed replays the same
// run byte for byte. The network loses, delays, repeats and parts; clocks are skewed; nodes crash between any two effects
// and start again from their journal; and some of them are hostile, one kind a file. Checkers watch what must never happen.
//
// What is real: mesh itself, every step of it; the arithmetic of ledger; the journal's two kinds of record; receipts and
// hops with their BIP-340 signatures. What stands in: grants travel as objects and not sealed, events are numbers, and what
// negentropy would find out is told. None of it can change an account.
//
// Protocol text: § Window arithmetic, § Severity ladder, § Trust weighting, § Attack surface.
package sim
