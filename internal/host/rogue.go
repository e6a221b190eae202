//go:build rogue

package host

import "os"

// A program built with the tag rogue misbehaves as the variable MESHNODE_ROGUE says. Tests of whole processes build it; nobody runs it.
func init() {
	switch os.Getenv("MESHNODE_ROGUE") {
	case "silent":
		tampered = &tamper{silent: true}
	case "over-spender":
		tampered = greed()
	case "liar":
		tampered = &tamper{lies: true}
	case "boaster":
		tampered = &tamper{boasts: true}
	case "receipt-forker":
		tampered = &tamper{forks: true}
	case "hop-forger":
		tampered = &tamper{forges: true}
	case "replayer":
		tampered = &tamper{copies: 4}
	}
}
