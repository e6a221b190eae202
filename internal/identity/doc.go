// Package identity says who a node is: its three keys, the descriptor that binds
// them (kind 11801), the DID and its document, heartbeats (21801), coverage claims
// (30803), topic rosters (30804) and revocation (11802). Everything here is a pure
// function of its arguments: time, randomness and secrets are handed in.
//
// Every way in which a document can be wrong has a Code of its own; an error that
// comes from judging a document wraps a *Fault, and CodeOf finds it. Protocol text:
// § Identity, § Discovery, § Governance.
package identity
