package host

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"fleetmesh.org/fleetmesh/internal/didcomm"
	"fleetmesh.org/fleetmesh/nostr"
	"fleetmesh.org/fleetmesh/spec"
)

// seenKey begins the journal keys of messages that were handled and must not be handled again after a restart. The replay memory lives as long
// as the process; a relay that kept a stored gift wrap brings it again, or somebody does who recorded it, and an old `end` must not end a
// peering that was made anew.
const seenKey = "in/"

// maxSeen bounds them; those that end first go first.
const maxSeen = 8192

// takeSeen removes the handled messages from the records that mesh is restored from.
func takeSeen(records map[string]json.RawMessage) map[string]int64 {
	seen := map[string]int64{}
	for key, record := range records {
		if !strings.HasPrefix(key, seenKey) {
			continue
		}
		delete(records, key)
		var until int64
		if json.Unmarshal(record, &until) == nil {
			seen[key] = until
		}
	}
	return seen
}

func seenName(from nostr.PubKey, id string) string {
	sum := sha256.Sum256(append(from[:], id...))
	return seenKey + hex.EncodeToString(sum[:16])
}

// weighty says whether handling a message twice would do harm: what is said once and changes a peering. Syncs belong to sessions that end, and
// receipts to chains that notice.
func weighty(a *arrival) bool {
	protocol, _ := didcomm.SplitType(a.m.Type)
	return !a.anonymous && (protocol == spec.PIURIPeering || protocol == spec.PIURIComplaint)
}

// handled remembers a message for as long as it could be admitted. It comes after what the message changed is durable; a crash between the two
// leaves it to mesh to take it twice.
func (h *Host) handled(a *arrival) {
	if !weighty(a) {
		return
	}
	until := a.m.CreatedTime + int64(didcomm.DefaultReplayLimits().Window.Seconds())
	if a.m.ExpiresTime != 0 {
		until = a.m.ExpiresTime
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.failed != nil {
		return
	}
	name := seenName(a.from, a.m.ID)
	record, err := json.Marshal(until)
	if err == nil {
		err = h.journal.Put(name, record, false)
	}
	h.seen[name] = until
	if err == nil && len(h.seen) > maxSeen {
		err = h.forgetSeen(Now().Unix())
	}
	if err != nil {
		h.cfg.Log.Error("remember a message; the state is taken up from the journal", "err", err)
		h.recover()
	}
}

// forgetSeen drops what is over, and if that is not a quarter, what will be over first. h.mu is held.
func (h *Host) forgetSeen(now int64) error {
	names := slices.SortedFunc(maps.Keys(h.seen), func(a, b string) int { return cmp.Or(cmp.Compare(h.seen[a], h.seen[b]), strings.Compare(a, b)) })
	for i, name := range names {
		if h.seen[name] > now && i >= maxSeen/4 {
			break
		}
		delete(h.seen, name)
		if err := h.journal.Put(name, nil, false); err != nil {
			return err
		}
	}
	return nil
}
