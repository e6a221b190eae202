package relay

import (
	"sync"
	"time"

	"fleetmesh.org/fleetmesh/internal/policy"
	"fleetmesh.org/fleetmesh/nostr"
	"fleetmesh.org/fleetmesh/nostr/negentropy"
)

// negSession is one reconciliation (NIP-77) over a frozen set.
type negSession struct {
	c     *conn
	id    string
	timer *time.Timer

	mu      sync.Mutex
	server  *negentropy.Server
	release func()
	closed  bool
}

// negErr ends a session from our side. The prefix tells a program what happened; extra is the
// maximum for a set that is too big.
func (c *conn) negErr(sub string, no *policy.Rejection, extra ...int64) {
	c.r.m.refused(no.Prefix)
	c.send(nostr.AppendNegErr(nil, sub, no.String(), extra...))
}

func (c *conn) onNegOpen(m *nostr.NegOpenMessage) {
	c.r.m.NegOpens.Add(1)
	c.dropNeg(m.SubID)
	no := c.ask(m.SubID, []nostr.Filter{m.Filter})
	if no == nil && c.r.cfg.Off.Negentropy {
		no = policy.Reject(policy.Unsupported, "negentropy is switched off here")
	}
	if no != nil {
		c.negErr(m.SubID, no)
		return
	}
	n := &negSession{c: c, id: m.SubID}
	c.mu.Lock()
	open := len(c.negs)
	if l := c.r.lim.Load().MaxNegSessions; open >= l {
		c.mu.Unlock()
		c.negErr(m.SubID, over(policy.RateLimited, "maxNegSessions", l, open+1))
		return
	}
	if c.negs == nil {
		c.negs = make(map[string]*negSession)
	}
	c.negs[m.SubID] = n
	c.mu.Unlock()
	c.r.m.NegSessions.Add(1)
	c.run(&c.negLane, func() {
		if n.open(m.Filter) {
			n.reconcile(m.Message)
		}
	})
}

func (c *conn) onNegMsg(m *nostr.NegMsgMessage) {
	c.mu.Lock()
	n := c.negs[m.SubID]
	c.mu.Unlock()
	if n == nil {
		c.negErr(m.SubID, policy.Reject(policy.Closed, "there is no such session"))
		return
	}
	c.run(&c.negLane, func() { n.reconcile(m.Message) })
}

// dropNeg ends a session without a word, if there is one of that id.
func (c *conn) dropNeg(id string) {
	c.mu.Lock()
	n := c.negs[id]
	delete(c.negs, id)
	c.mu.Unlock()
	if n != nil {
		n.close(c.r)
	}
}

// open freezes the set. It returns false if the session is over.
func (n *negSession) open(f nostr.Filter) bool {
	c := n.c
	if !c.r.begin(c.ctx) {
		return false
	}
	set, release, err := c.r.cfg.Store.Set(c.ctx, []nostr.Filter{f}, c.r.gate.View(c.readers()), c.r.now().Unix())
	c.r.rest()
	if err != nil {
		c.r.log.Error("freeze a set", "err", err)
		n.fail(policy.Reject(policy.Error, "the set could not be made"))
		return false
	}
	if l := c.r.lim.Load().MaxNegRecords; set.Len() > l {
		release()
		n.fail(over(policy.Blocked, "maxNegRecords", l, set.Len()), int64(l))
		return false
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		release()
		return false
	}
	n.server, n.release = negentropy.NewServer(set, c.r.lim.Load().NegFrameBytes), release
	n.timer = time.AfterFunc(c.r.lim.Load().NegIdle, n.idle)
	return true
}

// reconcile answers one message.
func (n *negSession) reconcile(msg []byte) {
	if !n.c.r.begin(n.c.ctx) {
		return
	}
	defer n.c.r.rest()
	n.mu.Lock()
	if n.server == nil {
		n.mu.Unlock()
		return
	}
	n.server.Permit(len(msg)) // whoever sends messages of a size takes them as well
	answer, err := n.server.Reconcile(msg)
	n.timer.Reset(n.c.r.lim.Load().NegIdle)
	n.mu.Unlock()
	if err != nil {
		n.fail(policy.Reject(policy.Invalid, "%s", err))
		return
	}
	n.c.r.m.NegMessages.Add(1)
	n.c.send(nostr.AppendNegMsg(nil, n.id, answer))
}

// idle is the timer's: the client has gone quiet, and its set costs memory.
func (n *negSession) idle() {
	n.fail(policy.Reject(policy.Closed, "no message for limits.negIdle, which is %v", n.c.r.lim.Load().NegIdle))
}

// fail ends the session with a NEG-ERR, unless it is over.
func (n *negSession) fail(no *policy.Rejection, extra ...int64) {
	n.c.mu.Lock()
	current := n.c.negs[n.id] == n
	if current {
		delete(n.c.negs, n.id)
	}
	n.c.mu.Unlock()
	n.close(n.c.r)
	if current {
		n.c.negErr(n.id, no, extra...)
	}
}

// close gives the set back. It may be called more than once.
func (n *negSession) close(r *Relay) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		return
	}
	n.closed = true
	r.m.NegSessions.Add(-1)
	if n.timer != nil {
		n.timer.Stop()
	}
	if n.release != nil {
		n.release()
	}
	n.server, n.release = nil, nil
}
