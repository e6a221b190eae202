package web

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// actions are what the page does, each by one control method.
var actions = map[string]struct {
	method string
	do     func(*Web, *http.Request) (done, back string, err error)
}{
	"peer-end":   {"peer.end", endPeer},
	"peer-tier":  {"peer.amend", setTier},
	"peer-limit": {"peer.amend", setLimit},
	"peer-add":   {"peer.add", addPeer},
	"peer-ask":   {"peer.ask", askPeers},
	"sync":       {"relay.sync", startSync},
	"sync-stop":  {"relay.sync", stopSync},
	"sign-out-all": {"page.end", func(w *Web, _ *http.Request) (string, string, error) {
		return "everybody was signed out", prefix, w.cfg.Node.Call(w.ctx, "page.end", nil, nil, nil)
	}},
}

// act does what the operator asked for.
func (w *Web) act(rw http.ResponseWriter, r *http.Request, s *session) {
	if s == nil {
		w.refuse(rw, r, http.StatusUnauthorized, "Sign in first. Nothing was done.")
		return
	}
	a, ok := actions[r.PathValue("action")]
	if !ok || !w.offers(r.Context())[a.method] {
		w.refuse(rw, r, http.StatusNotFound, "This node cannot do that.")
		return
	}
	done, back, err := a.do(w, r)
	if err != nil {
		w.refuse(rw, r, http.StatusUnprocessableEntity, sentence(err))
		return
	}
	u, _ := url.Parse(back)
	q := u.Query()
	q.Set("done", done)
	u.RawQuery = q.Encode()
	http.Redirect(rw, r, u.String(), http.StatusSeeOther)
}

func (w *Web) call(r *http.Request, method string, params any) error {
	ctx, cancel := context.WithTimeout(r.Context(), 4*patience)
	defer cancel()
	return w.cfg.Node.Call(ctx, method, params, nil, nil)
}

func peerPage(did string) string { return prefix + "peers/" + url.PathEscape(did) }

func endPeer(w *Web, r *http.Request) (string, string, error) {
	did := r.PostForm.Get("did")
	if r.PostForm.Get("sure") != "yes" {
		return "", "", fmt.Errorf("tick the box that says you mean it: an ended peering has to be agreed on anew by both sides")
	}
	return "the peering is ended", peerPage(did), w.call(r, "peer.end", map[string]string{"did": did, "reason": r.PostForm.Get("reason")})
}

func setTier(w *Web, r *http.Request) (string, string, error) {
	did, tier := r.PostForm.Get("did"), r.PostForm.Get("tier")
	return "the tier is " + tier + " from the next grant on", peerPage(did), w.call(r, "peer.amend", map[string]string{"did": did, "tier": tier})
}

// setLimit sets one limit of our grant, or gives it back to the arithmetic where no number is written.
func setLimit(w *Web, r *http.Request) (string, string, error) {
	did, limit, value := r.PostForm.Get("did"), r.PostForm.Get("limit"), strings.TrimSpace(r.PostForm.Get("value"))
	if value == "" {
		return limit + " is the arithmetic's again from the next grant on", peerPage(did), w.call(r, "peer.amend", map[string]any{"did": did, "free": []string{limit}})
	}
	n, err := strconv.ParseInt(value, 10, 64)
	if err != nil || n < 0 {
		return "", "", fmt.Errorf("the limit is no number of 0 or more: write it in digits, or leave it empty to give it back to the arithmetic")
	}
	return fmt.Sprintf("%s is at most %d from the next grant on", limit, n), peerPage(did), w.call(r, "peer.amend", map[string]any{"did": did, "limits": map[string]int64{limit: n}})
}

func askPeers(w *Web, r *http.Request) (string, string, error) {
	return "the peers were asked; what they answer comes in below", prefix + "node", w.call(r, "peer.ask", nil)
}

func addPeer(w *Web, r *http.Request) (string, string, error) {
	f := r.PostForm
	params := map[string]any{"did": strings.TrimSpace(f.Get("did"))}
	if u := strings.Fields(f.Get("relay")); len(u) > 0 {
		params["relays"] = u
	}
	if t := f.Get("tier"); t != "" {
		params["tier"] = t
	}
	if mode := f.Get("mode"); mode != "none" {
		filter := strings.TrimSpace(f.Get("filter"))
		if filter == "" {
			filter = "{}"
		}
		if !json.Valid([]byte(filter)) {
			return "", "", fmt.Errorf("the filter is no JSON: write it as {\"kinds\":[1]}, or {} for everything")
		}
		shard := strings.TrimSpace(f.Get("shard"))
		if shard == "" {
			shard = "all"
		}
		params["wants"] = []map[string]any{{"shard": shard, "filter": json.RawMessage(filter), "mode": mode}}
	}
	return "the peering was proposed", prefix + "log", w.call(r, "peer.add", params)
}

