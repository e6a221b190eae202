package spec

import (
	_ "embed"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/go-json-experiment/json"

	"fleetmesh.org/fleetmesh/nostr"
)

//go:embed constants.json
var constantsJSON []byte

// Constants is constants.json: every number and label the arithmetic depends
// on (§ Governance). A field has the meaning that its section gives it; a
// string field that names a rule (such as Store.Supersession) is there so that
// the digest covers the rule.
type Constants struct {
	Protocol       ProtocolNames     `json:"protocol"`
	Classes        []ClassRules      `json:"classes"`
	Window         Window            `json:"window"`
	Lifetimes      Lifetimes         `json:"lifetimes"`
	Tiers          []TierRules       `json:"tiers"`  // ascending
	Limits         []LimitRules      `json:"limits"` // in the order a grant lists them
	Counters       []Counter         `json:"counters"`
	CounterNames   map[Limit]Counter `json:"counter_of"` // only where the names differ; see CounterOf
	DupRatio       DupRatio          `json:"dup_ratio"`
	OpeningQuarter Ratio             `json:"opening_quarter"`
	Schedule       []ScheduleStep    `json:"schedule"` // ascending
	ScheduleRule   string            `json:"schedule_rule"`
	Divergence     Divergence        `json:"divergence"`
	Growth         Growth            `json:"growth"`
	Remedies       []Remedy          `json:"remedies"`
	RemedyRule     string            `json:"remedy_rule"` // a limit below the floor already stays where it is
	ResumeAt       string            `json:"resume_at"`   // where limits stand when the zero of S3 has passed
	Silence        Silence           `json:"silence"`
	Receipt        ReceiptRules      `json:"receipt"`
	Trust          Trust             `json:"trust"`
	Forwarding     Forwarding        `json:"forwarding"`
	PoW            PoW               `json:"pow"`
	Capacity       Capacity          `json:"capacity"`
	Coverage       CoverageRules     `json:"coverage"`
	Privacy        Privacy           `json:"privacy"`
	Blinding       Blinding          `json:"blinding"`
	Commitment     Commitment        `json:"commitment"`
	Provisioning   Provisioning      `json:"provisioning"`
	Canonical      CanonicalRules    `json:"canonical"`
	Crypto         Crypto            `json:"crypto"`
	Transport      TransportRules    `json:"transport"`
	GiftWrap       GiftWrap          `json:"giftwrap"`
	Store          StoreRules        `json:"store"`
	Boundary       Boundary          `json:"boundary"`
	Gossip         Gossip            `json:"gossip"`
	Diagnostics    Diagnostics       `json:"diagnostics"`
	Governance     Governance        `json:"governance"`
	Retention      Retention         `json:"retention"`
	Compute        Compute           `json:"compute"`
}

// ProtocolNames are the strings compared byte for byte (§ Governance).
type ProtocolNames struct {
	Name                 string   `json:"name"`
	PIURIBase            string   `json:"piuri_base"`
	Required             []string `json:"required"` // a peer lacking one is declined UNSUPPORTED_PROTOCOL
	AnnounceTopic        string   `json:"announce_topic"`
	StreamProtocol       string   `json:"stream_protocol"`
	ALPN                 string   `json:"alpn"`
	WebSocketSubprotocol string   `json:"websocket_subprotocol"`
	EncryptedMediaType   string   `json:"encrypted_media_type"`
}

// ClassRules are the obligations of one node class (§ Node classes).
type ClassRules struct {
	Name                 Class    `json:"name"`
	DescriptorMaxSeconds int64    `json:"descriptor_max_seconds"` // longest expiration from created_at
	Heartbeat            string   `json:"heartbeat"`              // must, should or must-not
	Coverage             []string `json:"coverage"`               // completeness values it may publish
	Mediates             bool     `json:"mediates"`               // may serve as a mediator
	Mediators            int      `json:"mediators"`              // mediators it uses, of distinct operators
}

// Window holds the lengths of accounting windows (§ The grant, § Window arithmetic).
type Window struct {
	DefaultSeconds int64 `json:"default_seconds"`
	MinSeconds     int64 `json:"min_seconds"`
	MaxSeconds     int64 `json:"max_seconds"`
	Grace          Ratio `json:"grace"`        // of the window, in which a close is still final
	SkewSeconds    int64 `json:"skew_seconds"` // created_time further off than this counts by arrival
}

