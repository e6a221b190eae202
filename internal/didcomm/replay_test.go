package didcomm

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"
)

func at(sec int64) time.Time { return time.Unix(sec, 0) }

func timed(id string, created, expires int64) *Message {
	return &Message{ID: id, CreatedTime: created, ExpiresTime: expires}
}

func TestReplay(t *testing.T) {
	r := NewReplay(ReplayLimits{Window: 100 * time.Second, MaxLifetime: 1000 * time.Second, Skew: 10 * time.Second, Entries: 100})
	for i, c := range []struct {
		now    int64
		sender string
		m      *Message
		want   error
	}{
		{5000, "a", timed("1", 5000, 0), nil},
		{5000, "a", timed("1", 5000, 0), ErrReplay},
		{5000, "b", timed("1", 5000, 0), nil}, // ids count within the sender
		{5099, "a", timed("1", 5000, 0), ErrReplay},
		{5100, "a", timed("1", 5000, 0), ErrStale}, // forgotten, and too old
		{5000, "a", timed("2", 4900, 0), ErrStale},
		{5000, "a", timed("3", 5010, 0), nil},
		{5000, "a", timed("4", 5011, 0), ErrFuture},
		{5000, "a", timed("5", 4000, 5001), ErrStale}, // lives longer than allowed
		{5000, "a", timed("6", 4100, 5001), nil},
		{5001, "a", timed("6", 4100, 5001), ErrExpired},
		{5000, "a", timed("7", 0, 5500), nil},
		{5400, "a", timed("7", 0, 5500), ErrReplay},
		{5500, "a", timed("7", 0, 5500), ErrExpired},
		{5000, "a", timed("8", 0, 6001), ErrFuture},
		{5000, "a", timed("9", 0, 0), ErrUntimed},
	} {
		if err := r.Admit(at(c.now), c.sender, c.m); !errors.Is(err, c.want) {
			t.Errorf("%d: at %d %s/%s: %v, wanted %v", i, c.now, c.sender, c.m.ID, err, c.want)
		}
	}
}

// TestReplayFlood: a sender who fills the cache pays alone, and nothing that was
// forgotten can come again.
func TestReplayFlood(t *testing.T) {
	r := NewReplay(ReplayLimits{Window: time.Hour, MaxLifetime: time.Hour, Skew: time.Minute, Entries: 500})
	now := int64(10_000)
	quiet := []*Message{}
	for i := range 20 {
		m := timed(fmt.Sprint("q", i), now-int64(i), 0)
		quiet = append(quiet, m)
		if err := r.Admit(at(now), "quiet", m); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 5000 {
		if err := r.Admit(at(now+int64(i/10)), "loud", timed(fmt.Sprint(i), now+int64(i/10), 0)); err != nil && !errors.Is(err, ErrStale) {
			t.Fatal(err)
		}
		if r.Len() > 500 {
			t.Fatalf("%d remembered, at most 500", r.Len())
		}
	}
	for i := range 5000 {
		if err := r.Admit(at(now+500), "loud", timed(fmt.Sprint(i), now+int64(i/10), 0)); err == nil {
			t.Fatalf("message %d of the flood was admitted twice", i)
		}
	}
	for _, m := range quiet {
		if err := r.Admit(at(now+500), "quiet", m); !errors.Is(err, ErrReplay) {
			t.Errorf("the quiet sender's %s: %v", m.ID, err)
		}
	}
	if err := r.Admit(at(now+500), "quiet", timed("new", now, 0)); err != nil {
		t.Errorf("the quiet sender's new message: %v", err)
	}
}

// TestReplayNeverTwice checks the one promise against random traffic.
func TestReplayNeverTwice(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	r := NewReplay(ReplayLimits{Window: 50 * time.Second, MaxLifetime: 80 * time.Second, Skew: 5 * time.Second, Entries: 64})
	admitted := map[string]bool{}
	type sent struct {
		who string
		m   *Message
	}
	var all []sent
	now := int64(1000)
	for i := range 20_000 {
		now += rng.Int64N(2)
		s := sent{fmt.Sprint(rng.IntN(5)), timed(fmt.Sprint(i), now-rng.Int64N(70)+5, 0)}
		if rng.IntN(3) == 0 {
			s.m.ExpiresTime = s.m.CreatedTime + rng.Int64N(100)
		}
		if rng.IntN(10) == 0 {
			s.m.CreatedTime, s.m.ExpiresTime = 0, now+rng.Int64N(80)
		}
		if rng.IntN(2) == 0 && len(all) > 0 {
			s = all[max(0, len(all)-1-rng.IntN(200))]
		}
		all = append(all, s)
		if r.Admit(at(now), s.who, s.m) == nil {
			key := s.who + "/" + s.m.ID
			if admitted[key] {
				t.Fatalf("step %d: %s admitted twice", i, key)
			}
			admitted[key] = true
		}
		if r.Len() > 64 {
			t.Fatalf("%d remembered", r.Len())
		}
	}
	if len(admitted) < 2000 {
		t.Errorf("only %d admitted: the test tests nothing", len(admitted))
	}
}

func TestReplayForgetsSenders(t *testing.T) {
	r := NewReplay(ReplayLimits{Window: 10 * time.Second, MaxLifetime: 10 * time.Second, Entries: 10})
	for i := range 1000 {
		if err := r.Admit(at(1000+int64(i)), fmt.Sprint("s", i), timed("1", 1000+int64(i), 0)); err != nil {
			t.Fatal(err)
		}
	}
	if r.Len() > 10 || len(r.senders) > 12 {
		t.Errorf("%d messages of %d senders remembered", r.Len(), len(r.senders))
	}
}
