package ledger

import "fleetmesh.org/fleetmesh/nostr"

// Redo checks the receipts of one window in the order of their numbers, as their issuer did when they came: each signed by the subject, continuing
// the one before it, and claiming no less. The first that does not is the error, with its code; ReceiptGap says that one is missing before it.
func Redo(subject nostr.PubKey, list []*Receipt) error {
	if len(list) == 0 {
		return nil
	}
	c := NewChain(list[0].Grant, Window{Epoch: list[0].Window}, subject)
	for _, r := range list {
		if err := c.Add(r, r.At); err != nil {
			return err
		}
	}
	return nil
}
