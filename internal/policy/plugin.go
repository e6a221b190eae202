package policy

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"

	"fleetmesh.org/fleetmesh/nostr"
)

// PluginConfig describes a child process that decides about events.
type PluginConfig struct {
	Command []string      // the program and its arguments
	Timeout time.Duration // for one answer (default 5 s)
	Pause   time.Duration // between two starts (default 1 s)
	Stderr  io.Writer     // nil: what the child complains of is dropped
	Clock   func() time.Time
}

// Plugin is a Policy that asks a child process, in strfry's write-policy format: a JSON object a line each way.
// One event is asked at a time. A child that does not answer, answers nonsense or ends is replaced, and
// the event is refused with "error": what cannot be asked about is not let in. When the program's file has
// changed, the next event is asked of the new one. Asking starts the child; Close ends it.
type Plugin struct {
	cfg PluginConfig

	mu      sync.Mutex
	child   *child
	started time.Time
	closed  bool
}

// child is one running process.
type child struct {
	cmd   *exec.Cmd
	in    io.WriteCloser
	lines chan []byte // of its output; closed at its end
	gone  chan struct{}
	file  os.FileInfo // of the program, as it was started
}

// NewPlugin makes the policy. The child starts with the first event.
func NewPlugin(cfg PluginConfig) (*Plugin, error) {
	if len(cfg.Command) == 0 {
		return nil, errors.New("plugin: no command")
	}
	if _, err := exec.LookPath(cfg.Command[0]); err != nil {
		return nil, fmt.Errorf("plugin: %w", err)
	}
	if cfg.Timeout <= 0 {
		cfg.Timeout = 5 * time.Second
	}
	if cfg.Pause <= 0 {
		cfg.Pause = time.Second
	}
	if cfg.Clock == nil {
		cfg.Clock = time.Now
	}
	return &Plugin{cfg: cfg}, nil
}

// question is a line to the child, as strfry writes it.
type question struct {
	Type       string          `json:"type"` // always "new"
	Event      json.RawMessage `json:"event"`
	ReceivedAt int64           `json:"receivedAt"`
	SourceType string          `json:"sourceType"` // IP4, IP6, Import, Sync, Stream
	SourceInfo string          `json:"sourceInfo"`
	Authed     string          `json:"authed,omitempty"` // the first key, hex
}

// answer is a line of the child.
type answer struct {
	ID     string `json:"id"`
	Action string `json:"action"` // accept, reject, shadowReject
	Msg    string `json:"msg"`
}

func newQuestion(r *Request) question {
	q := question{Type: "new", Event: r.Event.JSON(), ReceivedAt: r.Now}
	switch {
	case r.Source == FromImport:
		q.SourceType = "Import"
	case r.Source == FromSync:
		q.SourceType = "Sync"
	case r.Source == FromMesh:
		q.SourceType = "Stream"
	case r.Client.Is4():
		q.SourceType = "IP4"
	default:
		q.SourceType = "IP6"
	}
	if r.Client.IsValid() {
		q.SourceInfo = r.Client.String()
	}
	if len(r.Keys) > 0 {
		q.Authed = r.Keys[0].String()
	}
	return q
}

// Admit implements Policy.
func (p *Plugin) Admit(ctx context.Context, r *Request) *Rejection {
	line, err := json.Marshal(newQuestion(r))
	if err != nil {
		return Reject(Error, "the write policy could not be asked")
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	a, err := p.ask(ctx, append(line, '\n'), r.Event.ID)
	if err != nil {
		p.stop()
		return Reject(Error, "the write policy gave no answer")
	}
	return a.verdict()
}

func (a *answer) verdict() *Rejection {
	switch a.Action {
	case "accept":
		return nil
	case "shadowReject":
		return &Rejection{Prefix: Blocked, Text: "shadow", Shadow: true}
	}
	prefix, text, ok := strings.Cut(a.Msg, ":")
	if text = strings.TrimSpace(text); ok && !strings.ContainsAny(prefix, " \t") && prefix != "" && text != "" {
		return &Rejection{Prefix: Prefix(prefix), Text: text}
	}
	if a.Msg == "" {
		return Reject(Blocked, "refused by the write policy")
	}
	return Reject(Blocked, "%s", a.Msg)
}

// ask sends a line and waits for the answer that names the event.
func (p *Plugin) ask(ctx context.Context, line []byte, id nostr.ID) (*answer, error) {
	if err := p.ready(); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, p.cfg.Timeout)
	defer cancel()
	c := p.child
	// A child that does not read would hold the write; ending it ends the write.
	unblock := context.AfterFunc(ctx, func() { _ = c.in.Close() })
	defer unblock()
	if _, err := c.in.Write(line); err != nil {
		return nil, fmt.Errorf("ask: %w", err)
	}
	for {
		select {
		case text, ok := <-c.lines:
			if !ok {
				return nil, errors.New("the child ended")
			}
			var a answer
			if err := json.Unmarshal(text, &a); err != nil {
				return nil, fmt.Errorf("answer: %w", err)
			}
			switch {
			case a.ID != id.String():
				return nil, errors.New("an answer for another event")
			case a.Action != "accept" && a.Action != "reject" && a.Action != "shadowReject":
				return nil, fmt.Errorf("unknown action %.20q", a.Action)
			}
			return &a, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// ready makes sure that a child of the present program runs.
func (p *Plugin) ready() error {
	if p.closed {
		return errors.New("the plugin is closed")
	}
	path, err := exec.LookPath(p.cfg.Command[0])
	if err != nil {
		return err
	}
	file, err := os.Stat(path)
	if err != nil {
		return err
	}
	if p.child != nil && p.child.current(file) {
		return nil
	}
	fresh := p.child == nil
	p.stop()
	now := p.cfg.Clock()
	if fresh && !p.started.IsZero() && now.Sub(p.started) < p.cfg.Pause {
		return errors.New("the child failed a moment ago")
	}
	p.started = now
	return p.start(path, file)
}

// current says whether the child runs, and runs the program as it now is.
func (c *child) current(file os.FileInfo) bool {
	select {
	case <-c.gone:
		return false
	default:
		return c.file.ModTime().Equal(file.ModTime()) && c.file.Size() == file.Size()
	}
}

func (p *Plugin) start(path string, file os.FileInfo) error {
	cmd := exec.Command(path, p.cfg.Command[1:]...)
	cmd.Stderr = p.cfg.Stderr
	cmd.WaitDelay = time.Second
	in, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	c := &child{cmd: cmd, in: in, lines: make(chan []byte), gone: make(chan struct{}), file: file}
	p.child = c
	go c.read(out)
	return nil
}

// read hands the lines of the child on, until its output ends.
func (c *child) read(out io.Reader) {
	defer close(c.gone)
	defer close(c.lines)
	scan := bufio.NewScanner(out)
	scan.Buffer(nil, 1<<20)
	for scan.Scan() {
		c.lines <- append([]byte(nil), scan.Bytes()...)
	}
	_ = c.cmd.Process.Kill()
	_ = c.cmd.Wait()
}

// stop ends the child and waits for its end. The caller holds mu.
func (p *Plugin) stop() {
	c := p.child
	if c == nil {
		return
	}
	p.child = nil
	_ = c.in.Close()
	_ = c.cmd.Process.Kill()
	for range c.lines { // until the reader has seen the end
	}
	<-c.gone
}

// Close ends the child. Events that are asked about afterwards are refused.
func (p *Plugin) Close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	p.stop()
	return nil
}
