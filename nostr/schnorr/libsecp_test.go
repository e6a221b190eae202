package schnorr

import (
	"bytes"
	cryptorand "crypto/rand"
	"encoding/binary"
	"fmt"
	"math/big"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
)

// TestAgainstLibsecp compares verdicts, single, in groups and in batches, with
// libsecp256k1's, where a C compiler and that library are installed.
// FLEETMESH_SCHNORR_COUNT says how many signatures, 5,000 if unset.
func TestAgainstLibsecp(t *testing.T) {
	n := 5000
	if testing.Short() {
		n = 1000
	}
	if s := os.Getenv("FLEETMESH_SCHNORR_COUNT"); s != "" {
		var err error
		if n, err = strconv.Atoi(s); err != nil {
			t.Fatalf("FLEETMESH_SCHNORR_COUNT: %v", err)
		}
	}
	program, err := buildLibsecp(t)
	if err != nil {
		t.Skip(err)
	}
	differences, good := 0, 0
	for done := 0; done < n; done += 10000 {
		f := newForge(uint64(1000 + done))
		all := f.triples(min(10000, n-done))
		want, _ := libsecpVerdicts(t, program, all)
		for _, w := range want {
			if w {
				good++
			}
		}
		eachPath(t, func(t *testing.T) { differences += compareAll(t, all, want) })
	}
	t.Logf("%d signatures, %d of them good, on every path single, in groups and in batches: %d differences", n, good, differences)
}

// TestManyAgainstLibsecp is the long form on the fastest path, in groups: signatures by our own
// signer with keys on every border, a third of them spoiled. A million with FLEETMESH_FULL=1.
func TestManyAgainstLibsecp(t *testing.T) {
	n := 4000
	if os.Getenv("FLEETMESH_FULL") == "1" {
		n = 1000000
	}
	program, err := buildLibsecp(t)
	if err != nil {
		t.Skip(err)
	}
	v := NewVerifier(0)
	good, differences := 0, 0
	for done := 0; done < n; done += 20000 {
		all := newForge(uint64(77 + done)).many(min(20000, n-done))
		want, _ := libsecpVerdicts(t, program, all)
		g, ok := batchOf(all), make([]bool, len(all))
		v.VerifyGroup(g.pubs, g.msgs, g.sigs, ok)
		for i := range all {
			if want[i] {
				good++
			}
			if ok[i] != want[i] {
				differences++
				t.Errorf("%s: verdict %v: pub %x msg %x sig %x", all[i].what, ok[i], all[i].pub, all[i].msg, all[i].sig)
			}
		}
	}
	t.Logf("path %s: %d signatures in groups, %d of them good: %d differences", Path(), n, good, differences)
}

// many draws n signatures by a thousand keys, with nonces that are hashes.
func (f *forge) many(n int) (out []triple) {
	type author struct {
		d      *big.Int
		signer *Signer
	}
	var authors []author
	for range 1000 {
		d := f.number()
		var b [32]byte
		d.FillBytes(b[:])
		if s, ok := NewSigner(&b); ok {
			authors = append(authors, author{d, s})
		}
	}
	for i := range n {
		a := authors[f.r.IntN(len(authors))]
		tr := triple{pub: a.signer.PubKey(), what: "good"}
		binary.LittleEndian.PutUint64(tr.msg[:], f.r.Uint64())
		binary.LittleEndian.PutUint64(tr.msg[8:], uint64(i))
		tr.sig = a.signer.Sign(&tr.msg, &[32]byte{})
		if f.r.IntN(3) == 0 {
			f.spoil(&tr, a.d, out)
		}
		out = append(out, tr)
	}
	return out
}

func buildLibsecp(t testing.TB) (program string, err error) {
	t.Helper()
	program = filepath.Join(t.TempDir(), "oracle")
	if out, err := exec.Command("cc", "-O2", "-o", program, "testdata/oracle.c", "-lsecp256k1").CombinedOutput(); err != nil {
		return "", fmt.Errorf("libsecp256k1 or a C compiler is not here: %w: %s", err, out)
	}
	return program, nil
}

// libsecpVerdicts also returns the nanoseconds of processor time of one signature.
func libsecpVerdicts(t testing.TB, program string, all []triple) (want []bool, ns float64) {
	t.Helper()
	var in, out, spent bytes.Buffer
	for i := range all {
		in.Write(all[i].pub[:])
		in.Write(all[i].msg[:])
		in.Write(all[i].sig[:])
	}
	cmd := exec.Command(program)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = &in, &out, &spent
	if err := cmd.Run(); err != nil {
		t.Fatalf("run the oracle: %v", err)
	}
	if out.Len() != len(all) {
		t.Fatalf("the oracle gave %d verdicts on %d", out.Len(), len(all))
	}
	want = make([]bool, len(all))
	for i, b := range out.Bytes() {
		want[i] = b == '1'
	}
	ns, err := strconv.ParseFloat(spent.String(), 64)
	if err != nil {
		t.Fatalf("read the oracle's time: %v", err)
	}
	return want, ns
}

// compareAll counts verdicts that differ from want, and reports them.
func compareAll(t *testing.T, all []triple, want []bool) (differences int) {
	t.Helper()
	v := NewVerifier(500 * tableCost)
	check := func(how string, i int, got bool) {
		if got != want[i] {
			differences++
			t.Errorf("%s: %s: verdict %v: pub %x msg %x sig %x", how, all[i].what, got, all[i].pub, all[i].msg, all[i].sig)
		}
	}
	for i := range all {
		check("single", i, v.Verify(&all[i].pub, all[i].msg[:], &all[i].sig))
	}
	g := batchOf(all)
	ok := make([]bool, len(all))
	v.VerifyGroup(g.pubs, g.msgs, g.sigs, ok)
	for i := range all {
		check("group", i, ok[i])
	}
	// In batches of the good, with now and then a bad one, so that some hold.
	var some []triple
	var at []int
	for i := range all {
		if want[i] || i%500 == 0 {
			some = append(some, all[i])
			at = append(at, i)
		}
	}
	g, ok = batchOf(some), make([]bool, len(some))
	if err := v.VerifyBatch(cryptorand.Reader, g.pubs, g.msgs, g.sigs, ok); err != nil {
		t.Fatal(err)
	}
	for i := range some {
		check("batch", at[i], ok[i])
	}
	return differences
}
