package blossom

import (
	"crypto/sha256"
	"strings"
	"testing"
)

// Each pair was computed outside of this package, from the bytes that it names.
var cidVectors = []struct{ text, sha256, cid string }{
	{"", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855", "bafkreihdwdcefgh4dqkjv67uzcmw7ojee6xedzdetojuzjevtenxquvyku"},
	{"hello world", "b94d27b9934d3e08a52e52d7da7dabfac484efe37a5380ee9088f7ace2efcde9", "bafkreifzjut3te2nhyekklss27nh3k72ysco7y32koao5eei66wof36n5e"},
}

func TestCIDVectors(t *testing.T) {
	for _, v := range cidVectors {
		h := Hash(sha256.Sum256([]byte(v.text)))
		if h.String() != v.sha256 || h.CID() != v.cid {
			t.Errorf("%q: %s %s, want %s %s", v.text, h, h.CID(), v.sha256, v.cid)
		}
		upper := "B" + strings.ToUpper(v.cid[1:])
		for _, text := range []string{v.cid, upper, "f01551220" + v.sha256, "F01551220" + strings.ToUpper(v.sha256)} {
			got, err := ParseCID(text)
			if err != nil || got != h {
				t.Errorf("ParseCID(%s) = %s, %v", text, got, err)
			}
		}
	}
}

func TestCIDRefusals(t *testing.T) {
	good := cidVectors[1].cid
	for _, bad := range []string{
		"", "b", "Qm", "QmT78zSuBmuS4z925WZfrqQ1qHaJ56DQaTfyMUF7F8ff5o", // a CIDv0
		good[:len(good)-1], good + "a", good[:len(good)-1] + "f", // the last one sets a bit that must be 0
		"b" + strings.ToUpper(good[1:]), "B" + good[1:], good + "=", good[:20] + "\n" + good[20:],
		"bafybeigdyrzt5sfp7udm7hu76uh7y26nf3efuylqabf3oclgtqy55fbzdi", // dag-pb
		"z" + good[1:], "f01551220" + strings.ToUpper(cidVectors[0].sha256), "F01551220" + cidVectors[0].sha256, "f0155122", "f0155121fe3",
	} {
		if h, err := ParseCID(bad); err == nil {
			t.Errorf("ParseCID(%q) = %s", bad, h)
		}
	}
}

func FuzzCID(f *testing.F) {
	for _, v := range cidVectors {
		f.Add(v.cid)
		f.Add("f01551220" + v.sha256)
	}
	f.Add("QmT78zSuBmuS4z925WZfrqQ1qHaJ56DQaTfyMUF7F8ff5o")
	f.Fuzz(func(t *testing.T, s string) {
		h, err := ParseCID(s)
		if err != nil {
			return
		}
		if again, err := ParseCID(h.CID()); err != nil || again != h {
			t.Fatalf("%q gives %s, whose CID gives %s, %v", s, h, again, err)
		}
		if s[0] == 'b' && s != h.CID() {
			t.Fatalf("%q and %q name one blob in one base", s, h.CID())
		}
	})
}

func TestHashInURL(t *testing.T) {
	const a, b = "b1674191a88ec5cdd733e4240a81803105dc412d6c6708d53ab94fc248f4f553", "ec4425ff5e9446080d2f70440188e3ca5d6da8713db7bdeef73d0ed54d9093f0"
	for url, want := range map[string]string{
		"https://blossom.example.com/" + a + ".pdf":                  a,
		"https://cdn.example.com/" + a:                               a,
		"https://cdn.example.com/user/" + b + "/media/" + a + ".pdf": a,
		"http://media.example.com/documents/b1/67/" + a + ".pdf?x=1": a,
		"https://cdn.example.com/" + a + "0":                         "",
		"https://cdn.example.com/" + strings.ToUpper(a):              a,
		"https://cdn.example.com/" + a + "-and-not-" + b[:63] + "x":  a,
		"":                                   "",
		"https://cdn.example.com/not-a-hash": "",
	} {
		h, ok := HashInURL(url)
		if ok != (want != "") || (ok && h.String() != want) {
			t.Errorf("%s: %s %v, want %q", url, h, ok, want)
		}
	}
}
