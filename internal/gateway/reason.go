package gateway

import (
	"fmt"
	"strings"
	"time"
)

// Prefix returns the machine-readable word at the head of a reason (NIP-01,
// NIP-42), "" if there is none.
func Prefix(reason string) string {
	word, _, ok := strings.Cut(reason, ":")
	if !ok || word == "" || len(word) > 20 {
		return ""
	}
	for _, c := range []byte(word) {
		if (c < 'a' || c > 'z') && c != '-' {
			return ""
		}
	}
	return word
}

// ClosedError is a CLOSED for a subscription or a count.
type ClosedError struct{ Reason string }

func (e *ClosedError) Error() string {
	return fmt.Sprintf("the relay closed the request: %q", e.Reason)
}

// NegError is a NEG-ERR, or whatever a relay says instead of one.
type NegError struct {
	Reason     string
	MaxRecords int64 // how many records the relay would process, 0 if it did not say
}

func (e *NegError) Error() string {
	return fmt.Sprintf("the relay refused to reconcile: %q", e.Reason)
}

// TooBig says whether the relay would answer a narrower filter. "blocked:" alone does not
// say it: relays use it for "switched off" as well.
func (e *NegError) TooBig() bool {
	if e.MaxRecords > 0 {
		return true
	}
	return Prefix(e.Reason) != "unsupported" && mentions(e.Reason, "too big", "too many", "too large", "narrow", "maximum", "max sync", "limit exceeded")
}

// timedOut says whether a session ended because we were slow: it may simply be run again.
func (e *NegError) timedOut() bool { return Prefix(e.Reason) == "closed" }

// refusesNegentropy says whether a NOTICE that comes in answer to NEG-OPEN refuses
// it. Relays that do not know the message say so in many words.
func refusesNegentropy(notice string) bool {
	return mentions(notice, "neg", "unknown", "unrecogni", "unsupported", "not supported", "not implemented",
		"bad msg", "bad message", "invalid", "disabled", "could not parse", "failed to parse", "cannot parse", "unexpected")
}

func mentions(text string, words ...string) bool {
	text = strings.ToLower(text)
	for _, w := range words {
		if strings.Contains(text, w) {
			return true
		}
	}
	return false
}

// finalRefusal says whether offering the same event again is no use.
func finalRefusal(reason string) bool {
	switch Prefix(reason) {
	case "invalid", "blocked", "duplicate", "pow", "restricted", "mute":
		return true
	}
	return false
}

// Limits of the wait after "rate-limited:".
const (
	minDelay = time.Second
	maxDelay = time.Minute
)

// askedDelay reads a delay out of a "rate-limited:" reason, such as "try again in 5 s";
// 0 if it names none.
func askedDelay(reason string) time.Duration {
	fields := strings.FieldsFunc(strings.ToLower(reason), func(r rune) bool {
		return (r < '0' || r > '9') && (r < 'a' || r > 'z') && r != '.'
	})
	for i, f := range fields {
		digits := strings.TrimRight(f, "abcdefghijklmnopqrstuvwxyz")
		if digits == "" {
			continue
		}
		unit := f[len(digits):]
		if unit == "" && i+1 < len(fields) {
			unit = fields[i+1]
		}
		var scale time.Duration
		switch unit {
		case "ms", "millisecond", "milliseconds":
			scale = time.Millisecond
		case "s", "sec", "secs", "second", "seconds":
			scale = time.Second
		case "m", "min", "mins", "minute", "minutes":
			scale = time.Minute
		default:
			continue
		}
		var n float64
		if _, err := fmt.Sscanf(digits, "%g", &n); err == nil && n > 0 && n < 1e6 {
			return min(time.Duration(n*float64(scale)), maxDelay)
		}
	}
	return 0
}
