package transport

import (
	"fmt"
	"strings"

	"fleetmesh.org/fleetmesh/nostr"
)

// rumorNames are the protocols known to travel in gift wraps, by rumor kind.
var rumorNames = map[nostr.Kind]string{
	5:     "a deletion (NIP-09)",
	7:     "a reaction (NIP-25)",
	14:    "a private message (NIP-17)",
	15:    "a private file message (NIP-17)",
	443:   "an MLS key package (Marmot)",
	444:   "an MLS welcome (Marmot)",
	445:   "an MLS group message (Marmot)",
	1018:  "a poll response (NIP-88)",
	10050: "an inbox relay list (NIP-17)",
	24133: "a remote-signing request (NIP-46)",
}

// NameRumor says what protocol an unwrapped rumor seems to belong to. NIP-59 does
// not name what is inside a wrap, so a node that shares its key with another
// program sees that program's wraps: they are not malformed, only not ours
// (protocol § Control plane, Which gift wrap).
func NameRumor(rumor *nostr.Event) string {
	if name, ok := rumorNames[rumor.Kind]; ok {
		return name
	}
	if rumor.Kind == nostr.KindEphemeralGiftWrap || rumor.Kind == nostr.KindGiftWrap {
		if isObject(rumor.Content) {
			return fmt.Sprintf("a JSON payload in a rumor of kind %d", rumor.Kind)
		}
		return fmt.Sprintf("a rumor of kind %d without a JSON payload", rumor.Kind)
	}
	return fmt.Sprintf("a rumor of kind %d", rumor.Kind)
}

// isObject reports whether s looks like a JSON object; a sealed frame is one.
func isObject(s string) bool {
	s = strings.Trim(s, " \t\r\n")
	return len(s) >= 2 && s[0] == '{' && s[len(s)-1] == '}'
}
