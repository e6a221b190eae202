package policy

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"fleetmesh.org/fleetmesh/nostr"
)

var (
	alice = nostr.PubKey{1}
	bob   = nostr.PubKey{2}
)

func TestRules(t *testing.T) {
	const now = 1_000_000
	e := func(k nostr.Kind, by nostr.PubKey, at int64, content string, tags ...nostr.Tag) *nostr.Event {
		return &nostr.Event{Kind: k, PubKey: by, CreatedAt: at, Content: content, Tags: tags, ID: nostr.ID{0xff}}
	}
	low := e(1, alice, now, "")
	low.ID = nostr.ID{0, 0, 0x0f}
	lucky := e(1, alice, now, "", nostr.Tag{"nonce", "1", "8"})
	lucky.ID = low.ID
	minus := nostr.Tag{"-"}
	inside := `{"kind":1,"tags":[["t","x"],["-"]],"content":""}`
	for name, tc := range map[string]struct {
		rule   Policy
		r      Request
		prefix Prefix
	}{
		"allowed kind":                  {NewKinds([]nostr.Kind{1}, nil), Request{Event: e(1, alice, now, "")}, ""},
		"kind not on the list":          {NewKinds([]nostr.Kind{1}, nil), Request{Event: e(7, alice, now, "")}, Blocked},
		"denied kind":                   {NewKinds([]nostr.Kind{1}, []nostr.Kind{1}), Request{Event: e(1, alice, now, "")}, Blocked},
		"allowed author":                {NewAuthors([]nostr.PubKey{alice}, nil), Request{Event: e(1, alice, now, "")}, ""},
		"author not on the list":        {NewAuthors([]nostr.PubKey{alice}, nil), Request{Event: e(1, bob, now, "")}, Restricted},
		"denied author":                 {NewAuthors(nil, []nostr.PubKey{bob}), Request{Event: e(1, bob, now, "")}, Blocked},
		"vanish of a denied author":     {NewAuthors(nil, []nostr.PubKey{bob}), Request{Event: e(62, bob, now, "")}, ""},
		"enough work":                   {MinPoW{Bits: 20}, Request{Event: low}, ""},
		"too little work":               {MinPoW{Bits: 21}, Request{Event: low}, PoW},
		"luck instead of work":          {MinPoW{Bits: 20}, Request{Event: lucky}, PoW},
		"work of a synced event":        {MinPoW{Bits: 21}, Request{Event: low, Source: FromSync}, ""},
		"too far ahead":                 {CreatedAt{Newest: 10}, Request{Event: e(1, alice, now+11, "")}, Invalid},
		"just not too far ahead":        {CreatedAt{Newest: 10}, Request{Event: e(1, alice, now+10, "")}, ""},
		"too far back":                  {CreatedAt{Oldest: 10}, Request{Event: e(1, alice, now-11, "")}, Invalid},
		"far back by import":            {CreatedAt{Oldest: 10}, Request{Event: e(1, alice, 0, ""), Source: FromImport}, ""},
		"long content":                  {Size{ContentRunes: 3}, Request{Event: e(1, alice, now, "äöüß")}, Invalid},
		"content at the limit":          {Size{ContentRunes: 4}, Request{Event: e(1, alice, now, "äöüß")}, ""},
		"many tags":                     {Size{Tags: 1}, Request{Event: e(1, alice, now, "", minus, minus)}, Invalid},
		"long tag":                      {Size{TagBytes: 3}, Request{Event: e(1, alice, now, "", nostr.Tag{"t", "long"})}, Invalid},
		"large event":                   {Size{EventBytes: 100}, Request{Event: e(1, alice, now, strings.Repeat("x", 100))}, Invalid},
		"writing without a key":         {AuthToWrite{}, Request{Event: e(1, alice, now, "")}, AuthRequired},
		"writing with a key":            {AuthToWrite{}, Request{Event: e(1, alice, now, ""), Keys: []nostr.PubKey{bob}}, ""},
		"writing for another":           {AuthToWrite{Author: true}, Request{Event: e(1, alice, now, ""), Keys: []nostr.PubKey{bob}}, Restricted},
		"read-only":                     {ReadOnly{}, Request{Event: e(1, alice, now, "")}, Blocked},
		"read-only and sync":            {ReadOnly{}, Request{Event: e(1, alice, now, ""), Source: FromSync}, ""},
		"protected, unknown":            {Protected{}, Request{Event: e(1, alice, now, "", minus)}, AuthRequired},
		"protected, another":            {Protected{}, Request{Event: e(1, alice, now, "", minus), Keys: []nostr.PubKey{bob}}, Restricted},
		"protected, author":             {Protected{}, Request{Event: e(1, alice, now, "", minus), Keys: []nostr.PubKey{bob, alice}}, ""},
		"protected, no AUTH here":       {Protected{NoAuth: true}, Request{Event: e(1, alice, now, "", minus)}, Blocked},
		"protected, by sync":            {Protected{}, Request{Event: e(1, alice, now, "", minus), Source: FromSync}, Restricted},
		"protected, by import":          {Protected{}, Request{Event: e(1, alice, now, "", minus), Source: FromImport}, ""},
		"repost with it inside":         {Protected{}, Request{Event: e(6, bob, now, inside)}, Blocked},
		"generic repost with it inside": {Protected{}, Request{Event: e(16, bob, now, "\n "+inside)}, Blocked},
		"repost of an open event":       {Protected{}, Request{Event: e(6, bob, now, `{"tags":[["t","-"]]}`)}, ""},
		"repost of nonsense":            {Protected{}, Request{Event: e(6, bob, now, `{"tags":"-`)}, ""},
		"a note with it inside":         {Protected{}, Request{Event: e(1, bob, now, inside)}, ""},
		"vanish from nowhere":           {Vanish{}, Request{Event: e(62, alice, now, "")}, Invalid},
		"AUTH published":                {Auth{}, Request{Event: e(22242, alice, now, "")}, Invalid},
		"function":                      {Func(func(context.Context, *Request) *Rejection { return Reject(Error, "no") }), Request{Event: e(1, alice, now, "")}, Error},
	} {
		t.Run(name, func(t *testing.T) {
			tc.r.Now = now
			var got Prefix
			if no := (Chain{tc.rule}).Admit(t.Context(), &tc.r); no != nil {
				got = no.Prefix
			}
			if no := (Chain{tc.rule}).Precheck(t.Context(), &tc.r); no != nil {
				got = no.Prefix
				if !strings.HasPrefix(no.String(), string(no.Prefix)+": ") || no.Text == "" {
					t.Errorf("worded %q", no)
				}
			}
			if got != tc.prefix {
				t.Errorf("got %q, want %q", got, tc.prefix)
			}
		})
	}
}

