package bridge

import (
	"context"
	"fmt"
	"os"
	"time"

	"fleetmesh.org/fleetmesh/internal/gateway"
)

// Pass is what one pass of one stream at one relay did.
type Pass struct {
	Stream  string         `json:"stream"`
	Relay   string         `json:"relay"`
	Dir     string         `json:"dir"`
	Summary string         `json:"summary"`
	Exit    int            `json:"exit"`
	Failure string         `json:"failure,omitempty"`
	Report  gateway.Report `json:"report"`
}

// Sync closes the gaps of all streams once, one after the other: a backfill, where there is much to bring. step is told of the
// progress; it must not block. The error is that of the first stream that failed; the others were run all the same.
func (b *Bridge) Sync(ctx context.Context, step func(Pass)) ([]Pass, error) {
	b.mu.Lock()
	var list []*lane
	want := map[laneKey]*Stream{}
	for key := range b.lanes {
		want[key] = nil
	}
	for _, key := range sortedLanes(want) {
		list = append(list, b.lanes[key])
	}
	b.mu.Unlock()
	var first error
	out := []Pass{}
	for _, l := range list {
		p, err := l.once(ctx, step)
		out = append(out, p)
		if err != nil && first == nil {
			first = fmt.Errorf("stream %q, %s: %w", l.s.Name, l.r.url, err)
		}
		if ctx.Err() != nil {
			break
		}
	}
	return out, first
}

func (l *lane) once(ctx context.Context, step func(Pass)) (Pass, error) {
	o := l.options()
	tell := func(r gateway.Report) Pass {
		return Pass{Stream: l.s.Name, Relay: l.r.url, Dir: l.tell(l.b.opt.Now()).Dir, Summary: r.Summary(l.s.Dir), Report: r}
	}
	o.Progress = func(r gateway.Report) { step(tell(r)) }
	err := l.mark(ctx)
	var report gateway.Report
	if err == nil {
		report, err = gateway.Sync(ctx, l.r.link, l.b.opt.Local.Store, o)
	}
	if err == nil && l.s.Dir&gateway.Push != 0 {
		before := l.sent.Load()
		var conn *gateway.Conn
		if conn, err = l.r.link.Conn(ctx); err == nil {
			err = l.catchUp(ctx, conn)
		}
		report.Sent += int(l.sent.Load() - before)
	}
	p := tell(report)
	p.Exit = gateway.ExitCode(err)
	if err != nil {
		p.Failure = err.Error()
	}
	return p, err
}

// Watch applies a configuration file whenever it has changed, until ctx ends. A file that cannot be read or is wrong leaves
// everything as it was. told hears of each.
func (b *Bridge) Watch(ctx context.Context, path string, every time.Duration, told func([]Change, error)) {
	last := stamp(path)
	t := time.NewTicker(every)
	defer t.Stop()
	for {
		select {
		case <-t.C:
		case <-ctx.Done():
			return
		}
		now := stamp(path)
		if now == last {
			continue
		}
		last = now
		c, err := LoadConfig(path)
		var changes []Change
		if err == nil {
			changes, err = b.Apply(c)
		}
		if err == nil {
			b.Start(ctx)
		}
		told(changes, err)
	}
}

// stamp changes whenever the file does.
func stamp(path string) string {
	st, err := os.Stat(path)
	if err != nil {
		return "gone"
	}
	return fmt.Sprint(st.ModTime().UnixNano(), st.Size())
}
