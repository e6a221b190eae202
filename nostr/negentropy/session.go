package negentropy

import (
	"fmt"

	"fleetmesh.org/fleetmesh/nostr"
)

// MinFrameLimit is the least frame limit that the protocol works with, in
// bytes of the binary message. A limit of 0 means none; NewServer and NewClient
// raise a limit between the two to MinFrameLimit.
const MinFrameLimit = 4096

// frameReserve is kept free under the frame limit for the range that closes a
// message which is full.
const frameReserve = 200

// buckets is how many parts a range that differs is split into. Ranges of less
// than twice as many items are listed instead.
const buckets = 16

// side is what both roles share.
type side struct {
	set   Set
	limit int
}

func newSide(set Set, frameLimit int) side {
	if frameLimit > 0 && frameLimit < MinFrameLimit {
		frameLimit = MinFrameLimit
	}
	return side{set: set, limit: frameLimit}
}

func (s *side) full(n int) bool { return s.limit > 0 && n > s.limit-frameReserve }

// split describes set[lo:hi], which ends at the bound end, so that the other
// side can compare: a list of ids when they are few, else 16 fingerprints.
func (s *side) split(e *encoder, lo, hi int, end bound) {
	n := hi - lo
	if n < 2*buckets {
		e.idList(end, s.set, lo, hi)
		return
	}
	per, extra := n/buckets, n%buckets
	at := lo
	for i := range buckets {
		next := at + per
		if i < extra {
			next++
		}
		b := end
		if next != hi {
			b = boundBetween(s.set.Item(next-1), s.set.Item(next))
		}
		e.fingerprint(b, RangeFingerprint(s.set, at, next))
		at = next
	}
}

// walk reads a message range by range and writes the answer to each. onIDs is
// given the ids of an IdList and the part of our set it stands for; it returns
// where our part ends after all, having written the answer itself or said
// that there is none (skip).
func (s *side) walk(msg []byte, onIDs func(w *walker, ids []byte, lo, hi int, end bound) int) ([]byte, error) {
	w := &walker{enc: encoder{out: make([]byte, 1, 64)}}
	w.enc.out[0] = Version
	d := decoder{rest: msg}
	lo, size := 0, s.set.Len()
	for len(d.rest) > 0 {
		end, err := d.bound()
		if err != nil {
			return nil, err
		}
		mode, err := d.varint()
		if err != nil {
			return nil, err
		}
		hi := size
		if end.item.Time != infinity {
			hi = max(lo, s.set.Search(end.item))
		}
		mark := len(w.enc.out)
		switch mode {
		case modeSkip:
			w.pending = true
		case modeFingerprint:
			theirs, err := d.bytes(FingerprintSize)
			if err != nil {
				return nil, err
			}
			if [FingerprintSize]byte(theirs) == RangeFingerprint(s.set, lo, hi) {
				w.pending = true
			} else {
				w.flushSkip()
				s.split(&w.enc, lo, hi, end)
			}
		case modeIDList:
			ids, err := d.idList()
			if err != nil {
				return nil, err
			}
			hi = onIDs(w, ids, lo, hi, end)
		default:
			return nil, d.fail(fmt.Sprintf("unknown mode %d", mode))
		}
		if s.full(len(w.enc.out)) {
			s.closeFull(w, mark, mode, hi, size)
			break
		}
		lo, w.prev = hi, end
	}
	return w.enc.out, nil
}

// closeFull ends a message that has no room left with one fingerprint for all
// that remains. The answer to the last range is dropped unless it was a list,
// which was cut to fit. The fingerprint leaves a dropped range out, so it does
// not match and the other side describes the whole rest anew: a range already
// skipped may be walked twice. The reference implementations do just this, and
// messages agree with theirs to the byte. It has one flaw: when the dropped range is the last
// and the other side has nothing in it, the fingerprint of nothing matches and
// a difference goes unseen. Whoever needs certainty under a frame limit runs a
// second session once the differences are settled; it costs one message when
// the sets are equal.
func (s *side) closeFull(w *walker, mark int, mode uint64, hi, size int) {
	if mode == modeFingerprint {
		w.enc.out = w.enc.out[:mark]
	}
	w.enc.fingerprint(bound{item: Item{Time: infinity}}, RangeFingerprint(s.set, hi, size))
}

// walker is the state of one answer: a skip is written late, so that
// neighbouring ones melt into one and the last goes unsaid.
type walker struct {
	enc     encoder
	prev    bound // upper end of the range before
	pending bool  // the ranges up to prev are to be skipped
}

func (w *walker) flushSkip() {
	if w.pending {
		w.pending = false
		w.enc.skip(w.prev)
	}
}

// Server answers the messages of one session. It keeps no state between
// messages beside the set.
type Server struct{ side }

