package didcomm

import (
	"fmt"
	"strings"
)

// Message types of discover-features/2.0.
const (
	DiscoverFeatures = "https://didcomm.org/discover-features/2.0"
	TypeQueries      = DiscoverFeatures + "/queries"
	TypeDisclose     = DiscoverFeatures + "/disclose"
)

const maxQueries = 64

// Query asks for features of a type ("protocol", "goal-code", …) whose id
// matches. Match may end in * and then matches by prefix.
type Query struct {
	FeatureType string `json:"feature-type"`
	Match       string `json:"match"`
}

// Feature is one disclosed feature.
type Feature struct {
	FeatureType string   `json:"feature-type"`
	ID          string   `json:"id"`
	Roles       []string `json:"roles,omitempty"`
}

type queriesBody struct {
	Queries []Query `json:"queries"`
}

type discloseBody struct {
	Disclosures []Feature `json:"disclosures"`
}

// NewQueries asks what the other end supports.
func NewQueries(id, from, to string, now int64, queries ...Query) (*Message, error) {
	m := &Message{ID: id, Type: TypeQueries, From: from, To: []string{to}, CreatedTime: now}
	return m, m.SetBody(queriesBody{queries})
}

// ParseQueries reads a queries message.
func ParseQueries(m *Message) ([]Query, error) {
	var b queriesBody
	if m.Type != TypeQueries {
		return nil, fmt.Errorf("%w: %.80q is not a queries message", ErrSyntax, m.Type)
	}
	if err := m.DecodeBody(&b); err != nil {
		return nil, err
	}
	if len(b.Queries) > maxQueries {
		return nil, fmt.Errorf("%w: %d queries, at most %d", ErrSyntax, len(b.Queries), maxQueries)
	}
	return b.Queries, nil
}

// NewDisclose answers a queries message with those of the features that it asks
// for. What is left out is not denied: a node may keep features to itself.
func NewDisclose(id, from string, now int64, queries *Message, features []Feature) (*Message, error) {
	asked, err := ParseQueries(queries)
	if err != nil {
		return nil, err
	}
	b := discloseBody{Disclosures: []Feature{}}
	for _, f := range features {
		for _, q := range asked {
			if q.matches(f) {
				b.Disclosures = append(b.Disclosures, f)
				break
			}
		}
	}
	m := &Message{ID: id, Type: TypeDisclose, From: from, To: answerTo(queries), ThreadID: queries.Thread(), CreatedTime: now}
	return m, m.SetBody(b)
}

func (q Query) matches(f Feature) bool {
	if q.FeatureType != f.FeatureType {
		return false
	}
	if prefix, ok := strings.CutSuffix(q.Match, "*"); ok {
		return strings.HasPrefix(f.ID, prefix)
	}
	return q.Match == f.ID
}

// ParseDisclose reads a disclose message.
func ParseDisclose(m *Message) ([]Feature, error) {
	var b discloseBody
	if m.Type != TypeDisclose {
		return nil, fmt.Errorf("%w: %.80q is not a disclose message", ErrSyntax, m.Type)
	}
	err := m.DecodeBody(&b)
	return b.Disclosures, err
}
