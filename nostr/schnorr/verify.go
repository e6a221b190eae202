package schnorr

import (
	"crypto/sha256"
	"sync"
)

// DefaultCacheBytes is the size of a Verifier's cache unless told otherwise.
const DefaultCacheBytes = 16 << 20

// Path names the code that runs on this processor: "portable" for Go alone, "adx" for
// assembly with MULX, ADCX and ADOX, and "ifma" where groups of minLanes or more go in the
// lanes of AVX-512 IFMA, while all that is alone goes as on "adx".
func Path() string {
	switch {
	case haveIFMA:
		return "ifma"
	case haveADX:
		return "adx"
	}
	return "portable"
}

// Verifier verifies BIP-340 signatures. It remembers tables of the authors it
// saw last, and more than once, which makes their next signature twice as fast
// to verify. It is safe for concurrent use, and runs on the caller's goroutine only.
type Verifier struct {
	cache   *cache
	batches sync.Pool // of *batch, for their memory
}

// NewVerifier returns a Verifier whose cache takes about cacheBytes, some
// 3 KiB for each author: DefaultCacheBytes if it is 0, no cache if it is negative.
func NewVerifier(cacheBytes int) *Verifier {
	if cacheBytes == 0 {
		cacheBytes = DefaultCacheBytes
	}
	return &Verifier{cache: newCache(max(cacheBytes, 0))}
}

// Verify says whether sig is a BIP-340 signature by the key pub over msg, which
// may have any length.
func (v *Verifier) Verify(pub *[32]byte, msg []byte, sig *[64]byte) bool {
	var in input
	if !in.parse(sig) {
		return false
	}
	pubs, tables := [1]*[32]byte{pub}, [1][]entry{}
	v.tables(pubs[:], tables[:])
	if tables[0] == nil {
		return false
	}
	in.challenge(pub, msg, sig)
	sum := in.sum(tables[0])
	if !in.matchesX(&sum) {
		return false
	}
	var zi fe
	inverse(&zi, &sum.z)
	return evenY(&sum, &zi)
}

// groupSize is how many signatures share their inversions: enough for their
// part to be small, few enough for all that is in work to stay in a cache.
const groupSize = 64

// VerifyGroup sets ok[i] to whether sigs[i] is a signature by pubs[i] over
// msgs[i], each verdict independent of the others. All four have one length.
func (v *Verifier) VerifyGroup(pubs []*[32]byte, msgs []*[32]byte, sigs []*[64]byte, ok []bool) {
	for len(pubs) > 0 {
		n := min(groupSize, len(pubs))
		v.group(pubs[:n], msgs[:n], sigs[:n], ok[:n])
		pubs, msgs, sigs, ok = pubs[n:], msgs[n:], sigs[n:], ok[n:]
	}
}

// groupWork is a group in work: what has been read of each signature, and the sums whose x is
// right, of which the parity of y is still to be found.
type groupWork struct {
	tables [groupSize][]entry
	inputs [groupSize]input
	ys, zs [groupSize]fe  // y = ys/zs
	at     [groupSize]int // whose
	n      int
}

// pend notes that the sum of number i has the right x, and y/z for its y.
func (g *groupWork) pend(i int, y, z *fe) {
	g.ys[g.n], g.zs[g.n], g.at[g.n] = *y, *z, i
	g.n++
}

// alone takes the sum of number i by itself.
func (g *groupWork) alone(i int) {
	in := &g.inputs[i]
	sum := in.sum(g.tables[i])
	if in.matchesX(&sum) {
		var z3 fe
		sqrN(&z3, &sum.z, 1)
		mul(&z3, &z3, &sum.z)
		g.pend(i, &sum.y, &z3)
	}
}

// group is VerifyGroup for at most groupSize.
func (v *Verifier) group(pubs []*[32]byte, msgs []*[32]byte, sigs []*[64]byte, ok []bool) {
	var g groupWork
	v.tables(pubs, g.tables[:len(pubs)])
	// Those whose author has a whole table, and the others.
	var whole, short [groupSize]int
	wholes, shorts := 0, 0
	for i, table := range g.tables[:len(pubs)] {
		ok[i] = false
		in := &g.inputs[i]
		if table == nil || !in.parse(sigs[i]) {
			continue
		}
		in.challenge(pubs[i], msgs[i][:], sigs[i])
		switch {
		case !haveIFMA:
			g.alone(i)
		case len(table) == strangerOdds:
			short[shorts] = i
			shorts++
		default:
			whole[wholes] = i
			wholes++
		}
	}
	if haveIFMA {
		g.inLanes(whole[:wholes])
		g.inLanes(short[:shorts])
	}
	var scratch [groupSize]fe
	inverseAll(g.zs[:g.n], scratch[:])
	for k := range g.n {
		var y fe
		mul(&y, &g.ys[k], &g.zs[k])
		ok[g.at[k]] = !y.isOdd()
	}
}