// Syncs with relays that the page began: so many at work, so many remembered.
const (
	maxRunning = 2
	maxJobs    = 8
)

// job is a sync with a relay.
type job struct {
	ID             int
	URL, Direction string
	Began, Ended   int64
	Step           syncStep
	Failure        string
	stop           context.CancelFunc
}

type syncStep struct {
	Fetched, New, Sent int
	Summary, Failure   string
}

type jobs struct {
	mu     sync.Mutex
	all    []*job // oldest first
	next   int
	closed bool
	work   sync.WaitGroup
}

// close refuses more, and waits for those at work.
func (j *jobs) close() {
	j.mu.Lock()
	j.closed = true
	j.mu.Unlock()
	j.work.Wait()
}

// list copies what there is, newest first.
func (j *jobs) list() (out []job) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for i := len(j.all) - 1; i >= 0; i-- {
		out = append(out, *j.all[i])
	}
	return out
}

// add begins a job; whoever runs it says when it is done, by work.
func (j *jobs) add(one *job) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.closed {
		return fmt.Errorf("the node is stopping")
	}
	running := 0
	for _, o := range j.all {
		if o.Ended == 0 {
			running++
		}
	}
	if running >= maxRunning {
		return fmt.Errorf("%d syncs are at work already: wait for one, or stop it", running)
	}
	j.next++
	one.ID = j.next
	if j.all = append(j.all, one); len(j.all) > maxJobs {
		i := slices.IndexFunc(j.all, func(o *job) bool { return o.Ended != 0 })
		j.all = slices.Delete(j.all, i, i+1)
	}
	j.work.Add(1)
	return nil
}

func startSync(w *Web, r *http.Request) (string, string, error) {
	f := r.PostForm
	params := map[string]any{"url": strings.TrimSpace(f.Get("url")), "direction": f.Get("direction")}
	u, err := url.Parse(params["url"].(string))
	if err != nil || u.Scheme != "ws" && u.Scheme != "wss" || u.Host == "" {
		return "", "", fmt.Errorf("the relay's address is a URL such as wss://relay.example.org")
	}
	if filter := strings.TrimSpace(f.Get("filter")); filter != "" {
		if !json.Valid([]byte(filter)) {
			return "", "", fmt.Errorf("the filter is no JSON: write it as {\"kinds\":[1]}, or leave it empty for everything")
		}
		params["filter"] = json.RawMessage(filter)
	}
	ctx, cancel := context.WithCancel(w.ctx)
	one := &job{URL: u.String(), Direction: f.Get("direction"), Began: w.now().Unix(), stop: cancel}
	if err := w.jobs.add(one); err != nil {
		cancel()
		return "", "", err
	}
	go func() {
		defer w.jobs.work.Done()
		defer cancel()
		w.sync(ctx, one, params)
	}()
	return "the sync has begun", prefix + "sync", nil
}

// sync runs a job to its end.
func (w *Web) sync(ctx context.Context, one *job, params map[string]any) {
	var end syncStep
	err := w.cfg.Node.Call(ctx, "relay.sync", params, &end, func(raw json.RawMessage) {
		var s syncStep
		if json.Unmarshal(raw, &s) == nil {
			w.jobs.mu.Lock()
			one.Step = s
			w.jobs.mu.Unlock()
		}
	})
	w.jobs.mu.Lock()
	defer w.jobs.mu.Unlock()
	one.Ended = w.now().Unix()
	switch {
	case err == nil:
		one.Step, one.Failure = end, end.Failure
	case ctx.Err() != nil:
		one.Failure = "stopped"
	default:
		one.Failure = sentence(err)
	}
}

func stopSync(w *Web, r *http.Request) (string, string, error) {
	id, _ := strconv.Atoi(r.PostForm.Get("id"))
	w.jobs.mu.Lock()
	defer w.jobs.mu.Unlock()
	for _, o := range w.jobs.all {
		if o.ID == id && o.Ended == 0 {
			o.stop()
			return "the sync is being stopped", prefix + "sync", nil
		}
	}
	return "that sync had ended", prefix + "sync", nil
}
