package didcomm

import (
	"errors"
	"fmt"
	"strings"
	"time"

	jsonv2 "github.com/go-json-experiment/json"
)

// Prior is a proven rotation: Issuer, the DID used until now, hands over to
// Subject, the DID that now speaks (§ DID Rotation).
type Prior struct {
	Issuer, Subject string
	IssuedAt        int64 // unix seconds
	KID             string
}

type priorClaims struct {
	Sub string `json:"sub"`
	Iss string `json:"iss"`
	Iat int64  `json:"iat"`
}

// NewFromPrior writes the from_prior header: a JWT in which an authentication
// key of the prior DID names the new one.
func NewFromPrior(p Prior, as Signer) (string, error) {
	head, err := jsonv2.Marshal(jwsHeader{Typ: "JWT", Alg: as.Alg, KID: as.KID}, strict)
	if err != nil {
		return "", fmt.Errorf("write from_prior: %w", err)
	}
	claims, err := jsonv2.Marshal(priorClaims{Sub: p.Subject, Iss: p.Issuer, Iat: p.IssuedAt}, strict)
	if err != nil {
		return "", fmt.Errorf("write from_prior: %w", err)
	}
	input := b64.EncodeToString(head) + "." + b64.EncodeToString(claims)
	sig, err := as.Sign([]byte(input))
	if err != nil {
		return "", fmt.Errorf("sign from_prior as %s: %w", as.KID, err)
	}
	return input + "." + b64.EncodeToString(sig), nil
}

// verifyPrior checks a from_prior header of a message from the DID from. Every
// error is ErrRotation.
func verifyPrior(jwt, from string, resolve Resolver) (*Prior, error) {
	parts := strings.Split(jwt, ".")
	if len(jwt) > maxPrior || len(parts) != 3 {
		return nil, ErrRotation
	}
	head, sig, err := parseSignature(parts[0], parts[2])
	if err != nil {
		return nil, ErrRotation
	}
	raw, err := unb64(parts[1])
	if err != nil {
		return nil, ErrRotation
	}
	var c priorClaims
	if err := jsonv2.Unmarshal(raw, &c, strict); err != nil {
		return nil, ErrRotation
	}
	switch {
	case head.Typ != "" && head.Typ != "JWT",
		!isDID(c.Iss), !isDID(c.Sub), c.Iss == c.Sub, c.Iat <= 0,
		from == "" || DIDOf(from) != c.Sub,
		DIDOf(head.KID) != c.Iss,
		!verifyBy(resolve, head.KID, head.Alg, []byte(parts[0]+"."+parts[1]), sig):
		return nil, ErrRotation
	}
	return &Prior{Issuer: c.Iss, Subject: c.Sub, IssuedAt: c.Iat, KID: head.KID}, nil
}

// ErrRotationReplay says that a rotation is older than one already accepted from
// the same issuer.
var ErrRotationReplay = errors.New("didcomm: the rotation is older than one already accepted")

// Follows decides whether p may be accepted after last, the newest rotation
// accepted from the same issuer (the zero Prior when there is none). A sender
// repeats from_prior until it is answered, so the very same rotation again is no
// error: changed is then false. Otherwise iat must have grown, and may not lie
// more than skew ahead of now.
func (p Prior) Follows(last Prior, now time.Time, skew time.Duration) (changed bool, err error) {
	if p.IssuedAt > now.Add(skew).Unix() {
		return false, fmt.Errorf("%w: it was issued in the future", ErrRotation)
	}
	if last.Issuer == "" {
		return true, nil
	}
	if last.Issuer != p.Issuer {
		return false, fmt.Errorf("%w: compared with a rotation of another issuer", ErrRotation)
	}
	if p.IssuedAt == last.IssuedAt && p.Subject == last.Subject {
		return false, nil
	}
	if p.IssuedAt <= last.IssuedAt {
		return false, ErrRotationReplay
	}
	return true, nil
}
