// Package schnorr verifies BIP-340 signatures: Schnorr signatures over
// secp256k1 with keys of 32 bytes, as NIP-01 puts them on every event.
//
// Every verdict is exact: it is the verdict of the BIP's verification
// algorithm for that key, message and signature, whichever path computed it
// and whatever stood beside it in a group. In a batch, a bad signature passes
// with a chance of at most 2^-128. The paths differ in speed only.
//
// Nothing here is constant time. Keys, messages and signatures are public; a
// secret must never go through this package, and so it does not sign.
//
// R = s·G - e·P is one sum of multiples of table entries. The endomorphism of the
// curve halves the numbers to 128 bits, and tables of 2^32·P, 2^64·P and 2^96·P
// beside P leave 32 doublings for all (ladder.go, table.go). The tables of
// authors met more than once are cached (cache.go). x is compared without an
// inversion; the one that y needs is shared in a group (verify.go). For bulk
// import one equation stands for up to a thousand signatures (batch.go).
//
// Field arithmetic is in four limbs of 64 bits (field.go), portable Go with the
// bounds of every step beside it; amd64 processors with BMI2 and ADX get whole point
// operations in assembly, which internal/gen writes (kernel_amd64.s). With AVX-512 IFMA
// up to sixteen signatures of a group go side by side, each with its own sum and verdict, in
// limbs of 52 bits (lanes.go, lanes_amd64.s). The build tag purego leaves all assembly out.
package schnorr
