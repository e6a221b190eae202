// Package bridge connects a node's store with ordinary relays by streams: what comes down from them, what goes up to them, by
// filters and plugins, as strfry's router does it and in its configuration format. Gaps are closed by NIP-77, live events follow at once, nothing
// goes back to where it came from, and what never crosses between networks crosses here neither.
package bridge
