package daemon

import (
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"fleetmesh.org/fleetmesh/internal/blossom"
	"fleetmesh.org/fleetmesh/internal/blossom/s3"
	"fleetmesh.org/fleetmesh/internal/policy"
	"fleetmesh.org/fleetmesh/internal/store"
	"fleetmesh.org/fleetmesh/nostr"
	"fleetmesh.org/fleetmesh/spec"
)

// BlobsSpec configures the blob face (docs/blossom.md). It is off unless enabled.
type BlobsSpec struct {
	Enabled      bool     `yaml:"enabled"`
	Path         string   `yaml:"path,omitempty"`         // of the store, in the node directory; "": blobs
	MaxBytes     int64    `yaml:"maxBytes,omitempty"`     // octets of all blobs; 0: no quota
	MaxBlobBytes int64    `yaml:"maxBlobBytes,omitempty"` // octets of one; 0: the default
	PublicURL    string   `yaml:"publicUrl,omitempty"`    // https://host under which clients reach the face; "": from spec.relay.publicUrls
	WithoutEvent bool     `yaml:"withoutEvent,omitempty"` // take blobs that no event held here names
	List         string   `yaml:"list,omitempty"`         // who may list a key's blobs: public, which is the default, owner, off
	PrivateGet   bool     `yaml:"privateGet,omitempty"`   // reading needs a token too
	Media        string   `yaml:"media,omitempty"`        // strip: take metadata out of pictures at /media; "": no /media
	MirrorLocal  bool     `yaml:"mirrorLocal,omitempty"`  // mirror from private addresses too
	Off          []string `yaml:"off,omitempty"`          // mirror, report
	S3           *S3Spec  `yaml:"s3,omitempty"`           // keep the bytes in a bucket; absent: beside the journal in Path
}

// S3Spec names a bucket for the bytes of blobs.
type S3Spec struct {
	Endpoint    string `yaml:"endpoint"` // URL, such as https://s3.example.org
	Bucket      string `yaml:"bucket"`
	Prefix      string `yaml:"prefix,omitempty"`
	Region      string `yaml:"region,omitempty"`
	Credentials string `yaml:"credentials,omitempty"` // file in the form of ~/.aws/credentials; "": from AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY
}

func (c *S3Spec) check() error {
	if c == nil {
		return nil
	}
	if u, err := url.Parse(c.Endpoint); err != nil || (u.Scheme != "https" && u.Scheme != "http") || u.Host == "" {
		return fmt.Errorf("spec.blobs.s3.endpoint is %q, want a URL such as https://s3.example.org", c.Endpoint)
	}
	if c.Bucket == "" {
		return errors.New("spec.blobs.s3.bucket is empty")
	}
	return nil
}

func (b *BlobsSpec) check() (errs []error) {
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if b.MaxBytes < 0 || b.MaxBlobBytes < 0 {
		bad("spec.blobs has a negative size")
	}
	if b.MaxBytes > 0 && b.MaxBlobBytes > b.MaxBytes {
		bad("spec.blobs.maxBlobBytes is more than maxBytes")
	}
	if !slices.Contains([]string{"", "public", "owner", "off"}, b.List) {
		bad("spec.blobs.list is %q, want public, owner or off", b.List)
	}
	if b.Media != "" && b.Media != "strip" {
		bad("spec.blobs.media is %q, want strip or nothing", b.Media)
	}
	for _, f := range b.Off {
		if f != "mirror" && f != "report" {
			bad("spec.blobs.off has %q, want some of mirror, report", f)
		}
	}
	if u, err := url.Parse(b.PublicURL); b.PublicURL != "" && (err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" || (u.Path != "" && u.Path != "/")) {
		bad("spec.blobs.publicUrl is %q, want a URL without a path such as https://blobs.example.org", b.PublicURL)
	}
	if err := b.S3.check(); err != nil {
		errs = append(errs, err)
	}
	return errs
}

// blobFace is the blob face of a node, and what it has counted. The zero blobFace is off.
type blobFace struct {
	server *blossom.Server
	store  blossom.Store
	fetch  *blossom.Fetcher

	mu    sync.Mutex
	flows map[nostr.PubKey]*BlobFlow

	answers *blobAnswers
	upload  atomic.Pointer[func(context.Context, *blossom.Request) *blossom.Refusal] // who may, by the rules of the relay face
}

// BlobFlow is octets of blobs by the key that caused them, since the node started; the empty key is everybody without a token.
type BlobFlow struct {
	PubKey string `json:"pubkey,omitempty"`
	In     int64  `json:"in"`
	Out    int64  `json:"out"`
}

