package web

import (
	"bytes"
	"context"
	"embed"
	"html/template"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"fleetmesh.org/fleetmesh/internal/monitor"
	"fleetmesh.org/fleetmesh/nostr"
	"fleetmesh.org/fleetmesh/spec"
)

//go:embed templates
var templateFiles embed.FS

var templates = template.Must(template.New("").Funcs(templateFuncs).ParseFS(templateFiles, "templates/*.html"))

// section is one part of a view. A fixed one is not sent again to a page that is open: it holds what people type into.
type section struct {
	ID       string
	Template string
	Data     any
	Fixed    bool
}

// look is what a view is made from.
type look struct {
	clock
	web   *Web
	ctx   context.Context
	query url.Values // of the page, with the path's own values
	csrf  string
	has   map[string]bool // the node's control methods
}

// view is one page of the operator's.
type view struct {
	name  string // what the navigation marks
	title string
	parts func(*look) []section
}

var views = map[string]view{
	"":            {"overview", "Overview", overview},
	"peers/{did}": {"overview", "Peer", peerView},
	"log":         {"log", "Decisions", logView},
	"why":         {"why", "Why", whyView},
	"sync":        {"sync", "Sync", syncView},
	"node":        {"node", "Node", nodeView},
}

// look makes what a view needs. query is copied, with the values that stand in the path.
func (w *Web) look(ctx context.Context, r *http.Request, s *session, live bool) *look {
	q := r.URL.Query()
	if did := r.PathValue("did"); did != "" {
		q.Set("did", did)
	}
	return &look{clock: clock{now: w.now(), live: live}, web: w, ctx: ctx, query: q, csrf: s.csrf, has: w.offers(ctx)}
}

func (w *Web) serveView(rw http.ResponseWriter, r *http.Request, s *session, v view) {
	ctx, cancel := context.WithTimeout(r.Context(), patience)
	defer cancel()
	l := w.look(ctx, r, s, false)
	var body []template.HTML
	status := http.StatusOK
	for _, p := range v.parts(l) {
		if p.Template == "missing" {
			status = http.StatusNotFound
		}
		body = append(body, p.html())
	}
	q := url.Values{"view": {v.name}}
	for _, k := range []string{"did", "peer", "what"} {
		if x := l.query.Get(k); x != "" {
			q.Set(k, x)
		}
	}
	if l.query.Has("did") {
		q.Set("view", "peer")
	}
	w.render(rw, status, "operator", map[string]any{
		"Title": v.title, "View": v.name, "Name": w.name(ctx), "CSRF": s.csrf, "Body": body, "Live": prefix + "live?" + q.Encode(),
		"Done": l.query.Get("done"),
	})
}

// html renders a section. A template that fails shows so in its place, and nothing half done.
func (p section) html() template.HTML {
	var b bytes.Buffer
	if err := templates.ExecuteTemplate(&b, p.Template, p); err != nil {
		return "<p>This part could not be shown.</p>"
	}
	return template.HTML(b.String())
}

// render writes a whole page.
func (w *Web) render(rw http.ResponseWriter, status int, name string, data map[string]any) {
	data["Version"] = version
	var b bytes.Buffer
	if err := templates.ExecuteTemplate(&b, name, data); err != nil {
		w.cfg.Log.Error("render a page", "page", name, "err", err)
		http.Error(rw, "the page could not be made", http.StatusInternalServerError)
		return
	}
	rw.Header().Set("Content-Type", "text/html; charset=utf-8")
	rw.WriteHeader(status)
	_, _ = rw.Write(b.Bytes()) // a lost client is its own business
}

// refuse says why nothing was done, to the script in a line and to people on a page.
func (w *Web) refuse(rw http.ResponseWriter, r *http.Request, status int, text string) {
	if r.Header.Get("X-CSRF-Token") != "" {
		http.Error(rw, text, status)
		return
	}
	w.render(rw, status, "problem", map[string]any{"Title": http.StatusText(status), "Name": "meshnode", "Text": text})
}

