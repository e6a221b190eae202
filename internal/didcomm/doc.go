// Package didcomm seals and opens DIDComm Messaging v2 envelopes and holds the
// bodies of the standard protocols. It knows nothing of fleetmesh: messages,
// keys and DIDs of any method.
//
// Everything here is pure but for the random bytes that sealing takes from
// crypto/rand: time is an argument, keys are asked of a [Keyring] and a
// [Resolver], nothing is logged. Layers, from the inside out:
//
//	plaintext   message.go
//	signed      sign.go: JWS, EdDSA, ES256, ES256K
//	encrypted   jwe.go, seal.go, open.go: authcrypt (ECDH-1PU draft-04) and
//	            anoncrypt (ECDH-ES), both with A256KW; zip.go: compression
//	            inside of authcrypt, where the receiver said that it reads it
//	forward     forward.go: routing/2.0
//
// [Pack] and [Unpack] put the layers together and enforce the rules that hold
// between them. What opening says about failure is one opaque error, so that an
// answer to a peer cannot become an oracle.
package didcomm

import "errors"

// Limits on what is read. Written messages obey them too.
const (
	MaxEnvelope    = 4 << 20 // octets of a packed message, all layers
	MaxRecipients  = 64      // of one envelope
	MaxAttachments = 4096    // of one message
	MaxTo          = 256     // addressees of one message
	MaxIDLength    = 512     // octets of an id, thread id, DID or key id
	MaxLayers      = 3       // anoncrypt(authcrypt(signed)) is the deepest
	maxHeader      = 16 << 10
	maxPrior       = 8 << 10
)

// Media types (DIDComm v2 § IANA).
const (
	TypPlain     = "application/didcomm-plain+json"
	TypSigned    = "application/didcomm-signed+json"
	TypEncrypted = "application/didcomm-encrypted+json"
)

// Errors that a caller tells apart.
var (
	// ErrOpen is every failure to decrypt or to verify: not for us, a wrong key,
	// a changed octet, a bad signature, an unknown sender. On purpose it does not
	// say which.
	ErrOpen = errors.New("didcomm: the message cannot be opened")
	// ErrSyntax wraps what is wrong with the form of something public: JSON,
	// base64, a missing header, a limit.
	ErrSyntax = errors.New("didcomm: malformed message")
	// ErrTooLarge is returned for anything over MaxEnvelope.
	ErrTooLarge = errors.New("didcomm: message is larger than 4 MiB")
	// ErrAddressing says that layers that each opened do not belong together:
	// the plaintext names another sender or recipient than the keys do.
	ErrAddressing = errors.New("didcomm: the layers of the message name different parties")
	// ErrRotation says that from_prior does not prove a rotation. The message
	// must be dropped, not processed as if the header were absent.
	ErrRotation = errors.New("didcomm: from_prior does not prove the rotation")
)