// Lifetimes are how long things live from created_at unless their author says
// otherwise, in seconds; a descriptor's upper bound is its class's.
type Lifetimes struct {
	DescriptorSeconds           int64 `json:"descriptor_seconds"`
	GrantSeconds                int64 `json:"grant_seconds"`
	ReportSeconds               int64 `json:"report_seconds"`
	HeartbeatMaxIntervalSeconds int64 `json:"heartbeat_max_interval_seconds"`
	DiagnosticsWindowSeconds    int64 `json:"diagnostics_window_seconds"`
}

// TierRules is a tier and the weight of its holder's reports (§ Trust weighting).
type TierRules struct {
	Name   Tier  `json:"name"`
	Weight Ratio `json:"weight"`
}

// Opening says where a limit stands when a grant is first issued (§ Grants &
// receipts, Wood is laid down where the strain was).
type Opening string

// The openings of a limit.
const (
	OpensAtCeiling Opening = "ceiling" // structural limits
	OpensAtQuarter Opening = "quarter" // volume
	OpensAtZero    Opening = "zero"    // until an operator raises it
)

// LimitRules is one row of the tier table (§ The grant). Ceiling is per window
// whatever its length, by tier.
type LimitRules struct {
	Name    Limit          `json:"name"`
	Opens   Opening        `json:"opens"`
	Ceiling map[Tier]int64 `json:"ceiling"`
}

// DupRatio is the limit that is a ratio (§ The grant). It is evaluated only
// where the denominator's count reaches the divergence floor of the named limit.
type DupRatio struct {
	Ceiling              Ratio   `json:"ceiling"`
	Numerator            Counter `json:"numerator"`
	Denominator          Counter `json:"denominator"`
	EvaluatedFromFloorOf Limit   `json:"evaluated_from_floor_of"`
}

// ScheduleStep is one step of a grant's schedule. Ratio is measured / limit,
// so the overrun it stands for is Ratio - 1; see OverrunThreshold.
type ScheduleStep struct {
	Ratio    Ratio    `json:"ratio"`
	Severity Severity `json:"severity"`
}

// OverrunThreshold returns the overrun (measured / limit - 1) at and above
// which the step's severity applies (§ Window arithmetic).
func (s ScheduleStep) OverrunThreshold() Ratio {
	return R(s.Ratio.Num-s.Ratio.Den, s.Ratio.Den)
}

// Divergence prices a claim against a measurement (§ Window arithmetic): above
// Tolerance the severity is at least Severity. The divisor is at least Floor of
// the limit and at least FloorMinUnits.
type Divergence struct {
	Tolerance     Ratio    `json:"tolerance"`
	Rule          string   `json:"rule"`
	Severity      Severity `json:"severity"`
	Floor         Ratio    `json:"floor"`
	FloorMinUnits int64    `json:"floor_min_units"`
}

// Growth is how limits move over clean windows (§ Window arithmetic). Step and
// StepMin are fractions of the tier's ceiling, Decay of the limit itself.
type Growth struct {
	Step             Ratio  `json:"step"` // scaled by strain
	StepMin          Ratio  `json:"step_min"`
	Decay            Ratio  `json:"decay"`
	DecayIdleWindows int    `json:"decay_idle_windows"` // then the whole grant decays once
	Rounding         string `json:"rounding"`
}

// Remedy is what a severity costs (§ Window arithmetic, § Severity ladder).
type Remedy struct {
	Severity              Severity `json:"severity"`
	Factor                Ratio    `json:"factor"`                  // each limit is multiplied by it
	FloorTier             Tier     `json:"floor_tier"`              // never below this tier's ceiling; "" is no floor
	Tier                  Tier     `json:"tier"`                    // the tier afterwards; "" leaves it
	ZeroSeconds           int64    `json:"zero_seconds"`            // every limit is zero for so long first
	NoticeWindows         int      `json:"notice_windows"`          // windows between a notice and a report
	PublishFromOccurrence int      `json:"publish_from_occurrence"` // 2: the first is never published
}

// Silence says what a window without a receipt means (§ Partition tolerance).
type Silence struct {
	Active   Severity `json:"active"` // traffic was measured
	Inactive string   `json:"inactive"`
}

// ReceiptRules fix the receipt chain (§ The receipt). The cadences are the
// defaults of a grant's receipt tag: whichever comes first.
type ReceiptRules struct {
	CadenceSeconds int64  `json:"cadence_seconds"`
	CadenceBytes   int64  `json:"cadence_bytes"`
	FirstSeq       int64  `json:"first_seq"`
	FirstPrev      string `json:"first_prev"` // 64 hex digits
	Link           string `json:"link"`
	Signature      string `json:"signature"`
	Counters       string `json:"counters"`
}