// NewServer makes the answering side over a set that does not change. Answers
// stay within frameLimit bytes (0: no limit).
func NewServer(set Set, frameLimit int) *Server { return &Server{newSide(set, frameLimit)} }

// Permit raises the frame limit, if there is one, to n bytes.
func (s *Server) Permit(n int) {
	if s.limit > 0 {
		s.limit = max(s.limit, n)
	}
}

// Reconcile returns the answer to a message. A message of another protocol
// version is answered by our version alone; one that cannot be read gives an
// error that wraps ErrSyntax.
func (s *Server) Reconcile(msg []byte) ([]byte, error) {
	if len(msg) == 0 {
		return nil, fmt.Errorf("%w: empty", ErrSyntax)
	}
	if msg[0]&0xf0 != 0x60 {
		return nil, fmt.Errorf("%w: invalid protocol version byte 0x%02x", ErrSyntax, msg[0])
	}
	if msg[0] != Version {
		return []byte{Version}, nil
	}
	return s.walk(msg[1:], s.listOurs)
}

// listOurs answers a list of ids with our own for the same range, as many as
// fit, and returns where they end.
func (s *Server) listOurs(w *walker, _ []byte, lo, hi int, end bound) int {
	room := hi - lo
	if s.limit > 0 {
		// As many as it takes to exceed the limit: the list is cut when it is already full.
		over := s.limit - frameReserve - len(w.enc.out)
		room = min(room, over/32+1)
	}
	w.flushSkip()
	if room < hi-lo {
		hi = lo + room
		end = bound{item: s.set.Item(hi), prefix: 32}
	}
	w.enc.idList(end, s.set, lo, hi)
	return hi
}

// Client runs one session as its initiator.
type Client struct {
	side
	have, need map[nostr.ID]struct{} // reported already
}

// NewClient makes the initiating side over a set that does not change.
// Messages stay within frameLimit bytes (0: no limit).
func NewClient(set Set, frameLimit int) *Client {
	return &Client{newSide(set, frameLimit), map[nostr.ID]struct{}{}, map[nostr.ID]struct{}{}}
}

// Initiate returns the first message.
func (c *Client) Initiate() []byte {
	e := encoder{out: []byte{Version}}
	c.split(&e, 0, c.set.Len(), bound{item: Item{Time: infinity}})
	return e.out
}

// Reconcile reads the server's answer and returns the next message, nil when
// the session is done. have lists ids that the server lacks, need ids that we
// lack; each id comes up once in a session, although the protocol may walk a
// range twice. An error that wraps ErrSyntax ends the session; a *VersionError
// says that the server speaks another version.
func (c *Client) Reconcile(msg []byte) (next []byte, have, need []nostr.ID, err error) {
	if len(msg) == 0 {
		return nil, nil, nil, fmt.Errorf("%w: empty", ErrSyntax)
	}
	if msg[0] != Version {
		if msg[0]&0xf0 == 0x60 {
			return nil, nil, nil, &VersionError{Byte: msg[0]}
		}
		return nil, nil, nil, fmt.Errorf("%w: invalid protocol version byte 0x%02x", ErrSyntax, msg[0])
	}
	next, err = c.walk(msg[1:], func(w *walker, ids []byte, lo, hi int, _ bound) int {
		have, need = c.compare(ids, lo, hi, have, need)
		w.pending = true
		return hi
	})
	if err != nil {
		return nil, nil, nil, err
	}
	if len(next) == 1 {
		next = nil
	}
	return next, have, need, nil
}

// compare takes their ids for our range lo..hi apart from ours.
func (c *Client) compare(ids []byte, lo, hi int, have, need []nostr.ID) ([]nostr.ID, []nostr.ID) {
	theirs := make(map[nostr.ID]struct{}, len(ids)/32)
	for i := 0; i < len(ids); i += 32 {
		theirs[nostr.ID(ids[i:i+32])] = struct{}{}
	}
	for i := lo; i < hi; i++ {
		id := c.set.Item(i).ID
		if _, ok := theirs[id]; ok {
			delete(theirs, id)
		} else if isNew(c.have, id) {
			have = append(have, id)
		}
	}
	for i := 0; i < len(ids) && len(theirs) > 0; i += 32 {
		id := nostr.ID(ids[i : i+32])
		if _, ok := theirs[id]; ok {
			delete(theirs, id)
			if isNew(c.need, id) {
				need = append(need, id)
			}
		}
	}
	return have, need
}

func isNew(m map[nostr.ID]struct{}, id nostr.ID) bool {
	if _, ok := m[id]; ok {
		return false
	}
	m[id] = struct{}{}
	return true
}

// VersionError says that the other side speaks another protocol version.
type VersionError struct {
	Byte byte // its version byte: 0x62 is version 2
}

func (e *VersionError) Error() string {
	return fmt.Sprintf("unsupported negentropy protocol version %d", int(e.Byte)-0x60)
}
