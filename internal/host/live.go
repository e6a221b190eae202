package host

import "fleetmesh.org/fleetmesh/nostr"

// Sessions are the carriers of the sessions that are open, by peer. Strangers that hold a stream and have not proved who they are do not count.
func (h *Host) Sessions() map[nostr.PubKey]string {
	h.mu.Lock()
	links := make(map[nostr.PubKey]*link, len(h.links))
	for k, l := range h.links {
		links[k] = l
	}
	h.mu.Unlock()
	out := map[nostr.PubKey]string{}
	for k, l := range links {
		l.mu.Lock()
		if l.stream != nil && l.proven {
			out[k] = l.stream.Scheme()
		}
		l.mu.Unlock()
	}
	return out
}