// Trust holds the numbers of view(x) (§ Trust weighting).
type Trust struct {
	Theta      Ratio    `json:"theta"`
	AgeWindows int64    `json:"age_windows"` // clean windows at which the age factor is 1
	Topics     []Topic  `json:"topics"`
	Modes      []string `json:"modes"` // of standing/1.0/query
	Effect     string   `json:"effect"`
}

// Forwarding fixes hops (§ The delivery envelope).
type Forwarding struct {
	MaxHops      int    `json:"max_hops"`
	HopLabel     string `json:"hop_label"`
	HopSeparator string `json:"hop_separator"`
	HopHash      string `json:"hop_hash"`
	HopSignature string `json:"hop_signature"`
}

// PoW is the optional admission cost (§ Discovery, Enrolment).
type PoW struct {
	DefaultBits int `json:"default_bits"` // leading zero bits of the descriptor's id, NIP-13
}

// Capacity is the shedding ladder (§ Grants & receipts, The node has a ceiling too).
type Capacity struct {
	Rungs        []Rung `json:"rungs"` // ascending
	ReleaseBelow Ratio  `json:"release_below"`
	Floor        Ratio  `json:"floor"` // of FloorOfTier's ceiling: no shed goes below it
	FloorOfTier  Tier   `json:"floor_of_tier"`
}

// Rung is one step of the shedding ladder, engaged at pressure At and above.
type Rung struct {
	Name string `json:"name"`
	At   Ratio  `json:"at"`
}

// CoverageRules bound kind 30803 and its audits (§ Coverage).
type CoverageRules struct {
	SampleSize   int      `json:"sample_size"` // ids drawn by one audit
	Completeness []string `json:"completeness"`
}

// Privacy bounds what is published (§ Privacy rules).
type Privacy struct {
	PublishedSignificantFigures int `json:"published_significant_figures"`
}

// Labels are the two domain strings of one derivation.
type Labels struct {
	Salt string `json:"salt"`
	Info string `json:"info"`
}

// Blinding derives the d tag of kinds 30801 and 30811 from the ECDH secret of
// the pair (§ The grant).
type Blinding struct {
	KDF    string `json:"kdf"`
	Secret string `json:"secret"`
	Length int    `json:"length"` // octets
	Grant  Labels `json:"grant"`
	Job    Labels `json:"job"`
}

// Commitment is the rule of the commit tag (§ The grant).
type Commitment struct {
	Scheme         string `json:"scheme"`
	ContentScheme  string `json:"content_scheme"`
	Hash           string `json:"hash"`
	Input          string `json:"input"`
	BlindingFactor string `json:"blinding_factor"`
	BlindingBytes  int    `json:"blinding_bytes"`
	ExcludedTag    string `json:"excluded_tag"` // left out of canonical(grant)
}

// Provisioning is the optional derivation of two keys at setup (§ Identity, The
// resolution): info is InfoPrefix, the role, a slash and a counter.
type Provisioning struct {
	KDF        string   `json:"kdf"`
	InfoPrefix string   `json:"info_prefix"`
	Roles      []string `json:"roles"`
}

// CanonicalRules say what Canonical does (§ The receipt).
type CanonicalRules struct {
	Encoding       string `json:"encoding"`
	Keys           string `json:"keys"`
	WhiteSpace     string `json:"white_space"`
	Numbers        string `json:"numbers"`
	MaxInteger     int64  `json:"max_integer"`
	Escapes        string `json:"escapes"`
	DuplicateNames string `json:"duplicate_names"`
	MaxDepth       int    `json:"max_depth"`
}

// Crypto names every primitive once (§ Open questions, 4).
type Crypto struct {
	EventSignature  string            `json:"event_signature"`
	Hash            string            `json:"hash"`
	KDF             string            `json:"kdf"`
	EventEncryption string            `json:"event_encryption"`
	AgreementKey    string            `json:"agreement_key"`
	TransportKey    string            `json:"transport_key"`
	AuthcryptAlg    string            `json:"authcrypt_alg"`
	AuthcryptEnc    string            `json:"authcrypt_enc"`
	AnoncryptAlg    string            `json:"anoncrypt_alg"`
	AnoncryptEnc    string            `json:"anoncrypt_enc"`
	Multibase       string            `json:"multibase"`
	MultikeyPrefix  map[string]string `json:"multikey_prefix"` // by key type; the key's hex follows
	BlobHash        string            `json:"blob_hash"`
	BlobCID         BlobCID           `json:"blob_cid"`
}

// BlobCID maps a blob's hash to a CID (§ Content Addressing & CIDs).
type BlobCID struct {
	Version   int    `json:"version"`
	Multibase string `json:"multibase"`
	Codec     int    `json:"codec"`     // 0x55, raw
	Multihash int    `json:"multihash"` // 0x12, sha2-256
}

