package didcomm

import (
	"bytes"
	"crypto/ecdh"
	"fmt"
	"slices"

	jsonv2 "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// Header is what an encrypted message shows to whoever carries it.
type Header struct {
	Alg, Enc   string
	Zip        string   // "" or ZipDeflate
	SenderKID  string   // authcrypt only
	Recipients []string // key ids
}

// Peek reads the outside of an encrypted message without a key: for routing, and
// for fetching the sender's document before Unpack asks for it. Nothing in it is
// proven. Errors wrap ErrSyntax or ErrTooLarge.
func Peek(envelope []byte) (Header, error) {
	e, err := parseJWE(envelope)
	if err != nil {
		return Header{}, err
	}
	return Header{Alg: e.head.Alg, Enc: e.head.Enc, Zip: e.head.Zip, SenderKID: e.head.SKID, Recipients: e.kids}, nil
}

// protected is the protected header of a JWE.
type protected struct {
	Typ  string         `json:"typ,omitempty"`
	Alg  string         `json:"alg"`
	Enc  string         `json:"enc"`
	SKID string         `json:"skid,omitempty"`
	APU  string         `json:"apu,omitempty"`
	APV  string         `json:"apv"`
	EPK  JWK            `json:"epk"`
	Cty  string         `json:"cty,omitempty"`
	Crit jsontext.Value `json:"crit,omitempty"`
	Zip  string         `json:"zip,omitempty"`
}

// jweJSON is the general JSON serialisation (RFC 7516 § 7.2.1).
type jweJSON struct {
	Protected   string         `json:"protected"`
	Unprotected jsontext.Value `json:"unprotected,omitempty"`
	Recipients  []struct {
		Header struct {
			KID string `json:"kid"`
		} `json:"header"`
		EncryptedKey string `json:"encrypted_key"`
	} `json:"recipients"`
	AAD        string `json:"aad,omitempty"`
	IV         string `json:"iv"`
	Ciphertext string `json:"ciphertext"`
	Tag        string `json:"tag"`
}

// envelope is a JWE whose form has been checked.
type envelope struct {
	aad      []byte // the protected header as it was written
	head     protected
	epk      *ecdh.PublicKey
	apu, apv []byte
	kids     []string
	wrapped  [][]byte // the content key for each of kids
	iv, body []byte
	tag      []byte
}

// parseJWE checks everything that can be checked without a private key.
func parseJWE(b []byte) (*envelope, error) {
	if len(b) > MaxEnvelope {
		return nil, ErrTooLarge
	}
	var j jweJSON
	if err := jsonv2.Unmarshal(b, &j, strict); err != nil {
		return nil, fmt.Errorf("%w: envelope: %w", ErrSyntax, err)
	}
	if j.Unprotected != nil || j.AAD != "" {
		return nil, fmt.Errorf("%w: envelope: unprotected headers and aad are not used in DIDComm", ErrSyntax)
	}
	if n := len(j.Recipients); n == 0 || n > MaxRecipients {
		return nil, fmt.Errorf("%w: envelope: %d recipients, wanted 1 to %d", ErrSyntax, n, MaxRecipients)
	}
	e := &envelope{aad: []byte(j.Protected)}
	if err := e.parseHeader(j.Protected); err != nil {
		return nil, err
	}
	for _, r := range j.Recipients {
		kid := r.Header.KID
		if kid == "" || len(kid) > MaxIDLength || slices.Contains(e.kids, kid) {
			return nil, fmt.Errorf("%w: envelope: key id %.80q is empty, too long or there twice", ErrSyntax, kid)
		}
		w, err := unb64(r.EncryptedKey)
		if err != nil {
			return nil, err
		}
		e.kids, e.wrapped = append(e.kids, kid), append(e.wrapped, w)
	}
	if !bytes.Equal(e.apv, partyV(e.kids)) {
		return nil, fmt.Errorf("%w: envelope: apv is not the hash of the recipients' key ids", ErrSyntax)
	}
	return e, e.parseContent(&j)
}

func (e *envelope) parseHeader(text string) error {
	if len(text) > maxHeader {
		return fmt.Errorf("%w: envelope: protected header is longer than %d octets", ErrSyntax, maxHeader)
	}
	raw, err := unb64(text)
	if err != nil {
		return err
	}
	p := &e.head
	if err := jsonv2.Unmarshal(raw, p, strict); err != nil {
		return fmt.Errorf("%w: protected header: %w", ErrSyntax, err)
	}
	if p.Crit != nil {
		return fmt.Errorf("%w: protected header: crit is not supported", ErrSyntax)
	}
	if p.Zip != "" && (p.Zip != ZipDeflate || p.Alg != AlgAuthcrypt) {
		return fmt.Errorf("%w: protected header: zip %.40q with %.40q, wanted %s in authcrypt", ErrSyntax, p.Zip, p.Alg, ZipDeflate)
	}
	if p.Typ != "" && p.Typ != TypEncrypted && "application/"+p.Typ != TypEncrypted {
		return fmt.Errorf("%w: protected header: typ %.80q is not %q", ErrSyntax, p.Typ, TypEncrypted)
	}
	if _, ok := contents[p.Enc]; !ok {
		return fmt.Errorf("%w: protected header: unknown enc %.40q", ErrSyntax, p.Enc)
	}
	if e.apu, err = unb64(p.APU); err != nil {
		return err
	}
	if e.apv, err = unb64(p.APV); err != nil {
		return err
	}
	if e.epk, err = p.EPK.AgreementPublic(); err != nil {
		return err
	}
	return e.checkSender()
}

// checkSender holds authcrypt to its pairing with A256CBC-HS512, the only content
// encryption that commits to its key, and apu to the sender's key id.
func (e *envelope) checkSender() error {
	p := &e.head
	switch p.Alg {
	case AlgAnoncrypt:
		if p.SKID != "" {
			return fmt.Errorf("%w: protected header: anoncrypt with a skid", ErrSyntax)
		}
		return nil
	case AlgAuthcrypt:
		if p.Enc != EncCBC {
			return fmt.Errorf("%w: protected header: authcrypt with %s instead of %s", ErrSyntax, p.Enc, EncCBC)
		}
		if p.SKID == "" {
			p.SKID = string(e.apu)
		}
		if p.SKID != string(e.apu) || !isDID(p.SKID) || len(p.SKID) > MaxIDLength {
			return fmt.Errorf("%w: protected header: apu and skid do not name one sender key", ErrSyntax)
		}
		return nil
	}
	return fmt.Errorf("%w: protected header: unknown alg %.40q", ErrSyntax, p.Alg)
}

func (e *envelope) parseContent(j *jweJSON) (err error) {
	if e.iv, err = unb64(j.IV); err != nil {
		return err
	}
	if e.tag, err = unb64(j.Tag); err != nil {
		return err
	}
	if e.body, err = unb64(j.Ciphertext); err != nil {
		return err
	}
	return nil
}

// appendJWE writes the general JSON serialisation.
func appendJWE(protectedText []byte, kids []string, wrapped [][]byte, iv, body, tag []byte) ([]byte, error) {
	dst := make([]byte, 0, 256+len(protectedText)+len(kids)*200+b64.EncodedLen(len(body)))
	dst = append(dst, `{"protected":"`...)
	dst = append(dst, protectedText...)
	dst = append(dst, `","recipients":[`...)
	for i, kid := range kids {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(dst, `{"header":{"kid":`...)
		var err error
		if dst, err = jsontext.AppendQuote(dst, kid); err != nil {
			return nil, fmt.Errorf("%w: key id: %w", ErrSyntax, err)
		}
		dst = append(dst, `},"encrypted_key":"`...)
		dst = b64.AppendEncode(dst, wrapped[i])
		dst = append(dst, `"}`...)
	}
	dst = append(dst, `],"iv":"`...)
	dst = b64.AppendEncode(dst, iv)
	dst = append(dst, `","ciphertext":"`...)
	dst = b64.AppendEncode(dst, body)
	dst = append(dst, `","tag":"`...)
	dst = b64.AppendEncode(dst, tag)
	dst = append(dst, `"}`...)
	if len(dst) > MaxEnvelope {
		return nil, ErrTooLarge
	}
	return dst, nil
}
