package identity

import (
	"crypto/hkdf"
	"crypto/sha256"
	"encoding/base64"
	"encoding/csv"
	"encoding/hex"
	"encoding/json"
	"os"
	"reflect"
	"strings"
	"testing"

	"fleetmesh.org/fleetmesh/internal/vectors"
	"fleetmesh.org/fleetmesh/nostr"
)

func readJSON(t *testing.T, v any, name ...string) {
	t.Helper()
	text, err := os.ReadFile(vectors.Path(t, name...))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, v); err != nil {
		t.Fatal(err)
	}
}

type didNostrVectors struct {
	Vectors struct {
		Transform []struct{ Name, Input, Output string } `json:"key_transformation"`
		Decode    []struct {
			Name, Input, Output string
			Parity              int
		} `json:"key_decoding"`
		Errors []struct{ Name, Input, Error string } `json:"error_cases"`
		Docs   []struct {
			Name, Input string
			Output      map[string]any
		} `json:"did_document_generation"`
	}
}

func TestDIDNostrKeys(t *testing.T) {
	var v didNostrVectors
	readJSON(t, &v, "did-nostr", "test-vectors-generated.json")
	for _, c := range v.Vectors.Transform {
		k, err := hex.DecodeString(strings.ToLower(c.Input))
		if err != nil {
			t.Fatal(err)
		}
		if got := NodeMultikey(nostr.PubKey(k)); got != c.Output {
			t.Errorf("%s: %s, want %s", c.Name, got, c.Output)
		}
		// A subject must be on the curve, so both opaque keys of the vectors are refused here.
		_, err = ParseDID("did:nostr:" + strings.ToLower(c.Input))
		off := c.Name == "all_zeros" || c.Name == "all_ones"
		if (CodeOf(err) == OffCurve) != off || (err == nil) == off {
			t.Errorf("%s: ParseDID: %v", c.Name, err)
		}
	}
	for _, c := range v.Vectors.Decode {
		m, err := ParseMultikey(c.Input)
		if err != nil {
			t.Fatalf("%s: %v", c.Name, err)
		}
		if k, _ := m.Node(); k.String() != c.Output || int(m.Key[0]) != c.Parity {
			t.Errorf("%s: %v", c.Name, m)
		}
	}
	for _, c := range v.Vectors.Errors {
		var err error
		if strings.HasPrefix(c.Error, "InvalidHex") || c.Error == "InvalidPublicKey" {
			_, err = ParseDID("did:nostr:" + c.Input)
		} else {
			_, err = ParseNodeMultikey(c.Input)
		}
		if CodeOf(err) == "" {
			t.Errorf("%s: want an error, got %v", c.Name, err)
		}
	}
}

func TestDIDNostrDocuments(t *testing.T) {
	var v didNostrVectors
	readJSON(t, &v, "did-nostr", "test-vectors-generated.json")
	for _, c := range v.Vectors.Docs {
		k, err := ParseDID(c.Input)
		if err != nil {
			t.Fatal(err)
		}
		var facts UserFacts
		services, _ := c.Output["service"].([]any)
		for _, s := range services {
			facts.Relays = append(facts.Relays, s.(map[string]any)["serviceEndpoint"].(string))
		}
		also, _ := c.Output["alsoKnownAs"].([]any)
		for _, s := range also {
			facts.AlsoKnownAs = append(facts.AlsoKnownAs, s.(string))
		}
		follows, _ := c.Output["follows"].([]any)
		for _, s := range follows {
			f, _, err := ParseDIDURL(s.(string))
			if err != nil {
				t.Logf("%s: %v", s, err)
				b, _ := hex.DecodeString(strings.TrimPrefix(s.(string), didNostr))
				f = nostr.PubKey(b)
			}
			facts.Follows = append(facts.Follows, f)
		}
		if p, ok := c.Output["profile"]; ok {
			facts.Profile, _ = json.Marshal(p)
		}
		if c.Output["modified"] != nil {
			facts.Modified = 1737906600
		}
		text, err := json.Marshal(UserDocument(k, facts))
		if err != nil {
			t.Fatal(err)
		}
		var got map[string]any
		if err := json.Unmarshal(text, &got); err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(got, c.Output) {
			want, _ := json.Marshal(c.Output)
			t.Errorf("%s:\n%s\n%s", c.Name, text, want)
		}
	}
}

