//go:build amd64 && !purego

package schnorr

import "golang.org/x/sys/cpu"

// haveIFMA says whether the processor, and the system for it, have what the lanes need. It goes with MULX and ADX.
var haveIFMA = haveADX && cpu.X86.HasAVX512F && cpu.X86.HasAVX512BW && cpu.X86.HasAVX512DQ && cpu.X86.HasAVX512VL && cpu.X86.HasAVX512IFMA && cpu.X86.HasAVX512VBMI2

// doubleLanes doubles all sums n times, n at least 1: 0.4 µs for each.
//
//go:noescape
func doubleLanes(s *laneState, n int)

// addLanes adds n rows, n at least 1: 0.4 µs for each.
//
//go:noescape
func addLanes(s *laneState, rows *laneRow, n int)

// prefetchRows has the points of n rows brought near, n at least 1.
//
//go:noescape
func prefetchRows(rows *laneRow, n int)

// Field operations alone, for tests; not all use all operands.

//go:noescape
func mulLanes(z, x, y, w *lane)

//go:noescape
func mulTwiceSubLanes(z, x, y, w *lane) // z = x·y + y·w - 3w

//go:noescape
func sqrTripleSubLanes(z, x, y, w *lane) // z = 3x² - 3w

//go:noescape
func subLanes(z, x, y, w *lane) // z = x - y

//go:noescape
func twiceLanes(z, x, y, w *lane) // z = 2x
