package schnorr

import "testing"

func BenchmarkPoint(b *testing.B) {
	table := generatorTable()
	p := jacobian{generator.x, generator.y, feOne}
	p.double()
	eachPathBench(b, func(b *testing.B) {
		b.Run("double", func(b *testing.B) {
			for b.Loop() {
				p.double()
			}
		})
		b.Run("addMixed", func(b *testing.B) {
			for i := 0; b.Loop(); i++ {
				e := &table[i%len(table)]
				p.addMixed(&e.x, &e.y, -uint64(i&1))
			}
		})
		b.Run("recode", func(b *testing.B) {
			var k scalar
			k[0], k[1], k[2], k[3] = p.x[0], p.x[1], p.x[2], p.x[3]>>1
			a := new(authorTable)
			for b.Loop() {
				var l ladder
				l.addGenerator(&k)
				l.addAuthor(&k, true, a[:])
			}
		})
		b.Run("challenge", func(b *testing.B) {
			var in input
			var msg [32]byte
			var sig [64]byte
			for b.Loop() {
				in.challenge(&msg, msg[:], &sig)
			}
		})
	})
}