// TransportRules are the ladder and the framing (§ Transports).
type TransportRules struct {
	Schemes            []string `json:"schemes"` // registered; a node may know more
	DialTimeoutSeconds int64    `json:"dial_timeout_seconds"`
	LadderRank         string   `json:"ladder_rank"`
	LadderTieBreak     string   `json:"ladder_tie_break"`
	Fallback           string   `json:"fallback"`
	FrameLength        string   `json:"frame_length"`
	MaxFrameBytes      int64    `json:"max_frame_bytes"`
	Zip                ZipRules `json:"zip"`
}

// ZipRules are how plaintexts are compressed inside of authcrypt (docs/spec-notes.md).
type ZipRules struct {
	Alg      string `json:"alg"`       // zip of RFC 7516
	Header   string `json:"header"`    // of a message whose sender reads that
	MaxRatio int64  `json:"max_ratio"` // octets for each compressed octet, and max_frame_bytes in all
}

// GiftWrap names the kinds of the binding that always works (§ Control plane,
// Which gift wrap).
type GiftWrap struct {
	LiveKind   nostr.Kind `json:"live_kind"`
	StoredKind nostr.Kind `json:"stored_kind"`
	SealKind   nostr.Kind `json:"seal_kind"`
	RumorKind  nostr.Kind `json:"rumor_kind"`
}

// StoreRules decide which events are in a set (§ Replication).
type StoreRules struct {
	Fingerprint       string     `json:"fingerprint"`
	EphemeralMin      nostr.Kind `json:"ephemeral_min"`
	EphemeralMax      nostr.Kind `json:"ephemeral_max"`
	Ephemeral         string     `json:"ephemeral"`
	Supersession      string     `json:"supersession"`
	Superseded        string     `json:"superseded"`
	DeletionAuthority string     `json:"deletion_authority"`
	DeletionRequest   string     `json:"deletion_request"`
	Tombstone         string     `json:"tombstone"`
	Expired           string     `json:"expired"`
	RangeOrder        string     `json:"range_order"`
	RangeBounds       string     `json:"range_bounds"`
}

// Boundary is what no node passes on (§ Two networks, § Never replicated).
type Boundary struct {
	NeverKinds               []nostr.Kind `json:"never_kinds"`
	RecipientRelaysOnlyKinds []nostr.Kind `json:"recipient_relays_only_kinds"` // only to nodes that the recipient's list names
	RecipientRelaysKind      nostr.Kind   `json:"recipient_relays_kind"`
}

// Never reports whether events of kind k cross on no transport and under no grant.
func (b *Boundary) Never(k nostr.Kind) bool { return slices.Contains(b.NeverKinds, k) }

// Gossip are the numbers of gossip/1.0 (§ Gossip topic membership).
type Gossip struct {
	Degree      int   `json:"degree"`
	DegreeLow   int   `json:"degree_low"`
	DegreeHigh  int   `json:"degree_high"`
	Lazy        int   `json:"lazy"`
	TickSeconds int64 `json:"tick_seconds"`
}

// Diagnostics names the metrics of kind 21802, so that those of many nodes add
// up (§ What alpha is for measuring).
type Diagnostics struct {
	Metrics []string `json:"metrics"`
}

// Governance are the counts by which anyone can check what nobody decrees
// (§ Governance, § Reproducible Distribution).
type Governance struct {
	FreezeAnchors    int `json:"freeze_anchors"`    // independent anchors that declare one digest
	FreezeDays       int `json:"freeze_days"`       // for so long without an adverse divergence report
	IndependenceDays int `json:"independence_days"` // of separate production, attested by people
	ReleaseSigners   int `json:"release_signers"`   // independent operators that rebuilt a release
}

// Retention lists the modes an operator chooses from (§ Grants & receipts,
// Retention is the operator's choice).
type Retention struct {
	Modes   []string `json:"modes"`
	Default string   `json:"default"`
}

// Compute names what the market's tags may say (§ Compute market).
type Compute struct {
	Executors    []Executor `json:"executors"`
	Verify       []string   `json:"verify"`
	ProofSystems []string   `json:"proof_systems"`
	Quorum       Quorum     `json:"quorum"`      // of quasi-deterministic
	SampleRate   Ratio      `json:"sample_rate"` // of jobs a buyer re-runs unless it says otherwise
	Profile      string     `json:"profile"`
	Fuel         string     `json:"fuel"`
	Rails        []string   `json:"rails"`
}

// Executor is a way to run a job and the unit of its price.
type Executor struct {
	Name     string `json:"name"`
	Unit     string `json:"unit"`
	Estimate bool   `json:"estimate"`
}

