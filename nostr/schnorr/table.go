package schnorr

import "sync"

// A number of 128 bits is cut into combs teeth of toothBits bits, one table of
// multiples for each: k·P = sum over t of k_t·(2^(toothBits·t)·P). One pass of
// toothBits doublings then serves all teeth.
const (
	combs     = 4
	toothBits = 32
)

const (
	// authorWindow and fixedWindow are the digits' widths in bits: a table
	// holds the odd multiples below 2^(width-1).
	authorWindow = 5
	fixedWindow  = 10

	authorOdds = 1 << (authorWindow - 2)
	fixedOdds  = 1 << (fixedWindow - 2)
)

// entry is a point and, under bx, the x of lambda times it; their y is the
// same. All three are below p.
type entry struct{ x, bx, y fe }

// authorTable holds the odd multiples of 2^(32t)·P for one author's point P,
// tooth after tooth: 3 KiB.
type authorTable [combs * authorOdds]entry

// A stranger's table has one tooth only, of all 128 bits: less to build, and
// more doublings in its one use.
const strangerOdds = authorOdds

// fixedTable is the same for the generator G: 96 KiB.
type fixedTable [combs * fixedOdds]entry

// generatorTable is computed on first use, in less than a millisecond.
var generatorTable = sync.OnceValue(func() *fixedTable {
	t := new(fixedTable)
	b := newTableBuilder(len(t))
	b.add(&generator, t[:], combs)
	b.finish()
	return t
})

// tableBuilder fills tables of any number of points with one inversion.
type tableBuilder struct {
	points  []jacobian
	targets []*entry
}

// newTableBuilder returns one with room for that many entries.
func newTableBuilder(entries int) *tableBuilder {
	return &tableBuilder{make([]jacobian, 0, entries), make([]*entry, 0, entries)}
}

// add queues the odd multiples 1, 3, 5… of 2^(32t)·p for the t-th of so many
// equal parts of table.
//
// The multiples are added up with 2q, q = 2^(32t)·p, as the second operand. So
// that it is affine, all happens on the isomorphic curve whose points (x, y) are
// ours times (u², u³), u being the z of 2q: there 2q is (X, Y) of its Jacobian
// form, and a Jacobian (X, Y, Z) there is (X, Y, Z·u) here. No addition is of
// equal or opposite points: the multiples are small and the order is prime.
func (b *tableBuilder) add(p *point, table []entry, teeth int) {
	q := jacobian{p.x, p.y, feOne}
	odds := len(table) / teeth
	for t := range teeth {
		if t > 0 {
			for range toothBits {
				q.double()
			}
		}
		row := table[t*odds:][:odds]
		b.push(&q, &row[0])
		twice := q
		twice.double()
		u := twice.z
		sum := q
		var u2 fe
		sqrN(&u2, &u, 1)
		mul(&sum.x, &sum.x, &u2)
		mul(&u2, &u2, &u)
		mul(&sum.y, &sum.y, &u2)
		twice.x.norm()
		twice.y.norm()
		for i := 1; i < len(row); i++ {
			sum.addMixed(&twice.x, &twice.y, 0)
			here := sum
			mul(&here.z, &sum.z, &u)
			b.push(&here, &row[i])
		}
	}
}

func (b *tableBuilder) push(p *jacobian, to *entry) {
	b.points = append(b.points, *p)
	b.targets = append(b.targets, to)
}

// finish brings all queued points to affine form and writes their entries.
func (b *tableBuilder) finish() {
	zs := make([]fe, 2*len(b.points))
	zs, scratch := zs[:len(b.points)], zs[len(b.points):]
	for i := range b.points {
		zs[i] = b.points[i].z
	}
	inverseAll(zs, scratch)
	for i, to := range b.targets {
		p, zi := &b.points[i], &zs[i]
		var z2 fe
		sqrN(&z2, zi, 1)
		mul(&to.x, &p.x, &z2)
		mul(&z2, &z2, zi)
		mul(&to.y, &p.y, &z2)
		mul(&to.bx, &to.x, &beta)
		to.x.norm()
		to.bx.norm()
		to.y.norm()
	}
}