// input is a signature's two halves and its challenge, as numbers.
type input struct {
	r    fe
	s, e scalar
}

// parse reads r and s and says whether they are in range: r < p, s < n.
func (in *input) parse(sig *[64]byte) bool {
	return in.r.setBytes((*[32]byte)(sig[:32])) && in.s.setBytes((*[32]byte)(sig[32:]))
}

// challengeTag is SHA-256("BIP0340/challenge") twice, which a tagged hash starts with.
var challengeTag = tagOf("BIP0340/challenge")

// challenge computes e = hash(r, pub, msg) mod n.
func (in *input) challenge(pub *[32]byte, msg []byte, sig *[64]byte) {
	var buf [160]byte
	copy(buf[:64], challengeTag[:])
	copy(buf[64:96], sig[:32])
	copy(buf[96:128], pub[:])
	var sum [32]byte
	if len(msg) == 32 {
		copy(buf[128:], msg)
		sum = sha256.Sum256(buf[:])
	} else {
		h := sha256.New()
		h.Write(buf[:128])
		h.Write(msg)
		h.Sum(sum[:0])
	}
	in.e.setBytes(&sum)
}

// sum returns R = s·G - e·P.
func (in *input) sum(table []entry) jacobian {
	var l ladder
	l.addAuthor(&in.e, true, table)
	if l.n > 0 {
		prefetch(&l.list[1], l.n)
	}
	l.addGenerator(&in.s)
	return l.sum()
}

// matchesX says whether R is finite and its x is r: x = X/Z², so X = r·Z²,
// which needs no inversion.
func (in *input) matchesX(sum *jacobian) bool {
	if sum.z.isZero() {
		return false
	}
	var u fe
	sqrN(&u, &sum.z, 1)
	mul(&u, &u, &in.r)
	return equal(&u, &sum.x)
}

// evenY says whether the y of the finite R is even; zi is 1/Z.
func evenY(sum *jacobian, zi *fe) bool {
	var y fe
	sqrN(&y, zi, 1)
	mul(&y, &y, zi)
	mul(&y, &y, &sum.y)
	return !y.isOdd()
}

// newcomer is a key whose table is not cached.
type newcomer struct {
	again bool // met before: build the whole table
	built bool
	table []entry
}

// tables sets tables[i] to the table of pubs[i], or to nil if that is no point's x.
// What is not cached is built, all together: a short table for a key that is met for the
// first time, and else a whole one, which is then cached.
func (v *Verifier) tables(pubs []*[32]byte, tables [][]entry) {
	var again [groupSize]bool
	missing := v.cache.get(pubs, tables, again[:])
	if missing == 0 {
		return
	}
	fresh := make(map[[32]byte]*newcomer, missing)
	for i, pub := range pubs {
		if tables[i] != nil {
			continue
		}
		n := fresh[*pub]
		if n == nil {
			n = new(newcomer)
			fresh[*pub] = n
		}
		n.again = n.again || again[i]
	}
	var keep []*author
	b := newTableBuilder(len(fresh) * authorOdds)
	for i, pub := range pubs {
		if tables[i] != nil {
			continue
		}
		n := fresh[*pub]
		if !n.built {
			n.built = true
			if a := n.build(pub, b); a != nil {
				keep = append(keep, a)
			}
		}
		tables[i] = n.table
	}
	b.finish()
	v.cache.put(keep...)
}

// build queues the newcomer's table, unless its key is no point's x. It returns the
// author if the table is to be cached.
func (n *newcomer) build(pub *[32]byte, b *tableBuilder) *author {
	var p point
	if !p.lift(pub) {
		return nil
	}
	if !n.again {
		n.table = make([]entry, strangerOdds)
		b.add(&p, n.table, 1)
		return nil
	}
	a := &author{key: *pub}
	n.table = a.table[:]
	b.add(&p, n.table, combs)
	return a
}
