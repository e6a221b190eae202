package host

import (
	"context"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"fleetmesh.org/fleetmesh/internal/didcomm"
	"fleetmesh.org/fleetmesh/internal/identity"
	"fleetmesh.org/fleetmesh/internal/transport"
	"fleetmesh.org/fleetmesh/nostr"
	"fleetmesh.org/fleetmesh/spec"
)

// looking is a transport that looks at what its host sends.
type looking struct {
	*transport.Memory
	mu     sync.Mutex
	zipped map[string]int // by the recipient's DID
}

func (l *looking) Dial(ctx context.Context, ep transport.Endpoint, peer nostr.PubKey) (transport.Stream, error) {
	s, err := l.Memory.Dial(ctx, ep, peer)
	if err != nil {
		return nil, err
	}
	return &lookedAt{s, l}, nil
}

type lookedAt struct {
	transport.Stream
	l *looking
}

func (s *lookedAt) Send(ctx context.Context, frame []byte) error {
	s.l.look(frame)
	return s.Stream.Send(ctx, frame)
}

func (s *lookedAt) Receive(ctx context.Context) ([]byte, error) {
	frame, err := s.Stream.Receive(ctx)
	if err == nil {
		s.l.look(frame)
	}
	return frame, err
}

func (l *looking) look(frame []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if h, err := didcomm.Peek(frame); err == nil && h.Zip != "" {
		l.zipped[didcomm.DIDOf(h.Recipients[0])]++
	}
}

// TestZipIsAgreedOn syncs between two nodes that read compressed envelopes, and between one that does and one that has never heard of them. The
// books agree either way.
func TestZipIsAgreedOn(t *testing.T) {
	for name, plain := range map[string][2]bool{"both read it": {}, "the server does not": {true, false}, "the initiator does not": {false, true}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				net := &looking{Memory: transport.NewMemory("memory"), zipped: map[string]int{}}
				rigs := fleet(t, net.Memory, 2, func(i int, c *Config) {
					c.Transports = []transport.Transport{net}
					c.tamper = &tamper{plain: plain[i]}
				})
				defer stopAll(rigs)
				rigs[0].put(400, strings.Repeat("of what there is to tell ", 8))
				pulling(t, rigs, spec.TierMember)
				<-time.After(4 * time.Minute)
				synctest.Wait()
				wantAll(t, rigs, 400)
				honest(t, rigs)
				if p := rigs[0].host.Peers()[0]; p.Clean == 0 || len(p.Windows) == 0 {
					t.Errorf("no window was closed clean: %+v", p)
				}
				net.mu.Lock()
				defer net.mu.Unlock()
				for i, r := range rigs {
					if n := net.zipped[identity.FormatDID(r.pub)]; plain[i] && n > 0 || !plain[i] && n == 0 {
						t.Errorf("%d compressed envelopes to node %d", n, i)
					}
				}
			})
		})
	}
}

// TestZipIsWhatIsDeclared holds the reader's bounds against those that every node is told.
func TestZipIsWhatIsDeclared(t *testing.T) {
	z := spec.C().Transport.Zip
	if z.Alg != didcomm.ZipDeflate || z.MaxRatio != didcomm.MaxZipRatio || spec.C().Transport.MaxFrameBytes != didcomm.MaxEnvelope {
		t.Errorf("constants.json says %+v and %d octets, the reader %s, %d and %d", z, spec.C().Transport.MaxFrameBytes, didcomm.ZipDeflate, didcomm.MaxZipRatio, didcomm.MaxEnvelope)
	}
}