func TestDescribe(t *testing.T) {
	var d Demands
	Chain{MinPoW{Bits: 20}, Size{ContentRunes: 10, Tags: 5}, CreatedAt{Oldest: 1, Newest: 2}, NewKinds([]nostr.Kind{1}, nil), AuthToWrite{}}.Describe(&d)
	want := Demands{MinPoW: 20, MaxContentRunes: 10, MaxTags: 5, OldestSeconds: 1, NewestSeconds: 2, HasUpperBound: true, RestrictedWrites: true, AuthToWrite: true}
	if d != want {
		t.Errorf("got %+v, want %+v", d, want)
	}
}

func TestGate(t *testing.T) {
	g := NewGate(PrivateKinds, true)
	wrap := func(to ...nostr.PubKey) *nostr.Event {
		e := &nostr.Event{Kind: 1059}
		for _, k := range to {
			e.Tags = append(e.Tags, nostr.Tag{"p", k.String()})
		}
		return e
	}
	for name, tc := range map[string]struct {
		reader []nostr.PubKey
		e      *nostr.Event
		want   bool
	}{
		"a note to a stranger":    {nil, &nostr.Event{Kind: 1}, true},
		"a wrap to a stranger":    {nil, wrap(alice), false},
		"a wrap to another":       {[]nostr.PubKey{bob}, wrap(alice), false},
		"a wrap to its recipient": {[]nostr.PubKey{bob, alice}, wrap(alice), true},
		"a wrap to one of two":    {[]nostr.PubKey{alice}, wrap(alice, bob), false},
		"a wrap to both of two":   {[]nostr.PubKey{bob, alice}, wrap(alice, bob), true},
		"a wrap to nobody":        {[]nostr.PubKey{alice}, wrap(), false},
	} {
		v := g.View(tc.reader)
		if got := g.MayRead(tc.reader, tc.e); got != tc.want || v.Allows(tc.e) != tc.want {
			t.Errorf("%s: %v, by the view %v, want %v", name, got, v.Allows(tc.e), tc.want)
		}
	}
	p := func(k ...nostr.PubKey) []nostr.TagFilter {
		f := nostr.TagFilter{Letter: 'p'}
		for _, k := range k {
			f.Values = append(f.Values, k.String())
		}
		return []nostr.TagFilter{f}
	}
	for name, tc := range map[string]struct {
		reader []nostr.PubKey
		f      nostr.Filter
		want   Prefix
	}{
		"everything":               {nil, nostr.Filter{}, ""},
		"notes and wraps":          {nil, nostr.Filter{Kinds: []nostr.Kind{1, 1059}}, ""},
		"wraps":                    {nil, nostr.Filter{Kinds: []nostr.Kind{1059}}, AuthRequired},
		"wraps of both kinds":      {nil, nostr.Filter{Kinds: []nostr.Kind{1059, 21059}}, AuthRequired},
		"wraps, known":             {[]nostr.PubKey{alice}, nostr.Filter{Kinds: []nostr.Kind{1059}}, ""},
		"own wraps":                {[]nostr.PubKey{alice}, nostr.Filter{Kinds: []nostr.Kind{1059}, Tags: p(bob, alice)}, ""},
		"another's wraps":          {[]nostr.PubKey{alice}, nostr.Filter{Kinds: []nostr.Kind{1059}, Tags: p(bob)}, Restricted},
		"no kinds, another's name": {[]nostr.PubKey{alice}, nostr.Filter{Tags: p(bob)}, ""},
	} {
		var got Prefix
		if no := g.Check(tc.reader, []nostr.Filter{{Kinds: []nostr.Kind{0}}, tc.f}); no != nil {
			got = no.Prefix
		}
		if got != tc.want {
			t.Errorf("%s: got %q, want %q", name, got, tc.want)
		}
	}
	if no := NewGate(PrivateKinds, false).Check(nil, []nostr.Filter{{Kinds: []nostr.Kind{1059}}}); no == nil || no.Prefix != Blocked {
		t.Errorf("without AUTH: %v", no)
	}
}

