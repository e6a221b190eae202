package relay

import (
	"cmp"
	"runtime"
	"time"

	"fleetmesh.org/fleetmesh/internal/policy"
)

// Limits are the knobs of the face. Zero means the default; a negative rate
// (per second) or count of connections switches that limit off. Every refusal that a limit causes names the knob as
// the operator writes it, its value, and what would have sufficed.
type Limits struct {
	MaxMessageBytes  int // of one WebSocket message (default 512 KiB); up to four times that is read so as to answer it
	MaxConnections   int // in all (default 8192)
	ConnectionsPerIP int // of one IPv4 address or IPv6 /64 (default 64)
	MaxSubscriptions int // of one connection (default 128)
	MaxFilters       int // of one REQ, COUNT or NEG-OPEN (default 64)
	MaxSubIDLength   int // characters (default 64, NIP-01)
	MaxWatchedValues int // ids, authors, kinds and tag values that the subscriptions of one connection are found by (default 50,000)
	MaxWatchedInAll  int // the same of all connections (default 2,000,000)
	MaxLimit         int // events of one filter in the initial answer (default 5000)
	DefaultLimit     int // the same for a filter without a limit (default 500)
	MaxAuthKeys      int // with which one connection is authenticated (default 256)

	EventsPerSecond   float64 // EVENTs of one client (default 100)
	EventsBurst       float64 // (default ten seconds' worth)
	RequestsPerSecond float64 // REQ, COUNT, NEG-OPEN and AUTH of one client (default 50)
	RequestsBurst     float64 // (default ten seconds' worth)
	BytesPerSecond    float64 // octets read from one client (default 2 MiB)
	BytesBurst        float64 // (default ten seconds' worth)

	MaxOutboundBytes int // owed to one connection, above which it is shed (default 8 MiB)
	MaxOutboundInAll int // owed to all connections, above which whoever is owed more than his share, and than StreamWindow, is shed (default 512 MiB)
	StreamWindow     int // owed to one connection, above which its queries pause (default 256 KiB)
	MaxQueries       int // of all connections that work at one time; the others wait (default twice the processors, at least 4)
	MaxInFlight      int // events of one connection that wait for their OK, above which it is not read (default 256)
	MaxPendingBytes  int // octets of events of all connections on their way to the store (default 64 MiB)

	MaxNegSessions int           // of one connection (default 16)
	MaxNegRecords  int           // of one NEG-OPEN (default 10,000,000)
	NegFrameBytes  int           // of one NEG-MSG before hex, or as many as the client's largest had (default 60,000)
	NegIdle        time.Duration // after which a session is closed (default 2 min)
	MaxHLLEvents   int           // up to which COUNT adds a HyperLogLog (default 200,000)

	PingInterval time.Duration // of silence, after which a ping is sent; twice that ends the connection (default 30 s)
	ReadTimeout  time.Duration // for one message to arrive once it has begun (default 60 s)
	WriteTimeout time.Duration // for the client to take 64 KiB (default 30 s)
}

// hardFactor says up to how many times MaxMessageBytes a message is read, only so that
// an EVENT that is too large gets its OK.
const hardFactor = 4

func (l *Limits) fill() {
	def := func(v *int, d int) { *v = cmp.Or(*v, d) }
	rate := func(v, burst *float64, d float64) {
		*v = cmp.Or(*v, d)
		if *burst == 0 {
			// Ten seconds at the default pace; a rate set by hand is meant as it stands.
			*burst = *v
			if *v == d {
				*burst = 10 * d
			}
		}
	}
	dur := func(v *time.Duration, d time.Duration) { *v = cmp.Or(*v, d) }
	def(&l.MaxMessageBytes, 512<<10)
	def(&l.MaxConnections, 8192)
	def(&l.ConnectionsPerIP, 64)
	def(&l.MaxSubscriptions, 128)
	def(&l.MaxFilters, 64)
	def(&l.MaxSubIDLength, 64)
	def(&l.MaxWatchedValues, 50_000)
	def(&l.MaxWatchedInAll, 2_000_000)
	def(&l.MaxLimit, 5000)
	def(&l.DefaultLimit, min(500, l.MaxLimit))
	def(&l.MaxAuthKeys, 256)
	rate(&l.EventsPerSecond, &l.EventsBurst, 100)
	rate(&l.RequestsPerSecond, &l.RequestsBurst, 50)
	rate(&l.BytesPerSecond, &l.BytesBurst, 2<<20)
	def(&l.MaxOutboundBytes, 8<<20)
	def(&l.MaxOutboundInAll, 512<<20)
	def(&l.StreamWindow, min(256<<10, l.MaxOutboundBytes/2))
	def(&l.MaxQueries, max(4, 2*runtime.GOMAXPROCS(0)))
	def(&l.MaxInFlight, 256)
	def(&l.MaxPendingBytes, 64<<20)
	def(&l.MaxNegSessions, 16)
	def(&l.MaxNegRecords, 10_000_000)
	def(&l.NegFrameBytes, 60_000)
	dur(&l.NegIdle, 2*time.Minute)
	def(&l.MaxHLLEvents, 200_000)
	dur(&l.PingInterval, 30*time.Second)
	dur(&l.ReadTimeout, time.Minute)
	dur(&l.WriteTimeout, 30*time.Second)
}

func (l *Limits) eventRate() policy.Rate {
	return policy.Rate{PerSecond: l.EventsPerSecond, Burst: l.EventsBurst}
}
func (l *Limits) requestRate() policy.Rate {
	return policy.Rate{PerSecond: l.RequestsPerSecond, Burst: l.RequestsBurst}
}
func (l *Limits) byteRate() policy.Rate {
	return policy.Rate{PerSecond: l.BytesPerSecond, Burst: l.BytesBurst}
}

// over words the refusal that a limit causes.
func over(p policy.Prefix, knob string, value, needed any) *policy.Rejection {
	return policy.Reject(p, "limits.%s is %v, %v would have sufficed", knob, value, needed)
}

// overRate words the refusal that a rate causes.
func overRate(knob string, r policy.Rate, wait time.Duration, enough float64) *policy.Rejection {
	return policy.Reject(policy.RateLimited, "limits.%s is %v with a burst of %v, a burst of %v would have sufficed; try again in %d ms",
		knob, r.PerSecond, r.Burst, enough, wait.Milliseconds())
}

// Limits returns the limits in force, with the defaults filled in.
func (r *Relay) Limits() Limits { return *r.lim.Load() }

// SetLimits changes what clients are held to from their next message on. No connection is ended: those above a lowered limit may finish. The
// room that is set aside at the start (MaxQueries, MaxPendingBytes) and what a connection was opened with (the timeouts, and up to how many octets a
// message is read at all) stay as they were.
func (r *Relay) SetLimits(l Limits) {
	was := r.lim.Load()
	l.fill()
	l.MaxQueries, l.MaxPendingBytes = was.MaxQueries, was.MaxPendingBytes
	r.lim.Store(&l)
	r.events.SetRate(l.eventRate())
	r.requests.SetRate(l.requestRate())
	r.bytes.SetRate(l.byteRate())
	r.RefreshInfo()
}