// blobDir is the directory of a node's blobs.
func (n *node) blobDir() string {
	path := cmp.Or(n.cfg().Spec.Blobs.Path, "blobs")
	if !filepath.IsAbs(path) {
		path = filepath.Join(string(n.opt.Dir), path)
	}
	return path
}

// openBlobs opens the store of a node's blobs.
func (n *node) openBlobs(ctx context.Context) (*blossom.Disk, error) {
	c, path := &n.cfg().Spec.Blobs, n.blobDir()
	if c.S3 == nil {
		return blossom.OpenDisk(path, c.MaxBytes, n.log)
	}
	b, err := s3.Open(ctx, s3.Config{
		Endpoint: c.S3.Endpoint, Bucket: c.S3.Bucket, Prefix: c.S3.Prefix, Region: c.S3.Region, Credentials: c.S3.Credentials,
		Transport: n.fed.net.HTTPClient().Transport,
	})
	if err != nil {
		return nil, fmt.Errorf("spec.blobs.s3: %w", err)
	}
	return blossom.OpenBucket(path, b, c.MaxBytes, n.log)
}

// mount puts the face in front of the relay's, for the paths that are its own.
func (b *blobFace) mount(ctx context.Context, n *node) (http.Handler, error) {
	if !n.cfg().Spec.Blobs.Enabled {
		return n.relay, nil
	}
	disk, err := n.openBlobs(ctx)
	if err != nil {
		return nil, err
	}
	b.store, b.flows, b.answers = disk, map[nostr.PubKey]*BlobFlow{}, newBlobAnswers(n.blobDir())
	cfg, err := b.config(n)
	if err == nil {
		b.server, err = blossom.New(cfg)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("set up the blob face: %w", err), disk.Close())
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if b.server.Claims(r) && r.Header.Get("Upgrade") == "" {
			b.server.ServeHTTP(w, r)
			return
		}
		n.relay.ServeHTTP(w, r)
	}), nil
}

func (b *blobFace) config(n *node) (blossom.Config, error) {
	c := &n.cfg().Spec.Blobs
	cfg := blossom.Config{
		Store: b.store, MaxBlob: c.MaxBlobBytes, List: blossom.ListMode(c.List), PrivateGet: c.PrivateGet,
		PublicURL: c.PublicURL, Signer: n.agent, Log: n.log, Meter: b.meter,
	}
	if p, err := url.Parse(n.url); err == nil {
		cfg.Hosts = append(cfg.Hosts, p.Host)
	}
	for _, u := range n.cfg().Spec.Relay.PublicURLs {
		if p, err := url.Parse(u); err == nil {
			cfg.Hosts = append(cfg.Hosts, p.Host)
			if cfg.PublicURL == "" {
				cfg.PublicURL = map[string]string{"ws": "http", "wss": "https"}[p.Scheme] + "://" + p.Host
			}
		}
	}
	if !c.WithoutEvent {
		cfg.HasEvent = n.blobHasEvent
	}
	if c.Media == "strip" {
		cfg.Media = blossom.Strip{}
	}
	if !slices.Contains(c.Off, "report") {
		cfg.Report = n.blobReport
	}
	fetch := blossom.FetchConfig{AllowPrivate: c.MirrorLocal}
	if n.fed.net.Proxied() {
		fetch.Transport = n.fed.net.HTTPClient().Transport
	}
	b.fetch = blossom.NewFetcher(fetch)
	if !slices.Contains(c.Off, "mirror") {
		cfg.Fetch = b.fetch
	}
	cfg.Admit = func(ctx context.Context, r *blossom.Request) *blossom.Refusal {
		if no := n.chargeBlob(r); no != nil {
			return no
		}
		return (*b.upload.Load())(ctx, r)
	}
	return cfg, b.setRules(&n.cfg().Spec.Relay)
}

// setRules changes who may upload from now on.
func (b *blobFace) setRules(c *RelaySpec) error {
	may, err := uploaders(c)
	if err == nil {
		b.upload.Store(&may)
	}
	return err
}

// uploaders lets the keys upload that may publish events here.
func uploaders(c *RelaySpec) (func(context.Context, *blossom.Request) *blossom.Refusal, error) {
	allow, err := pubkeys("allowPubkeys", c.AllowPubkeys)
	if err != nil {
		return nil, err
	}
	deny, err := pubkeys("denyPubkeys", c.DenyPubkeys)
	if err != nil {
		return nil, err
	}
	authors := policy.NewAuthors(allow, deny)
	return func(ctx context.Context, r *blossom.Request) *blossom.Refusal {
		if r.Verb != blossom.VerbUpload && r.Verb != blossom.VerbMedia {
			return nil
		}
		if c.ReadOnly {
			return &blossom.Refusal{Code: spec.CodePolicy, Reason: "nothing is stored here"}
		}
		e := &nostr.Event{PubKey: r.PubKey, Kind: blossom.KindToken}
		return blossom.RefusalOf(authors.Admit(ctx, &policy.Request{Event: e, Now: time.Now().Unix()}))
	}, nil
}

