package mesh

import (
	"encoding/hex"

	"fleetmesh.org/fleetmesh/internal/ledger"
)

// Slip is a receipt in what a Tell reports, or the answer to one. An operator's record of them is the whole chain: the journal keeps the last
// receipt of a window alone, which states the whole claim.
type Slip struct {
	Sent     bool            // ours, of the peer's grant; else the peer's, of ours
	Head     string          // the receipt's link in hex: what the issuer's answer names
	Receipt  *ledger.Receipt // that was sent or taken now; nil in what only answers
	Status   ledger.AckStatus
	Measured ledger.Counters // of an answer: what the issuer had counted
}

func headOf(r *ledger.Receipt) string {
	link := r.Link()
	return hex.EncodeToString(link[:])
}

// acknowledged tells of an issuer's answer. What an issuer says of a receipt that is not our last one is no record of ours.
func acknowledged(p *peer, body *ackBody, last bool) Tell {
	tell := Tell{Peer: p.Key, What: "receipt-acknowledged", Window: body.Window, Detail: string(body.Status)}
	if last {
		tell.Slip = &Slip{Sent: true, Head: body.Head, Status: body.Status, Measured: body.Measured.Clone()}
	}
	return tell
}
