//go:build !amd64 || purego

package schnorr

// haveIFMA is a constant here, so that the compiler leaves the lanes out.
const haveIFMA = false

func doubleLanes(s *laneState, n int)             {}
func addLanes(s *laneState, rows *laneRow, n int) {}
func prefetchRows(rows *laneRow, n int)           {}
