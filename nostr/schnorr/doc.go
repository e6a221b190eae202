// Package schnorr verifies BIP-340 signatures: Schnorr signatures over
// secp256k1 with keys of 32 bytes, as NIP-01 puts them on every event.
//
// Every verdict is exact: it is the verdict of the BIP's verification
// algorithm for that key, message and signature, whichever path computed it
// and whatever stood beside it in a group or a batch. The paths differ in
// speed only.
//
// Nothing here is constant time. Keys, messages and signatures are public; a
// secret must never go through this package, and so it does not sign.
package schnorr
