package gateway

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"fleetmesh.org/fleetmesh/internal/store"
	"fleetmesh.org/fleetmesh/nostr"
)

// TestFollowSurvivesDisconnects: twenty cuts, with events that come live, while it is away, and back-dated.
func TestFollowSurvivesDisconnects(t *testing.T) {
	world(t, func(t *testing.T, r *fakeRelay, local *store.Memory) {
		now := func() time.Time { return time.Unix(1800000000, 0) }
		fill(t, r.db, events(200, "before")...)
		ctx, cancel := context.WithCancel(t.Context())
		var st FollowStatus
		done := make(chan error)
		l := r.link()
		go func() {
			done <- Follow(ctx, l, local, SyncOptions{Direction: Both, Verifier: yesVerifier{}, Now: now}, &st)
		}()
		want := 200
		for cut := range 20 {
			synctest.Wait()
			r.add(event(1, 1700000000+int64(cut), fmt.Sprintf("live %d", cut)))
			r.cutAll()
			r.add(event(1, 1700000000-100*int64(cut), fmt.Sprintf("while away %d", cut)))
			want += 2
			_ = pause(t.Context(), nil, 2*time.Minute)
			synctest.Wait()
			if got := size(t, local); got != want {
				t.Fatalf("after cut %d: %d events, want %d", cut, got, want)
			}
			if !st.Connected.Load() {
				t.Fatalf("not connected after cut %d", cut)
			}
		}
		if st.Disconnects.Load() != 20 || st.Syncs.Load() != 21 || st.Age(now()) != 0 {
			t.Errorf("%d disconnects, %d syncs, age %v", st.Disconnects.Load(), st.Syncs.Load(), st.Age(now()))
		}
		if r.frames("EVENT") != 0 {
			t.Errorf("%d events were sent back", r.frames("EVENT"))
		}
		if got := st.New.Load(); got != int64(want) {
			t.Errorf("%d new, want %d", got, want)
		}
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		l.Close()
	})
}

func TestFollowEndsWhenRefused(t *testing.T) {
	world(t, func(t *testing.T, r *fakeRelay, local *store.Memory) {
		r.authKey = true
		l := r.link()
		defer l.Close()
		if err := Follow(t.Context(), l, local, SyncOptions{}, nil); !errors.Is(err, ErrAuthRequired) {
			t.Error(err)
		}
		var st FollowStatus
		if st.Age(time.Unix(1, 0)) >= 0 {
			t.Error("age of nothing")
		}
		bad := NewLink("ftp://x", Options{})
		if err := Follow(t.Context(), bad, local, SyncOptions{Filter: nostr.Filter{}}, nil); !errors.Is(err, ErrURL) {
			t.Error(err)
		}
	})
}
