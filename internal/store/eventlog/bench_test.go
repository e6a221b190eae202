package eventlog

import (
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"

	"fleetmesh.org/fleetmesh/internal/store"
	"fleetmesh.org/fleetmesh/nostr"
	"fleetmesh.org/fleetmesh/nostr/negentropy"
)

// sample makes events like those of the wire: about 470 bytes, zipf-distributed authors, 8 % of them
// replaceable, created_at rising with some disorder.
type sample struct {
	rng  *rand.Rand
	zipf *rand.Zipf
	keys []nostr.PubKey
	at   int64
	past []nostr.ID
	text string
}

func newSample(seed uint64) *sample {
	rng := rand.New(rand.NewPCG(seed, 7))
	s := &sample{rng: rng, zipf: rand.NewZipf(rng, 1.1, 1, 19_999), at: 1_600_000_000, past: make([]nostr.ID, 1, 1024)}
	for i := range 20_000 {
		var k nostr.PubKey
		binary.LittleEndian.PutUint64(k[:], rng.Uint64())
		binary.LittleEndian.PutUint64(k[24:], uint64(i))
		s.keys = append(s.keys, k)
	}
	for len(s.text) < 4096 {
		s.text += strconv.FormatUint(rng.Uint64(), 36) + " "
	}
	return s
}

func (s *sample) key() nostr.PubKey { return s.keys[s.zipf.Uint64()] }

func (s *sample) event() *nostr.Event {
	kinds := []nostr.Kind{1, 1, 1, 1, 1, 7, 7, 7, 7, 6, 9735, 1059, 0, 30023, 1984}
	s.at += s.rng.Int64N(3)
	e := &nostr.Event{PubKey: s.key(), CreatedAt: s.at - s.rng.Int64N(30), Kind: kinds[s.rng.IntN(len(kinds))]}
	if e.Kind == 30023 {
		e.Tags = append(e.Tags, nostr.Tag{"d", strconv.Itoa(s.rng.IntN(8))})
	}
	if e.Kind == 7 || s.rng.IntN(3) == 0 {
		e.Tags = append(e.Tags, nostr.Tag{"e", s.past[s.rng.IntN(len(s.past))].String()})
	}
	if s.rng.IntN(3) == 0 || e.Kind == 1059 {
		k := s.key()
		e.Tags = append(e.Tags, nostr.Tag{"p", k.String()})
	}
	if s.rng.IntN(5) == 0 {
		e.Tags = append(e.Tags, nostr.Tag{"t", "topic" + strconv.FormatUint(s.zipf.Uint64()%500, 10)})
	}
	a := s.rng.IntN(3900)
	e.Content = s.text[a : a+s.rng.IntN(180)]
	e.ID = e.ComputeID()
	if len(s.past) < cap(s.past) {
		s.past = append(s.past, e.ID)
	} else {
		s.past[s.rng.IntN(len(s.past))] = e.ID
	}
	// As it comes off the wire.
	parsed, err := nostr.ParseEvent(e.JSON())
	if err != nil {
		panic(err)
	}
	return parsed
}

func BenchmarkInsert(b *testing.B) {
	for _, size := range []int{1, 64, 1000} {
		b.Run(strconv.Itoa(size), func(b *testing.B) {
			s, err := Open(b.TempDir(), Options{})
			if err != nil {
				b.Fatal(err)
			}
			defer s.Close()
			w := newSample(1)
			events := make([]*nostr.Event, b.N)
			for i := range events {
				events[i] = w.event()
			}
			before := cpu()
			b.ResetTimer()
			for i := 0; i < b.N; i += size {
				if _, err := s.Insert(context.Background(), events[i:min(i+size, b.N)], 1_700_000_000); err != nil {
					b.Fatal(err)
				}
			}
			b.StopTimer()
			b.ReportMetric(float64((cpu()-before).Nanoseconds())/1e3/float64(b.N), "cpu-µs/event")
		})
	}
}

var million struct {
	sync.Once
	s   *Store
	w   *sample
	dir string
}

// unload removes the store of the benchmarks.
func unload() {
	if million.s != nil {
		million.s.Close()
		os.RemoveAll(million.dir)
	}
}

// loaded returns a store of FLEETMESH_BENCH_EVENTS events (default 100,000).
func loaded(b *testing.B) (*Store, *sample) {
	million.Do(func() {
		n := 100_000
		if v, err := strconv.Atoi(os.Getenv("FLEETMESH_BENCH_EVENTS")); err == nil {
			n = v
		}
		dir, err := os.MkdirTemp("", "eventlog-bench-")
		if err != nil {
			b.Fatal(err)
		}
		s, err := Open(dir, Options{})
		if err != nil {
			b.Fatal(err)
		}
		w := newSample(2)
		var spent time.Duration
		start := time.Now()
		var inserting time.Duration
		for i := 0; i < n; i += 1000 {
			batch := make([]*nostr.Event, min(1000, n-i))
			for j := range batch {
				batch[j] = w.event()
			}
			c, t := cpu(), time.Now()
			if _, err := s.Insert(context.Background(), batch, 1_700_000_000); err != nil {
				b.Fatal(err)
			}
			spent += cpu() - c
			inserting += time.Since(t)
		}
		st, err := s.Stats(context.Background())
		if err != nil {
			b.Fatal(err)
		}
		fmt.Printf("loaded %d events (%d live) in %v, inserting %v = %.0f/s, %.1f CPU µs/event while inserting, %d bytes/live event\n",
			n, st.Events, time.Since(start).Round(time.Millisecond), inserting.Round(time.Millisecond), float64(n)/inserting.Seconds(),
			float64(spent.Microseconds())/float64(n), st.Bytes/st.Events)
		for more := true; more; {
			if more, err = s.pass(func() bool { return false }); err != nil {
				b.Fatal(err)
			}
		}
		million.s, million.w, million.dir = s, w, dir
	})
	return million.s, million.w
}