// peerRow is a line of the table of peers.
type peerRow struct {
	*peering
	Name         string
	Issued, Held *gauge
	Plot         *plot
	Latest       *windowClose
}

// gauge is the limit of a budget that is used most.
type gauge struct {
	Limit       spec.Limit
	Used, Bound int64
}

func fullest(b *budget) *gauge {
	if b == nil {
		return nil
	}
	best := &gauge{Limit: spec.C().Limits[0].Name}
	best.Used, best.Bound = b.Used.of(best.Limit), b.Limits[best.Limit]
	for i := range spec.C().Limits {
		n := spec.C().Limits[i].Name
		if g := (gauge{n, b.Used.of(n), b.Limits[n]}); percent(g.Used, g.Bound) > percent(best.Used, best.Bound) {
			best = &g
		}
	}
	return best
}

func overview(l *look) []section {
	var st nodeStatus
	var m runningManifests
	problem := l.web.ask(l.ctx, "node.status", nil, &st)
	_ = l.web.ask(l.ctx, "manifest.get", nil, &m) // a node that is coming up has none yet
	peers, trouble := l.web.peers(l.ctx)
	report := l.web.health(l.ctx)
	return []section{
		{ID: "summary", Template: "summary", Data: map[string]any{"Status": &st, "Quota": m.InForce.Spec.Storage.MaxBytes, "Problem": problem, "Manifest": &m, "Health": report}},
		{ID: "peers", Template: "peers", Data: map[string]any{"Rows": rows(peers, m.names()), "Problem": trouble, "Clock": l.clock}},
		l.capacity(),
		jobsSection(l),
		l.decisions("recent", 12, m.names()),
	}
}

// capacity is what the node carries of what its operator declared, and from where the strain came; hidden where neither is known.
func (l *look) capacity() section {
	var c load
	if l.has["node.load"] {
		_ = l.web.ask(l.ctx, "node.load", nil, &c) // a node that is coming up carries nothing yet
	}
	return section{ID: "capacity", Template: "capacity", Data: map[string]any{"Load": &c, "Clock": l.clock}}
}

// health is what meshnode watch would say, without its recount; nil where the node does not tell.
func (w *Web) health(ctx context.Context) *monitor.Report {
	var f monitor.Facts
	if w.ask(ctx, "node.health", monitor.Params{}, &f) != "" {
		return nil
	}
	r := monitor.Judge(&f, monitor.Defaults())
	r.Facts = &f
	return &r
}

func rows(peers []peering, names map[string]string) (out []peerRow) {
	for i := range peers {
		p := &peers[i]
		r := peerRow{peering: p, Name: names[p.DID()], Issued: fullest(p.Issued), Held: fullest(p.Held), Plot: plotLimit(p.Windows, busiest(p.Windows))}
		if n := len(p.Windows); n > 0 {
			r.Latest = &p.Windows[n-1]
		}
		out = append(out, r)
	}
	return out
}

// busiest is the limit that came nearest to being used up over the windows: the one whose growth says most.
func busiest(windows []windowClose) spec.Limit {
	best, most := spec.Limit("events_in"), int64(-1)
	for i := range spec.C().Limits {
		n := spec.C().Limits[i].Name
		sum := int64(0)
		for _, w := range windows {
			sum += percent(w.Measured.of(n), w.Limits[n])
		}
		if sum > most && n != "conn_rate" && n != "errors" {
			best, most = n, sum
		}
	}
	return best
}

// decisions is the newest of what mesh told, newest first.
func (l *look) decisions(id string, most int, names map[string]string) section {
	var list []happened
	params := map[string]string{}
	if did := l.query.Get("did"); did != "" {
		params["did"] = did
	} else if did := l.query.Get("peer"); did != "" {
		params["did"] = did
	}
	problem := l.web.ask(l.ctx, "peer.history", params, &list)
	every := len(list)
	what := l.query.Get("what")
	list = slices.DeleteFunc(list, func(h happened) bool {
		return what == "" && routine(h.What) || what != "all" && !strings.HasPrefix(h.What, what)
	})
	all := len(list)
	hidden := 0
	if what == "" {
		hidden = every - all
	}
	list = list[max(0, all-most):]
	slices.Reverse(list)
	return section{ID: id, Template: "decisions", Data: map[string]any{
		"List": list, "All": all, "Problem": problem, "Clock": l.clock, "Names": names, "OnePeer": params["did"] != "", "Routine": hidden,
	}}
}