// Quorum is how many of how many must agree.
type Quorum struct {
	Agree int `json:"agree"`
	Of    int `json:"of"`
}

// C returns the constants. The value is shared: do not modify it.
func C() *Constants { return constants() }

var constants = sync.OnceValue(func() *Constants {
	c := new(Constants)
	if err := json.Unmarshal(constantsJSON, c, json.RejectUnknownMembers(true)); err != nil {
		panic(fmt.Sprintf("spec: constants.json: %v", err)) // our own file
	}
	if err := c.check(); err != nil {
		panic(fmt.Sprintf("spec: constants.json: %v", err))
	}
	return c
})

// check refuses constants that contradict themselves.
func (c *Constants) check() error {
	var errs []error
	for _, l := range c.Limits {
		if len(l.Ceiling) != len(c.Tiers) {
			errs = append(errs, fmt.Errorf("limit %s: want a ceiling for every tier", l.Name))
		}
		if !slices.Contains(c.Counters, c.CounterOf(l.Name)) {
			errs = append(errs, fmt.Errorf("limit %s: no counter %s", l.Name, c.CounterOf(l.Name)))
		}
	}
	for _, r := range c.ratios() {
		errs = append(errs, r.check())
	}
	return errors.Join(errs...)
}

func (c *Constants) ratios() []Ratio {
	rs := []Ratio{c.Window.Grace, c.DupRatio.Ceiling, c.OpeningQuarter, c.Divergence.Tolerance,
		c.Divergence.Floor, c.Growth.Step, c.Growth.StepMin, c.Growth.Decay, c.Trust.Theta,
		c.Capacity.ReleaseBelow, c.Capacity.Floor, c.Compute.SampleRate}
	for _, t := range c.Tiers {
		rs = append(rs, t.Weight)
	}
	for _, s := range c.Schedule {
		rs = append(rs, s.Ratio)
	}
	for _, r := range c.Remedies {
		rs = append(rs, r.Factor)
	}
	for _, r := range c.Capacity.Rungs {
		rs = append(rs, r.At)
	}
	return rs
}

// CounterOf returns the counter that limit l is priced against (§ The receipt,
// counter_of): the one of the same name, but for conn_rate.
func (c *Constants) CounterOf(l Limit) Counter {
	if n, ok := c.CounterNames[l]; ok {
		return n
	}
	return Counter(l)
}

// Limit returns the row of limit l; ok is false for a name that is no limit of
// the table, dup_ratio among them.
func (c *Constants) Limit(l Limit) (row *LimitRules, ok bool) {
	for i := range c.Limits {
		if c.Limits[i].Name == l {
			return &c.Limits[i], true
		}
	}
	return nil, false
}

// Ceiling returns the most a grant of tier t may set for limit l (tier_max in
// § Window arithmetic), 0 for an unknown limit, an unknown tier and revoked.
func (c *Constants) Ceiling(l Limit, t Tier) int64 {
	if row, ok := c.Limit(l); ok {
		return row.Ceiling[t]
	}
	return 0
}

// Open returns where limit l stands when a grant of tier t is first issued
// (open in § Window arithmetic), rounded down.
func (c *Constants) Open(l Limit, t Tier) int64 {
	row, ok := c.Limit(l)
	if !ok {
		return 0
	}
	switch row.Opens {
	case OpensAtCeiling:
		return row.Ceiling[t]
	case OpensAtQuarter:
		return c.OpeningQuarter.Floor(row.Ceiling[t])
	}
	return 0
}

// Weight returns what a report by a holder of tier t weighs, 0/1 for an unknown
// tier and revoked (§ Trust weighting).
func (c *Constants) Weight(t Tier) Ratio {
	for _, r := range c.Tiers {
		if r.Name == t {
			return r.Weight
		}
	}
	return R(0, 1)
}

// TierRank orders tiers: 0 for probation upwards, -1 for revoked and unknown
// ones.
func (c *Constants) TierRank(t Tier) int {
	return slices.IndexFunc(c.Tiers, func(r TierRules) bool { return r.Name == t })
}

// Class returns the rules of a node class.
func (c *Constants) Class(name Class) (rules *ClassRules, ok bool) {
	for i := range c.Classes {
		if c.Classes[i].Name == name {
			return &c.Classes[i], true
		}
	}
	return nil, false
}

// Remedy returns what severity s costs; S0 costs nothing and has none.
func (c *Constants) Remedy(s Severity) (Remedy, bool) {
	for _, r := range c.Remedies {
		if r.Severity == s {
			return r, true
		}
	}
	return Remedy{}, false
}
