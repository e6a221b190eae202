package identity

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
)

// A did:peer names a session or a leaf before it has anything public: numalgo 2 spells
// its keys and services out, numalgo 4 carries a whole document and its hash.
const (
	peer2 = "did:peer:2"
	peer4 = "did:peer:4"

	maxPeerDID = 16384 // octets
)

var (
	jsonCodec   = []byte{0x80, 0x04} // multicodec json, 0x0200 as a varint
	sha256Codec = []byte{0x12, 0x20} // multihash sha2-256, 32 octets
)

// NewDIDPeer2 makes a did:peer:2 with an authentication key, an agreement key and one DIDComm
// service; uri "" leaves the service out.
func NewDIDPeer2(auth TransportKey, agree AgreementKey, uri string, routingKeys []string) (string, error) {
	did := peer2 +
		".V" + Multikey{Ed25519, auth[:]}.Base58() +
		".E" + Multikey{X25519, agree[:]}.Base58()
	if uri == "" {
		return did, nil
	}
	service := map[string]any{"t": "dm", "s": map[string]any{"uri": uri, "a": []string{"didcomm/v2"}, "r": append([]string{}, routingKeys...)}}
	text, err := json.Marshal(service)
	if err != nil {
		return "", fmt.Errorf("did:peer service: %w", err)
	}
	return did + ".S" + base64.RawURLEncoding.EncodeToString(text), nil
}

// NewDIDPeer4 makes the long form of a did:peer:4 from a document without an id.
func NewDIDPeer4(d *Document) (string, error) {
	bare := *d
	bare.ID = ""
	text, err := json.Marshal(struct {
		*Document
		ID string `json:"id,omitempty"`
	}{Document: &bare})
	if err != nil {
		return "", fmt.Errorf("did:peer document: %w", err)
	}
	body := "z" + encodeBase58(append(bytes.Clone(jsonCodec), text...))
	if len(body) > maxBase58Document {
		return "", fault(BadPeerDID, "document is too long")
	}
	return peer4 + peer4Hash(body) + ":" + body, nil
}

func peer4Hash(body string) string {
	sum := sha256.Sum256([]byte(body))
	return "z" + encodeBase58(append(bytes.Clone(sha256Codec), sum[:]...))
}

// ShortDIDPeer4 is the short form of a long did:peer:4; a peer that holds the long form knows it by either.
func ShortDIDPeer4(long string) string {
	i := strings.LastIndexByte(long, ':')
	if !strings.HasPrefix(long, peer4) || i < len(peer4) {
		return long
	}
	return long[:i]
}

// ParseDIDPeer resolves a did:peer of numalgo 2 or a long one of numalgo 4, which need nothing
// but themselves, to its document. Every key is checked.
func ParseDIDPeer(s string) (*Document, error) {
	if len(s) > maxPeerDID {
		return nil, fault(BadPeerDID, "too long")
	}
	switch {
	case strings.HasPrefix(s, peer2):
		return parsePeer2(s)
	case strings.HasPrefix(s, peer4):
		return parsePeer4(s)
	}
	return nil, fault(BadDID, "not a did:peer of numalgo 2 or 4")
}

func parsePeer2(s string) (*Document, error) {
	d := &Document{Context: []string{"https://www.w3.org/ns/did/v1", "https://w3id.org/security/multikey/v1"}, ID: s}
	parts := strings.Split(s[len(peer2):], ".")
	if parts[0] != "" || len(parts) < 2 {
		return nil, fault(BadPeerDID, "no elements")
	}
	for _, p := range parts[1:] {
		if p == "" {
			return nil, fault(BadPeerDID, "empty element")
		}
		if p[0] == 'S' {
			if err := d.addPeerService(p[1:]); err != nil {
				return nil, err
			}
			continue
		}
		if _, err := ParseMultikey(p[1:]); err != nil {
			return nil, err
		}
		id := "#key-" + strconv.Itoa(len(d.VerificationMethod)+1)
		switch p[0] {
		case 'V':
			d.Authentication = append(d.Authentication, id)
		case 'A':
			d.AssertionMethod = append(d.AssertionMethod, id)
		case 'E':
			d.KeyAgreement = append(d.KeyAgreement, id)
		case 'D', 'I': // delegation and invocation: named by the method, of no use here
		default:
			return nil, fault(BadPeerDID, "unknown purpose "+strconv.Quote(p[:1]))
		}
		d.VerificationMethod = append(d.VerificationMethod, VerificationMethod{ID: id, Type: "Multikey", Controller: s, Multibase: p[1:]})
	}
	return d, nil
}

// addPeerService decodes one abbreviated service; both spellings of the endpoint are in use.
func (d *Document) addPeerService(encoded string) error {
	text, err := base64.RawURLEncoding.Strict().DecodeString(strings.TrimRight(encoded, "="))
	if err != nil {
		return fault(BadPeerDID, "service: "+err.Error())
	}
	var short struct {
		T string          `json:"t"`
		S json.RawMessage `json:"s"`
		R []string        `json:"r"`
		A []string        `json:"a"`
	}
	if err := json.Unmarshal(text, &short); err != nil {
		return fault(BadPeerDID, "service: "+err.Error())
	}
	var end struct {
		URI string   `json:"uri"`
		R   []string `json:"r"`
		A   []string `json:"a"`
	}
	if json.Unmarshal(short.S, &end.URI) != nil {
		if err := json.Unmarshal(short.S, &end); err != nil {
			return fault(BadPeerDID, "service endpoint: "+err.Error())
		}
	} else {
		end.R, end.A = short.R, short.A
	}
	kind := short.T
	if kind == "dm" {
		kind = "DIDCommMessaging"
	}
	id := "#service"
	if n := len(d.Service); n > 0 {
		id += "-" + strconv.Itoa(n)
	}
	d.Service = append(d.Service, Service{ID: id, Type: kind, Endpoint: DIDCommEndpoint{URI: end.URI, Accept: end.A, RoutingKeys: end.R}})
	return nil
}

func parsePeer4(s string) (*Document, error) {
	hash, body, ok := strings.Cut(s[len(peer4):], ":")
	if !ok {
		return nil, fault(BadPeerDID, "a short did:peer:4 resolves only where its long form is known")
	}
	if !strings.HasPrefix(body, "z") || peer4Hash(body) != hash {
		return nil, fault(BadPeerDID, "hash is not the document's")
	}
	raw, err := decodeBase58(body[1:], maxBase58Document)
	if err != nil {
		return nil, fault(BadPeerDID, err.Error())
	}
	text, ok := bytes.CutPrefix(raw, jsonCodec)
	if !ok {
		return nil, fault(BadPeerDID, "document is not JSON")
	}
	d := new(Document)
	if err := json.Unmarshal(text, d); err != nil {
		return nil, fault(BadPeerDID, err.Error())
	}
	if d.ID != "" {
		return nil, fault(BadPeerDID, "the document must not name itself")
	}
	d.ID = s
	d.AlsoKnownAs = append(d.AlsoKnownAs, ShortDIDPeer4(s))
	for i := range d.VerificationMethod {
		m := &d.VerificationMethod[i]
		if _, err := ParseMultikey(m.Multibase); err != nil {
			return nil, err
		}
		if m.Controller == "" {
			m.Controller = s
		}
	}
	return d, nil
}