// routine says whether a word tells of a receipt that went as receipts should: there are many, and they decide nothing.
func routine(what string) bool {
	return what == "receipt-sent" || what == "receipt-acknowledged" || what == "receipt-accepted" || what == "receipt-final"
}

// budgetRow is one limit of a budget, and its growth.
type budgetRow struct {
	Limit       spec.Limit
	Used, Bound int64
	Ceiling     int64
	Plot        *plot
}

func budgetRows(b *budget, windows []windowClose) (out []budgetRow) {
	if b == nil {
		return nil
	}
	for i := range spec.C().Limits {
		n := spec.C().Limits[i].Name
		out = append(out, budgetRow{n, b.Used.of(n), b.Limits[n], spec.C().Ceiling(n, spec.Tier(b.Tier)), plotLimit(windows, n)})
	}
	return out
}

func peerView(l *look) []section {
	did := l.query.Get("did")
	peers, problem := l.web.peers(l.ctx)
	i := slices.IndexFunc(peers, func(p peering) bool { return p.DID() == did })
	if i < 0 {
		return []section{{ID: "missing", Template: "missing", Data: map[string]any{"DID": did, "Problem": problem}}}
	}
	p := &peers[i]
	var windows []windowReport
	trouble := l.web.ask(l.ctx, "peer.windows", map[string]string{"did": did}, &windows)
	slices.Reverse(windows)
	var m runningManifests
	_ = l.web.ask(l.ctx, "manifest.get", nil, &m) // the name is a nicety
	data := func(more map[string]any) map[string]any {
		more["Peer"], more["Clock"], more["Name"] = p, l.clock, m.names()[did]
		return more
	}
	return []section{
		{ID: "peer", Template: "peer", Data: data(map[string]any{})},
		{ID: "issued", Template: "budget", Data: data(map[string]any{"ID": "issued", "Budget": p.Issued, "Rows": budgetRows(p.Issued, p.Windows), "Title": "What it may cause here",
			"Note": "Our grant to it. Bars: measured in each closed window, the newest at the right; line: what was allowed; heights by the square root."})},
		{ID: "held", Template: "budget", Data: data(map[string]any{"ID": "held", "Budget": p.Held, "Rows": budgetRows(p.Held, nil), "Title": "What we may cause there",
			"Note": "Its grant to us. This node stops before it exceeds a limit."})},
		{ID: "windows", Template: "windows", Data: data(map[string]any{"Windows": windows, "Problem": trouble})},
		{ID: "actions", Template: "actions", Fixed: true, Data: data(map[string]any{"CSRF": l.csrf, "Has": l.has, "Tiers": spec.C().Tiers, "Limits": spec.C().Limits})},
		l.reports(p),
		l.decisions("peer-log", 60, nil),
	}
}

func logView(l *look) []section {
	peers, _ := l.web.peers(l.ctx) // without them there is less to choose from
	var m runningManifests
	_ = l.web.ask(l.ctx, "manifest.get", nil, &m) // names are a nicety
	return []section{
		{ID: "filter", Template: "logfilter", Fixed: true, Data: map[string]any{"Peers": peers, "Peer": l.query.Get("peer"), "What": l.query.Get("what"), "Names": m.names(),
			"Words": []string{"window-closed", "finding", "sync", "receipt", "grant", "amended", "proposed", "over-budget", "undeliverable"}}},
		l.decisions("log", 300, m.names()),
	}
}

