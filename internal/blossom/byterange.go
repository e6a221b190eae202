package blossom

import (
	"errors"
	"strconv"
	"strings"
)

// span is a part of a blob.
type span struct{ start, length int64 }

var (
	errRangeMany = errors.New("one range at a time")
	errRange     = errors.New("the range is malformed or outside the blob")
)

// parseRange reads a Range header for a blob of that size (RFC 9110, 14.2). whole is true where there is no range or one in
// another unit, which is not ours to read. An error is answered with 416 (BUD-01).
func parseRange(header string, size int64) (sp span, whole bool, err error) {
	unit, set, ok := strings.Cut(header, "=")
	if !ok || !strings.EqualFold(strings.TrimSpace(unit), "bytes") {
		if header != "" && !ok {
			return sp, false, errRange
		}
		return sp, true, nil
	}
	set = strings.Trim(set, " \t")
	if strings.Contains(set, ",") {
		return sp, false, errRangeMany
	}
	from, to, ok := strings.Cut(set, "-")
	if !ok {
		return sp, false, errRange
	}
	if from == "" { // the last octets
		n, ok := offset(to)
		if !ok || n == 0 || size == 0 {
			return sp, false, errRange
		}
		n = min(n, size)
		return span{size - n, n}, false, nil
	}
	start, ok := offset(from)
	if !ok || start >= size {
		return sp, false, errRange
	}
	end := size - 1
	if to != "" {
		n, ok := offset(to)
		if !ok || n < start {
			return sp, false, errRange
		}
		end = min(n, end)
	}
	return span{start, end - start + 1}, false, nil
}

// offset reads a decimal number without a sign. One too large for an int64 is the largest.
func offset(s string) (int64, bool) {
	if s == "" {
		return 0, false
	}
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return 0, false
		}
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		n = 1<<63 - 1
	}
	return n, true
}
