package ledger

import (
	"fmt"
	"testing"

	"fleetmesh.org/fleetmesh/nostr"
	"fleetmesh.org/fleetmesh/spec"
)

func BenchmarkEnvelopes(b *testing.B) {
	g := &Grant{ID: seed("grant"), Window: 3600}
	var texts [][]byte
	for i := range 64 {
		texts = append(texts, delivered(g, note("author", 1, nostr.Tag{"t", fmt.Sprint(i)}), "origin", "subject").JSON())
	}
	v := nostr.NewVerifier()
	b.Run("parse", func(b *testing.B) {
		for i := range b.N {
			if _, err := ParseEnvelope(texts[i%len(texts)]); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("verify64", func(b *testing.B) {
		var envs []*Envelope
		for _, t := range texts {
			envs = append(envs, must(ParseEnvelope(t)))
		}
		for range b.N {
			for _, err := range VerifyEnvelopes(v, envs) {
				if err != nil {
					b.Fatal(err)
				}
			}
		}
	})
}

func BenchmarkWindow(b *testing.B) {
	s := Standing{Tier: spec.TierMember, Limits: Seeded(spec.TierMember)}
	used := full(s.Limits)
	for range b.N {
		s, _ = s.Close(Evaluate(s.Limits, used, used), 0)
	}
}
