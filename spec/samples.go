package spec

import (
	"embed"
	"encoding/json"
	"fmt"
	"io/fs"
	"strings"
)

//go:embed samples
var samplesFS embed.FS

// Sample is one file of samples/valid or samples/invalid: a value, what it is a
// value of, and for an invalid one its single failure (conformance suite 2).
type Sample struct {
	Name    string `json:"-"`       // file name without .json
	Subject string `json:"subject"` // "event 11801", "message <type>", "object receipt", "manifest"
	// Layer must refuse: "syntax" (it is not one JSON value with distinct names),
	// "schema", or "canonical" (it fits its schema and has no canonical form). ""
	// in a valid sample.
	Layer    string          `json:"layer"`
	Fails    string          `json:"fails"`    // the rule it breaks, in words
	Path     string          `json:"path"`     // JSON pointer that the refusal names
	Instance json.RawMessage `json:"instance"` // the value
	Text     string          `json:"text"`     // instead of Instance, where that cannot be written as JSON
}

// Bytes returns the text under test.
func (s *Sample) Bytes() []byte {
	if s.Text != "" {
		return []byte(s.Text)
	}
	return s.Instance
}

// Samples returns the valid and the invalid samples, each in the order of their
// names, for use by other implementations of the same checks.
func Samples() (valid, invalid []Sample, err error) {
	if valid, err = readSamples("samples/valid"); err != nil {
		return nil, nil, err
	}
	invalid, err = readSamples("samples/invalid")
	return valid, invalid, err
}

func readSamples(dir string) ([]Sample, error) {
	entries, err := fs.ReadDir(samplesFS, dir)
	if err != nil {
		return nil, err
	}
	var out []Sample
	for _, e := range entries {
		text, err := samplesFS.ReadFile(dir + "/" + e.Name())
		if err != nil {
			return nil, err
		}
		s := Sample{Name: strings.TrimSuffix(e.Name(), ".json")}
		if err := json.Unmarshal(text, &s); err != nil {
			return nil, fmt.Errorf("%s: %w", e.Name(), err)
		}
		out = append(out, s)
	}
	return out, nil
}

// Check validates a sample's value as its subject says.
func (s *Sample) Check() error {
	what, name, _ := strings.Cut(s.Subject, " ")
	switch what {
	case "event":
		for _, k := range Kinds() {
			if fmt.Sprint(k.Kind) == name {
				return ValidateEvent(k.Kind, s.Bytes())
			}
		}
	case "message":
		return ValidateMessage(MessageType(name), s.Bytes())
	case "object":
		return ValidateObject(name, s.Bytes())
	case "manifest":
		return ValidateManifest(s.Bytes())
	}
	return fmt.Errorf("sample %s: subject %q: %w", s.Name, s.Subject, ErrUnknownSchema)
}
