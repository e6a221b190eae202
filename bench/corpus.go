package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"

	"fleetmesh.org/fleetmesh/nostr"
)

// The corpus is a list of really signed events. The event at place i depends on the seed and on i only, so that any
// part of the list can be made alone, in any order, and a longer corpus begins with the shorter one.
const (
	corpusVersion = 1             // in the name of the cached file; raise it with every change of what is made
	corpusStart   = 1_760_000_000 // created_at of the first event, unix seconds
	corpusStep    = 3             // seconds between neighbours, before jitter
	corpusAuthors = 4000
	corpusThreads = 20_000 // events that replies and reactions point to
	corpusTopics  = 500
)

// corpus makes events from a seed.
type corpus struct {
	seed    uint64
	signers []signer
	authors weights
	topics  weights
}

func newCorpus(seed uint64) *corpus {
	c := &corpus{seed: seed, signers: make([]signer, corpusAuthors), authors: newWeights(corpusAuthors), topics: newWeights(corpusTopics)}
	for i := range c.signers {
		c.signers[i] = newSigner(c.digest("author", i))
	}
	return c
}

// digest is a number nobody has to remember: the same for the same seed, name and place.
func (c *corpus) digest(name string, i int) [32]byte {
	b := binary.BigEndian.AppendUint64(nil, c.seed)
	b = binary.BigEndian.AppendUint64(b, uint64(i))
	return sha256.Sum256(append(b, name...))
}

func (c *corpus) rng(name string, i int) *rand.Rand {
	d := c.digest(name, i)
	return rand.New(rand.NewPCG(binary.BigEndian.Uint64(d[:]), binary.BigEndian.Uint64(d[8:])))
}

// end is a time after every one of the first n events, unix seconds.
func corpusEnd(n int) int64 { return corpusStart + int64(n)*corpusStep + 60 }

// draft is event i without id and signature, and who signs it.
func (c *corpus) draft(i int) (nostr.Event, *signer) {
	r := c.rng("event", i)
	author := &c.signers[c.authors.pick(r)]
	e := nostr.Event{PubKey: author.pub, CreatedAt: corpusStart + int64(i)*corpusStep + int64(r.IntN(60))}
	switch p := r.IntN(100); {
	case p < 55:
		e.Kind = 1
		e.Content = words(r, 40+int(r.ExpFloat64()*130))
		if r.IntN(3) > 0 {
			e.Tags = append(c.reply(r), e.Tags...)
		}
	case p < 80:
		e.Kind = 7
		e.Content = "+"
		e.Tags = append(c.reply(r), nostr.Tag{"k", "1"})
	case p < 86:
		e.Kind = 6
		e.Content = words(r, 200)
		e.Tags = c.reply(r)
	case p < 92:
		e.Kind = 1111
		e.Content = words(r, 30+int(r.ExpFloat64()*200))
		e.Tags = append(c.reply(r), nostr.Tag{"K", "30023"})
	case p < 96:
		e.Kind = 9735
		e.Tags = append(c.reply(r), nostr.Tag{"bolt11", "lnbc" + words(r, 240)}, nostr.Tag{"description", words(r, 200)})
	default:
		e.Kind = 30023
		e.Content = words(r, 600+int(r.ExpFloat64()*400))
		e.Tags = []nostr.Tag{{"d", "article-" + strconv.Itoa(i)}, {"title", words(r, 40)}}
	}
	for range r.IntN(3) {
		e.Tags = append(e.Tags, nostr.Tag{"t", c.topic(r)})
	}
	return e, author
}

// reply is the tags of an answer to an event of somebody.
func (c *corpus) reply(r *rand.Rand) []nostr.Tag {
	return []nostr.Tag{{"e", c.thread(r)}, {"p", c.signers[c.authors.pick(r)].pub.String()}}
}

func (c *corpus) thread(r *rand.Rand) string {
	id := c.digest("thread", r.IntN(corpusThreads))
	return hex.EncodeToString(id[:])
}

func (c *corpus) topic(r *rand.Rand) string { return "topic" + strconv.Itoa(c.topics.pick(r)) }

// event is event i, signed.
func (c *corpus) event(i int) *nostr.Event {
	e, author := c.draft(i)
	author.sign(&e)
	return &e
}

