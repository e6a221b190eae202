package identity

// KeyDocument is the document of a did:key: one key and what its curve is good for. It needs nothing but the key.
func KeyDocument(m Multikey) *Document {
	did := FormatDIDKey(m)
	id := did + "#" + m.Base58()
	d := &Document{
		Context:            []string{"https://www.w3.org/ns/did/v1", "https://w3id.org/security/multikey/v1"},
		ID:                 did,
		VerificationMethod: []VerificationMethod{{ID: id, Type: "Multikey", Controller: did, Multibase: m.Base58()}},
		Authentication:     []string{},
		AssertionMethod:    []string{},
	}
	if m.Curve == X25519 {
		d.KeyAgreement = []string{id}
		return d
	}
	d.Authentication, d.AssertionMethod = []string{id}, []string{id}
	return d
}
