// Package monitor watches a running node from outside: it asks for facts over the control socket, judges them by fixed thresholds, and says in one line, or
// as JSON, whether an operator has to act. The judging is a function of the facts; it reads no clock and no disk.
package monitor

import "encoding/json"

// MethodHealth is the method of the control socket that answers Facts; its parameters are Params.
const MethodHealth = "node.health"

// Params are those of node.health.
type Params struct {
	// Recount is up to how many of the store's ids are counted again and compared with the fingerprint that the store keeps: 0 counts none, a negative
	// number all. A part of the store is chosen at random.
	Recount int `json:"recount,omitempty"`
	// Clock asks other servers for the time, at the relays that the node knows.
	Clock bool `json:"clock,omitempty"`
}

// Facts are what a node says of itself. Times are Unix seconds.
type Facts struct {
	At         int64      `json:"at"` // the node's clock
	DID        string     `json:"did"`
	Class      string     `json:"class"`
	Build      string     `json:"build"`
	Uptime     int64      `json:"uptime_seconds"`
	Relay      string     `json:"relay"` // URL of the face, as this machine reaches it
	Face       Face       `json:"face"`
	Store      Store      `json:"store"`
	Disk       Disk       `json:"disk"`
	Clock      Clock      `json:"clock"`
	Federation string     `json:"federation"`        // up, starting, off or retired
	Trouble    string     `json:"trouble,omitempty"` // why federation is off
	Descriptor *Expiring  `json:"descriptor,omitempty"`
	Peers      []Peer     `json:"peers"`
	Strain     *Strain    `json:"strain,omitempty"`
	Pending    int        `json:"pending"`      // keys of node.yaml that wait for a restart
	Memory     int64      `json:"memory_bytes"` // that the process holds
	Files      FilesInUse `json:"files"`
}

// Face is the state of the relay face.
type Face struct {
	Open           int64 `json:"open"`            // connections now
	MaxConnections int64 `json:"max_connections"` // 0: unbounded
	Subscriptions  int64 `json:"subscriptions"`
	Owed           int64 `json:"owed_bytes"` // queued for all clients
	Shed           int64 `json:"shed_total"` // connections ended because they did not read
	Refused        int64 `json:"refused_total"`
}

// Store is the state of the event store. Octets are on disk.
type Store struct {
	Events  int64    `json:"events"`
	Bytes   int64    `json:"bytes"`
	Max     int64    `json:"max_bytes,omitempty"` // the quota; 0: none
	Dead    int64    `json:"dead_bytes"`
	Damaged int64    `json:"damaged"`
	Broken  string   `json:"broken,omitempty"` // why the store answers no question
	Recount *Recount `json:"recount,omitempty"`
}

// Recount compares the fingerprints that the store keeps with those of the ids counted again, and reads some events back.
type Recount struct {
	Counted int    `json:"counted"` // ids
	Of      int    `json:"of"`
	Kept    string `json:"kept"` // NIP-77 fingerprint of the range, hex, by the store's own sums
	Anew    string `json:"anew"` // the same, of the ids
	Read    int    `json:"read"` // events that were read back and whose id was computed again
	Bad     int    `json:"bad"`  // of those, that were not there or did not match
}

// Disk is the file system under a path.
type Disk struct {
	Path        string `json:"path"`
	Free        int64  `json:"free_bytes"` // to this user
	Total       int64  `json:"total_bytes"`
	FreeInodes  int64  `json:"free_inodes"`
	TotalInodes int64  `json:"total_inodes"` // 0: the file system has no fixed number
	ReadOnly    bool   `json:"read_only,omitempty"`
	Error       string `json:"error,omitempty"`
}

// Clock is what is known of the machine's clock.
type Clock struct {
	Disciplined *bool    `json:"disciplined,omitempty"`    // the kernel's word that something keeps the clock right; absent where it does not say
	Offset      *float64 `json:"offset_seconds,omitempty"` // how far others are ahead, as the median
	Compared    int      `json:"compared"`                 // with how many servers
	Ahead       int64    `json:"ahead_seconds,omitempty"`  // by how much the newest file of the node is newer than now: the clock went back
}

// Expiring is something signed that ends.
type Expiring struct {
	ID      string `json:"id"`
	Made    int64  `json:"made"`
	Expires int64  `json:"expires"`
}

// Peer is one peering.
type Peer struct {
	DID     string    `json:"did"`
	Stage   string    `json:"stage"`
	Tier    string    `json:"tier"`
	Session string    `json:"session,omitempty"` // carrier of the session that is open
	Digest  string    `json:"schema_digest"`
	Issued  *Expiring `json:"issued,omitempty"` // our grant to it
	Held    *Expiring `json:"held,omitempty"`   // its grant to us
	Used    []Share   `json:"used,omitempty"`   // of its grant to us, in the present window
	Caused  []Share   `json:"caused,omitempty"` // of our grant to it
	Windows []Window  `json:"windows"`          // the last verdicts, newest last
}

// Share is a limit and what was used of it.
type Share struct {
	Limit string `json:"limit"`
	Used  int64  `json:"used"`
	Of    int64  `json:"of"`
}

// Window is the verdict on one.
type Window struct {
	Epoch    int64  `json:"epoch"`
	At       int64  `json:"at"` // closed
	Severity string `json:"severity"`
	Limit    string `json:"limit,omitempty"`
}

// Strain is the load that the node feels, and the rung of the shedding ladder on which it stands.
type Strain struct {
	Pressure float64 `json:"pressure"` // 0 to 1
	Rung     int     `json:"rung"`     // 0: sheds nothing
}

// FilesInUse are the open files of the process.
type FilesInUse struct {
	Open int64 `json:"open"`
	Max  int64 `json:"max"` // 0: unknown
}

// ParseFacts reads facts, as the socket or a file holds them. Unknown keys are of a newer node and pass.
func ParseFacts(text []byte) (Facts, error) {
	var f Facts
	err := json.Unmarshal(text, &f)
	return f, err
}