// recentEvents is how many of an uploader's latest events are looked through for a blob's name.
const recentEvents = 500

// blobHasEvent looks for an event that carries a blob: by its x tag, whoever wrote it, or by its name anywhere in the uploader's
// latest events, because clients put it into imeta tags and URLs, which no relay indexes.
func (n *node) blobHasEvent(ctx context.Context, h blossom.Hash, by nostr.PubKey) (bool, error) {
	most := recentEvents
	filters := []nostr.Filter{{Tags: []nostr.TagFilter{{Letter: 'x', Values: []string{h.String()}}}, Limit: &most}}
	if by != (nostr.PubKey{}) {
		filters = append(filters, nostr.Filter{Authors: []nostr.PubKey{by}, Limit: &most})
	}
	for e, err := range n.store.Query(ctx, filters, store.View{}, 0, time.Now().Unix()) {
		if err != nil {
			return false, fmt.Errorf("look for an event that names the blob: %w", err)
		}
		if slices.Contains(blossom.Named(e), h) {
			return true, nil
		}
	}
	return false, nil
}

// blobReport takes a report in as the relay would: it is an ordinary event about content, for the operator and for readers.
func (n *node) blobReport(ctx context.Context, e *nostr.Event, about []blossom.Hash) error {
	verdicts, err := n.ingest(policy.FromClient)(ctx, []*nostr.Event{e})
	if err != nil {
		return err
	}
	n.log.Info("a report about blobs came in", "blobs", len(about), "kept", verdicts[0].OK)
	return nil
}

func (b *blobFace) meter(f blossom.Flow) {
	b.mu.Lock()
	defer b.mu.Unlock()
	sum := b.flows[f.PubKey]
	if sum == nil {
		if len(b.flows) >= 10000 { // keys cost nothing: the rest is counted together
			f.PubKey = nostr.PubKey{}
		}
		if sum = b.flows[f.PubKey]; sum == nil {
			sum = new(BlobFlow)
			b.flows[f.PubKey] = sum
		}
	}
	sum.In += f.In
	sum.Out += f.Out
}

// BlobStatus is what the control socket tells of the blob face.
type BlobStatus struct {
	blossom.Usage
	Flows []BlobFlow `json:"flows"`
}

var errNoBlobs = errors.New("this node has no blob face: set spec.blobs.enabled")

func (b *blobFace) status(ctx context.Context, _ none) (BlobStatus, error) {
	if b.server == nil {
		return BlobStatus{}, errNoBlobs
	}
	u, err := b.store.Usage(ctx)
	if err != nil {
		return BlobStatus{}, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	s := BlobStatus{Usage: u, Flows: []BlobFlow{}}
	for k, f := range b.flows {
		line := *f
		if k != (nostr.PubKey{}) {
			line.PubKey = k.String()
		}
		s.Flows = append(s.Flows, line)
	}
	slices.SortFunc(s.Flows, func(a, b BlobFlow) int { return cmp.Compare(a.PubKey, b.PubKey) })
	return s, nil
}

// EraseParams name a blob to erase by its hash or its CID, and why.
type EraseParams struct {
	Blob   string `json:"blob"`
	Event  string `json:"event,omitempty"` // id of the event that led to it
	Reason string `json:"reason,omitempty"`
	Block  bool   `json:"block,omitempty"` // it may not come back
}

// erase removes a blob, and gives the node's signed answer.
func (b *blobFace) erase(ctx context.Context, p EraseParams) (*blossom.Answer, error) {
	if b.server == nil {
		return nil, errNoBlobs
	}
	h, err := parseBlob(p.Blob)
	if err != nil {
		return nil, err
	}
	if _, err := hex.DecodeString(p.Event); err != nil || (p.Event != "" && len(p.Event) != 64) {
		return nil, errors.New("event is no event id")
	}
	a, err := b.server.Erase(ctx, blossom.Erasure{Hash: h, Event: p.Event, Reason: cmp.Or(p.Reason, "operator"), Block: p.Block})
	if a != nil {
		if werr := b.answers.add(a); werr != nil {
			return nil, errors.Join(err, werr)
		}
	}
	if a != nil && err != nil {
		return a, nil //nolint:nilerr // the answer says that it failed, and is signed
	}
	return a, err
}

func (b *blobFace) close() {
	if b.store != nil {
		_ = b.store.Close() // every write was durable before it was acknowledged
	}
}