func TestDIDKeyVectors(t *testing.T) {
	for _, name := range []string{"ed25519", "x25519", "secp256k1"} {
		var v map[string]map[string]struct {
			VerificationMethod []struct {
				PublicKeyJwk struct{ Crv, X string } `json:"publicKeyJwk"`
			} `json:"verificationMethod"`
		}
		readJSON(t, &v, "did-key", "didkeyjs-"+name+".json")
		for did, forms := range v {
			m, err := ParseDIDKey(did)
			if err != nil {
				t.Errorf("%s: %v", did, err)
				continue
			}
			if got := FormatDIDKey(m); got != did {
				t.Errorf("%s comes back as %s", did, got)
			}
			for _, method := range forms["application/did+json"].VerificationMethod {
				x, err := base64.RawURLEncoding.DecodeString(method.PublicKeyJwk.X)
				if err != nil || !strings.EqualFold(method.PublicKeyJwk.Crv, string(m.Curve)) {
					continue
				}
				key := m.Key
				if m.Curve == Secp256k1 {
					key = key[1:]
				}
				if string(x) != string(key) {
					t.Errorf("%s: key %x, want %x", did, key, x)
				}
			}
			again, err := ParseDIDKey("did:key:" + m.Base16())
			if err != nil || !reflect.DeepEqual(again, m) {
				t.Errorf("%s in base16: %v", did, err)
			}
		}
	}
}

func TestBIP340(t *testing.T) {
	f, err := os.Open(vectors.Path(t, "bip340", "test-vectors.csv"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	rows, err := csv.NewReader(f).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range rows[1:] {
		pub, _ := hex.DecodeString(row[2])
		msg, _ := hex.DecodeString(row[4])
		sig, _ := hex.DecodeString(row[5])
		if len(msg) != 32 {
			continue // what this protocol signs is a digest
		}
		if got := Verify(nostr.PubKey(pub), [32]byte(msg), nostr.Sig(sig)); got != (row[6] == "TRUE") {
			t.Errorf("row %s: %v, want %s", row[0], got, row[6])
		}
		if row[1] == "" || strings.Trim(row[3], "0") != "" {
			continue // signing here is with zero auxiliary randomness
		}
		secret, _ := hex.DecodeString(row[1])
		a, err := NewKeyAgent(nostr.SecretKey(secret))
		if err != nil {
			t.Fatal(err)
		}
		made, err := a.Sign([32]byte(msg))
		if err != nil || !strings.EqualFold(made.String(), row[5]) {
			t.Errorf("row %s: signed %s, %v", row[0], made, err)
		}
	}
}

func TestHKDFVectors(t *testing.T) {
	text, err := os.ReadFile(vectors.Path(t, "hkdf", "rfc-5869-HKDF-SHA256.txt"))
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, block := range strings.Split(string(text), "COUNT")[1:] {
		field := map[string]string{}
		for _, line := range strings.Split(block, "\n") {
			if k, v, ok := strings.Cut(line, "="); ok {
				field[strings.TrimSpace(k)] = strings.TrimSpace(v)
			}
		}
		ikm, _ := hex.DecodeString(field["IKM"])
		salt, _ := hex.DecodeString(field["salt"])
		info, _ := hex.DecodeString(field["info"])
		got, err := hkdf.Key(sha256.New, ikm, salt, string(info), len(field["OKM"])/2)
		if err != nil || hex.EncodeToString(got) != field["OKM"] {
			t.Errorf("case %d: %x, %v", n+1, got, err)
		}
		n++
	}
	if n != 3 {
		t.Fatalf("%d cases", n)
	}
}