// words is about n octets of text.
func words(r *rand.Rand, n int) string {
	var b strings.Builder
	for b.Len() < n {
		if b.Len() > 0 {
			b.WriteByte(" \n"[r.IntN(20)/19])
		}
		b.WriteString(lexicon[r.IntN(len(lexicon))])
	}
	return b.String()
}

var lexicon = strings.Fields(`the a of to and in is that it was for on are as with they be at one have this from or had by hot but some what there we can out other
were all your when up use word how said an each she which do their time if will way about many then them would write like so these her long make thing see him
two has look more day could go come did my sound no most number who over know water than call first people may down side been now find relay note signal "quoted"
straße naïve 東京 привет 🙂 https://example.org/path?x=1 #tag wow…`)

// weights picks places so that few are popular: place k has the weight 1/(k+8).
type weights []float64

func newWeights(n int) weights {
	w := make(weights, n)
	sum := 0.0
	for i := range w {
		sum += 1 / float64(i+8)
		w[i] = sum
	}
	return w
}

func (w weights) pick(r *rand.Rand) int {
	x := r.Float64() * w[len(w)-1]
	lo, hi := 0, len(w)-1
	for lo < hi {
		if mid := (lo + hi) / 2; w[mid] <= x {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	return lo
}

// item is one event of a loaded corpus: what the phases need of it, and its text.
type item struct {
	id  nostr.ID
	at  int64
	raw []byte
}

// load returns the first n events. They are kept in a file of dir (the system's temporary directory if empty), which grows
// with the largest n asked of it.
func (c *corpus) load(ctx context.Context, dir string, n int) ([]item, error) {
	if dir == "" {
		dir = os.TempDir()
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("make the corpus: %w", err)
	}
	path := filepath.Join(dir, fmt.Sprintf("fleetmesh-bench-v%d-seed%d.jsonl", corpusVersion, c.seed))
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, fmt.Errorf("open the corpus: %w", err)
	}
	defer f.Close()
	items, length, err := readItems(f, n)
	if err != nil {
		return nil, fmt.Errorf("read the corpus %s (delete it to have it made anew): %w", path, err)
	}
	if len(items) == n {
		return items, nil
	}
	if err := f.Truncate(length); err != nil { // a torn last line
		return nil, fmt.Errorf("cut the corpus: %w", err)
	}
	if _, err := f.Seek(length, io.SeekStart); err != nil {
		return nil, fmt.Errorf("extend the corpus: %w", err)
	}
	w := bufio.NewWriterSize(f, 1<<20)
	for len(items) < n {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		more := c.make(len(items), min(n, len(items)+10_000))
		for i := range more {
			_, _ = w.Write(more[i].raw) // Flush tells
			_ = w.WriteByte('\n')
		}
		items = append(items, more...)
	}
	if err := w.Flush(); err != nil {
		return nil, fmt.Errorf("write the corpus: %w", err)
	}
	return items, nil
}

// make makes the events from..to-1 on all processors.
func (c *corpus) make(from, to int) []item {
	items := make([]item, to-from)
	var wg sync.WaitGroup
	workers := runtime.GOMAXPROCS(0)
	for w := range workers {
		wg.Go(func() {
			for i := w; i < len(items); i += workers {
				e := c.event(from + i)
				items[i] = item{id: e.ID, at: e.CreatedAt, raw: bytes.Clone(e.JSON())}
			}
		})
	}
	wg.Wait()
	return items
}

// readItems reads at most n whole lines, and says where the last of them ended.
func readItems(r io.Reader, n int) (items []item, length int64, err error) {
	br := bufio.NewReaderSize(r, 1<<20)
	for len(items) < n {
		line, err := br.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return items, length, nil
		}
		if err != nil {
			return nil, 0, err
		}
		length += int64(len(line))
		e, err := nostr.ParseEvent(bytes.TrimSuffix(line, []byte("\n")))
		if err != nil {
			return nil, 0, fmt.Errorf("line %d: %w", len(items)+1, err)
		}
		items = append(items, item{id: e.ID, at: e.CreatedAt, raw: e.JSON()})
	}
	return items, length, nil
}

// meanSize is the average octets of the texts.
func meanSize(items []item) float64 {
	if len(items) == 0 {
		return math.NaN()
	}
	sum := 0
	for i := range items {
		sum += len(items[i].raw)
	}
	return float64(sum) / float64(len(items))
}
