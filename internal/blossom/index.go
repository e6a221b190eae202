package blossom

import (
	"cmp"
	"slices"

	"fleetmesh.org/fleetmesh/nostr"
)

// record is one change of the index: a line of the journal. Replaying the records in order gives the index.
type record struct {
	Op   string `json:"op"` // put, own, disown, gone, block, unblock
	Hash string `json:"sha256"`
	Size int64  `json:"size,omitempty"`
	Type string `json:"type,omitempty"`
	By   string `json:"by,omitempty"` // owner, hex
	At   int64  `json:"at,omitempty"` // unix seconds
}

// entry is a blob in the index.
type entry struct {
	Meta
	verified mark
	corrupt  bool
}

// index knows every blob of a store. It is guarded by its store's lock.
type index struct {
	blobs   map[Hash]*entry
	owned   map[nostr.PubKey]map[Hash]int64
	blocked map[Hash]bool
	gone    map[Hash]bool // what was removed on purpose; kept during replay only
}

func newIndex() *index {
	return &index{blobs: map[Hash]*entry{}, owned: map[nostr.PubKey]map[Hash]int64{}, blocked: map[Hash]bool{}}
}

// apply makes a record true. It reports false for a record that cannot be read.
func (x *index) apply(r record) bool {
	h, err := ParseHash(r.Hash)
	if err != nil {
		return false
	}
	var by nostr.PubKey
	if r.By != "" {
		if by, err = nostr.ParsePubKey(r.By); err != nil {
			return false
		}
	}
	switch r.Op {
	case "put":
		if r.Size < 0 {
			return false
		}
		delete(x.gone, h)
		e := x.blobs[h]
		if e == nil {
			e = &entry{Meta: Meta{Hash: h, Uploaded: r.At}}
			x.blobs[h] = e
		}
		e.Size, e.Type, e.corrupt, e.verified = r.Size, cmp.Or(r.Type, octets), false, mark{}
		x.own(e, by, r.At)
	case "own":
		if e := x.blobs[h]; e != nil {
			x.own(e, by, r.At)
		}
	case "disown":
		x.disown(h, by)
	case "gone":
		x.remove(h)
	case "block":
		x.remove(h)
		x.blocked[h] = true
	case "unblock":
		delete(x.blocked, h)
	default:
		return false
	}
	return true
}

func (x *index) own(e *entry, by nostr.PubKey, at int64) {
	if by == (nostr.PubKey{}) {
		return
	}
	if _, has := e.OwnedBy(by); has {
		return
	}
	e.Owners = append(e.Owners, Owner{by, at})
	if x.owned[by] == nil {
		x.owned[by] = map[Hash]int64{}
	}
	x.owned[by][e.Hash] = at
}

func (x *index) disown(h Hash, by nostr.PubKey) {
	e := x.blobs[h]
	if e == nil {
		return
	}
	e.Owners = slices.DeleteFunc(slices.Clone(e.Owners), func(o Owner) bool { return o.PubKey == by })
	delete(x.owned[by], h)
	if len(x.owned[by]) == 0 {
		delete(x.owned, by)
	}
}

func (x *index) remove(h Hash) {
	x.drop(h)
	if x.gone != nil {
		x.gone[h] = true
	}
}

func (x *index) drop(h Hash) {
	e := x.blobs[h]
	if e == nil {
		return
	}
	for _, o := range e.Owners {
		x.disown(h, o.PubKey)
	}
	delete(x.blobs, h)
}

// find returns the entry of a blob that can be read.
func (x *index) find(h Hash) (*entry, error) {
	e := x.blobs[h]
	switch {
	case e == nil && x.blocked[h]:
		return nil, ErrBlocked
	case e == nil:
		return nil, ErrNotFound
	case e.corrupt:
		return e, ErrCorrupt
	}
	return e, nil
}

func (x *index) list(k nostr.PubKey) []Meta {
	out := make([]Meta, 0, len(x.owned[k]))
	for h := range x.owned[k] {
		if e := x.blobs[h]; !e.corrupt {
			out = append(out, e.clone())
		}
	}
	mine := x.owned[k]
	slices.SortFunc(out, func(a, b Meta) int {
		return cmp.Or(cmp.Compare(mine[b.Hash], mine[a.Hash]), slices.Compare(a.Hash[:], b.Hash[:]))
	})
	return out
}

func (x *index) all() []Meta {
	out := make([]Meta, 0, len(x.blobs))
	for _, e := range x.blobs {
		if !e.corrupt {
			out = append(out, e.clone())
		}
	}
	return out
}

func (x *index) usage() Usage {
	u := Usage{Blobs: int64(len(x.blobs)), Blocked: int64(len(x.blocked))}
	for _, e := range x.blobs {
		u.Bytes += e.Size
		switch {
		case e.corrupt:
			u.Corrupt++
		case e.verified.done:
			u.Verified++
		}
	}
	return u
}

// clone is the entry's Meta with owners that nobody else writes to.
func (e *entry) clone() Meta {
	m := e.Meta
	m.Owners = slices.Clone(e.Owners)
	return m
}

// records is the shortest list of records that gives the index, for a fresh journal.
func (x *index) records() []record {
	var out []record
	for _, e := range x.blobs {
		out = append(out, record{Op: "put", Hash: e.Hash.String(), Size: e.Size, Type: e.Type, At: e.Uploaded})
		for _, o := range e.Owners {
			out = append(out, record{Op: "own", Hash: e.Hash.String(), By: o.PubKey.String(), At: o.At})
		}
	}
	for h := range x.blocked {
		out = append(out, record{Op: "block", Hash: h.String()})
	}
	slices.SortStableFunc(out, func(a, b record) int { return cmp.Compare(a.Hash, b.Hash) })
	return out
}