func BenchmarkQuery(b *testing.B) {
	s, w := loaded(b)
	limit := func(n int) *int { return &n }
	cases := map[string]func() nostr.Filter{
		"id": func() nostr.Filter { return nostr.Filter{IDs: []nostr.ID{w.past[w.rng.IntN(len(w.past))]}} },
		"author+kind": func() nostr.Filter {
			return nostr.Filter{Authors: []nostr.PubKey{w.key()}, Kinds: []nostr.Kind{1}, Limit: limit(20)}
		},
		"tag+kind": func() nostr.Filter {
			t := "topic" + strconv.FormatUint(w.zipf.Uint64()%500, 10)
			return nostr.Filter{Kinds: []nostr.Kind{1}, Tags: []nostr.TagFilter{{Letter: 't', Values: []string{t}}}, Limit: limit(100)}
		},
		"kinds window": func() nostr.Filter {
			until := w.at - w.rng.Int64N(w.at-1_600_000_000)
			since := until - 5000
			return nostr.Filter{Kinds: []nostr.Kind{1, 6, 7}, Since: &since, Until: &until, Limit: limit(500)}
		},
		"feed": func() nostr.Filter {
			f := nostr.Filter{Kinds: []nostr.Kind{1, 6, 7}, Limit: limit(100)}
			for range 100 {
				f.Authors = append(f.Authors, w.key())
			}
			return f
		},
	}
	for _, name := range []string{"id", "author+kind", "tag+kind", "kinds window", "feed"} {
		b.Run(name, func(b *testing.B) {
			rows := 0
			before := cpu()
			for range b.N {
				for _, err := range s.Query(context.Background(), []nostr.Filter{cases[name]()}, store.View{}, 0, 1_700_000_000) {
					if err != nil {
						b.Fatal(err)
					}
					rows++
				}
			}
			b.ReportMetric(float64((cpu()-before).Microseconds())/float64(b.N), "cpu-µs/op")
			b.ReportMetric(float64(rows)/float64(b.N), "rows")
		})
	}
}

func BenchmarkSet(b *testing.B) {
	s, w := loaded(b)
	filters := map[string]nostr.Filter{
		"all":    {},
		"kind":   {Kinds: []nostr.Kind{1}},
		"author": {Authors: []nostr.PubKey{w.keys[0]}},
	}
	for _, name := range []string{"all", "kind", "author"} {
		for _, warm := range []bool{false, true} {
			b.Run(fmt.Sprintf("%s/cached=%v", name, warm), func(b *testing.B) {
				n := 0
				before := cpu()
				for range b.N {
					if !warm {
						s.cache = newPartCache(64 << 20)
					}
					set, release, err := s.Set(context.Background(), []nostr.Filter{filters[name]}, store.View{}, 1_700_000_000)
					if err != nil {
						b.Fatal(err)
					}
					n = set.Len()
					set.Sum(n/3, n/2)
					release()
				}
				b.ReportMetric(float64((cpu()-before).Microseconds())/float64(b.N), "cpu-µs/op")
				b.ReportMetric(float64(n), "items")
			})
		}
	}
}

// BenchmarkReconcile answers a peer who lacks ten events of all: opening the set and every frame.
func BenchmarkReconcile(b *testing.B) {
	s, _ := loaded(b)
	all, release, err := s.Set(context.Background(), []nostr.Filter{{}}, store.View{}, 1_700_000_000)
	if err != nil {
		b.Fatal(err)
	}
	var items []negentropy.Item
	for i := range all.Len() {
		if i%(all.Len()/10) != 5 {
			items = append(items, all.Item(i))
		}
	}
	lacking := all.Len() - len(items)
	release()
	theirs := negentropy.NewVector(items)
	var spent time.Duration
	b.ResetTimer()
	for range b.N {
		client := negentropy.NewClient(theirs, 60_000)
		msg := client.Initiate()
		before := cpu()
		set, release, err := s.Set(context.Background(), []nostr.Filter{{}}, store.View{}, 1_700_000_000)
		if err != nil {
			b.Fatal(err)
		}
		server := negentropy.NewServer(set, 60_000)
		found := 0
		for len(msg) > 0 {
			answer, err := server.Reconcile(msg)
			if err != nil {
				b.Fatal(err)
			}
			spent += cpu() - before
			next, _, need, err := client.Reconcile(answer)
			if err != nil {
				b.Fatal(err)
			}
			found += len(need)
			msg = next
			before = cpu()
		}
		release()
		if found != lacking {
			b.Fatalf("found %d of %d", found, lacking)
		}
	}
	b.ReportMetric(float64(spent.Microseconds())/float64(b.N), "server-cpu-µs/op")
}
