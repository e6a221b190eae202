package schnorr

import (
	"bytes"
	"encoding/csv"
	"encoding/hex"
	"os"
	"testing"

	"fleetmesh.org/fleetmesh/internal/vectors"
)

// official is one row of BIP-340's test vectors.
type official struct {
	index string
	pub   [32]byte
	msg   []byte
	sig   [64]byte
	valid bool
}

func officialVectors(t testing.TB) []official {
	t.Helper()
	text, err := os.ReadFile(vectors.Path(t, "bip340", "test-vectors.csv"))
	if err != nil {
		t.Fatal(err)
	}
	rows, err := csv.NewReader(bytes.NewReader(text)).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	unhex := func(s string) []byte {
		b, err := hex.DecodeString(s)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	var out []official
	for _, row := range rows[1:] {
		v := official{index: row[0], msg: unhex(row[4]), valid: row[6] == "TRUE"}
		if copy(v.pub[:], unhex(row[2])) != 32 || copy(v.sig[:], unhex(row[5])) != 64 {
			t.Fatalf("row %s: a key or signature is short", row[0])
		}
		out = append(out, v)
	}
	if len(out) < 19 {
		t.Fatalf("only %d vectors", len(out))
	}
	return out
}

func TestOfficialVectors(t *testing.T) {
	all := officialVectors(t)
	eachPath(t, func(t *testing.T) {
		for _, cache := range []int{0, -1, tableCost} {
			v := NewVerifier(cache)
			for round := range 2 { // the second round finds the tables
				for _, o := range all {
					if got := v.Verify(&o.pub, o.msg, &o.sig); got != o.valid {
						t.Errorf("vector %s, cache %d, round %d: verdict %v", o.index, cache, round, got)
					}
				}
			}
		}
	})
}

// TestOfficialVectorsInGroups puts each vector of 32 bytes at each place of groups of
// several sizes, among the others.
func TestOfficialVectorsInGroups(t *testing.T) {
	all := officialVectors(t)
	eachPath(t, func(t *testing.T) {
		v := NewVerifier(0)
		for _, n := range []int{0, 1, 2, 3, 15, 63, 64, 65, 200} {
			var g group
			var want []bool
			for i := 0; len(want) < n; i++ {
				if o := &all[i*7%len(all)]; len(o.msg) == 32 {
					g.add(&o.pub, (*[32]byte)(o.msg), &o.sig)
					want = append(want, o.valid)
				}
			}
			g.check(t, v, want)
		}
	})
}

// group collects what VerifyGroup wants.
type group struct {
	pubs, msgs []*[32]byte
	sigs       []*[64]byte
}

func (g *group) add(pub, msg *[32]byte, sig *[64]byte) {
	g.pubs = append(g.pubs, pub)
	g.msgs = append(g.msgs, msg)
	g.sigs = append(g.sigs, sig)
}

func (g *group) check(t *testing.T, v *Verifier, want []bool) {
	t.Helper()
	ok := make([]bool, len(want))
	for i := range ok {
		ok[i] = !want[i]
	}
	v.VerifyGroup(g.pubs, g.msgs, g.sigs, ok)
	for i := range want {
		if ok[i] != want[i] {
			t.Errorf("group of %d, number %d: verdict %v", len(want), i, ok[i])
		}
	}
}