func whyView(l *look) []section {
	id := strings.TrimSpace(l.query.Get("id"))
	data := map[string]any{"ID": id, "Clock": l.clock}
	if id == "" {
		return []section{{ID: "why", Template: "why", Fixed: true, Data: data}}
	}
	plain := strings.TrimPrefix(id, "nostr:")
	if strings.HasPrefix(plain, "note1") || strings.HasPrefix(plain, "nevent1") {
		if e, err := nostr.DecodeNIP19(plain); err == nil {
			plain = e.ID.String()
		}
	}
	var y why
	if data["Problem"] = l.web.ask(l.ctx, "why.event", map[string]string{"id": plain}, &y); data["Problem"] == "" {
		data["Why"], data["Event"] = &y, plain
	}
	return []section{{ID: "why", Template: "why", Fixed: true, Data: data}}
}

// syncRow is the last session of a shard with a peer.
type syncRow struct {
	DID, Name string
	Want      want
	Last      *happened
}

func syncView(l *look) []section {
	peers, problem := l.web.peers(l.ctx)
	var list []happened
	_ = l.web.ask(l.ctx, "peer.history", map[string]string{}, &list) // the table says what it knows
	var m runningManifests
	_ = l.web.ask(l.ctx, "manifest.get", nil, &m) // names are a nicety
	var out []syncRow
	for i := range peers {
		for _, wanted := range peers[i].Wants {
			r := syncRow{DID: peers[i].DID(), Name: m.names()[peers[i].DID()], Want: wanted}
			for j := len(list) - 1; j >= 0 && r.Last == nil; j-- {
				if h := &list[j]; h.Peer == r.DID && strings.HasPrefix(h.What, "sync-") && (h.Detail == "" || strings.Contains(h.Detail, `"`+wanted.Shard+`"`)) {
					r.Last = h
				}
			}
			out = append(out, r)
		}
	}
	return []section{
		{ID: "shards", Template: "shards", Data: map[string]any{"Rows": out, "Problem": problem, "Clock": l.clock}},
		jobsSection(l),
		{ID: "syncform", Template: "syncform", Fixed: true, Data: map[string]any{"CSRF": l.csrf}},
	}
}

func jobsSection(l *look) section {
	return section{ID: "jobs", Template: "jobs", Data: map[string]any{"Jobs": l.web.jobs.list(), "CSRF": l.csrf, "Clock": l.clock}}
}

func nodeView(l *look) []section {
	var id nodeID
	var st nodeStatus
	var m runningManifests
	var known []knownNode
	var blobs struct {
		Blobs, Bytes int64
	}
	problem := l.web.ask(l.ctx, "node.id", nil, &id)
	_ = l.web.ask(l.ctx, "node.status", nil, &st) // what fails below stays away
	_ = l.web.ask(l.ctx, "manifest.get", nil, &m)
	_ = l.web.ask(l.ctx, "peer.known", nil, &known)
	data := map[string]any{"ID": &id, "Status": &st, "Manifest": &m, "Problem": problem, "Clock": l.clock}
	if m.InForce.Spec.Blobs.Enabled && l.web.ask(l.ctx, "blobs.status", nil, &blobs) == "" {
		data["Blobs"] = &blobs
	}
	return []section{
		{ID: "identity", Template: "identity", Data: data},
		{ID: "face", Template: "face", Data: data},
		{ID: "inforce", Template: "inforce", Data: data},
		{ID: "known", Template: "known", Data: map[string]any{"Known": known, "Clock": l.clock}},
		{ID: "addpeer", Template: "addpeer", Fixed: true, Data: map[string]any{"CSRF": l.csrf, "Tiers": spec.C().Tiers}},
		{ID: "who", Template: "who", Fixed: true, Data: map[string]any{"Sessions": l.web.SignIns(), "CSRF": l.csrf, "Clock": l.clock}},
	}
}

// viewNamed finds a view by the name that a live page gives.
func viewNamed(name string) (view, bool) {
	if name == "peer" {
		return views["peers/{did}"], true
	}
	for _, v := range views {
		if v.name == name && v.title != "Peer" {
			return v, true
		}
	}
	return view{}, false
}