func TestLimiter(t *testing.T) {
	l := NewLimiter(Rate{PerSecond: 2, Burst: 3})
	a, b := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2")
	now := time.Unix(1000, 0)
	take := func(k netip.Addr, n float64) bool { ok, _, _ := l.Take(k, n, now); return ok }
	for i, want := range []bool{true, true, true, false} {
		if got := take(a, 1); got != want {
			t.Errorf("take %d: %v", i, got)
		}
	}
	ok, wait, enough := l.Take(a, 1, now)
	if ok || wait != 500*time.Millisecond || enough != 5 {
		t.Errorf("fifth: %v, wait %v, enough %v", ok, wait, enough)
	}
	if !take(b, 1) {
		t.Error("another client pays for the first")
	}
	now = now.Add(500 * time.Millisecond)
	if !take(a, 1) || take(a, 1) {
		t.Error("after half a second one is to be had, not two")
	}
	now = now.Add(-time.Hour) // a clock that jumps back gives nothing
	if take(a, 1) {
		t.Error("a jump back gave one")
	}
	now = now.Add(2 * time.Hour)
	if !take(a, 100) || take(a, 1) {
		t.Error("a large request passes on a full bucket and leaves a debt")
	}
	if ok, _, _ := NewLimiter(Rate{}).Take(a, 1e9, now); !ok {
		t.Error("no rate is no limit")
	}
}

func TestLimiterIsExact(t *testing.T) {
	l := NewLimiter(Rate{PerSecond: 1, Burst: 137})
	now := time.Unix(1000, 0)
	var passed atomic.Int64
	var wg sync.WaitGroup
	for range 1000 {
		wg.Go(func() {
			if ok, _, _ := l.Take(netip.MustParseAddr("2001:db8::1"), 1, now); ok {
				passed.Add(1)
			}
		})
	}
	wg.Wait()
	if passed.Load() != 137 {
		t.Errorf("%d of 1000 passed, want 137", passed.Load())
	}
}

func TestLimiterForgets(t *testing.T) {
	l := NewLimiter(Rate{PerSecond: 10, Burst: 10})
	now := time.Unix(1000, 0)
	for i := range 200_000 {
		if i%100 == 0 {
			now = now.Add(time.Second)
		}
		l.Take(netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)}), 1, now)
	}
	n := 0
	for i := range l.shards {
		n += len(l.shards[i].buckets)
	}
	if n > 16*1024 {
		t.Errorf("%d buckets are kept", n)
	}
}

func TestClientKey(t *testing.T) {
	for in, want := range map[string]string{
		"192.0.2.1": "192.0.2.1", "::ffff:192.0.2.1": "192.0.2.1", "2001:db8:1:2:3:4:5:6": "2001:db8:1:2::", "fe80::1%eth0": "fe80::",
	} {
		if got := ClientKey(netip.MustParseAddr(in)).String(); got != want {
			t.Errorf("%s: %s, want %s", in, got, want)
		}
	}
}

func FuzzRepost(f *testing.F) {
	f.Add(`{"tags":[["-"]]}`)
	f.Add(`{"tags":[["e","x"],[1],null]}`)
	f.Add(` {"tags":{}}`)
	f.Fuzz(func(_ *testing.T, s string) { embedsProtected(s) })
}

func BenchmarkLimiter(b *testing.B) {
	l := NewLimiter(Rate{PerSecond: 1e9, Burst: 1e9})
	keys := make([]netip.Addr, 1000)
	for i := range keys {
		keys[i] = netip.MustParseAddr(fmt.Sprintf("192.0.%d.%d", i/250, i%250))
	}
	now := time.Now()
	b.RunParallel(func(pb *testing.PB) {
		for i := 0; pb.Next(); i++ {
			l.Take(keys[i%len(keys)], 1, now)
		}
	})
	slices.Reverse(keys)
}
