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
	"sync/atomic"
	"time"
)

// PluginConfig describes a child process that decides about events.
type PluginConfig struct {
	Command []string // the program and its arguments
	// Watch is a file: when it has changed, the next event is asked of a new child. "" watches the program.
	Watch   string
	Timeout time.Duration // for one answer (default 5 s)
	Pause   time.Duration // between two starts (default 1 s)
	// Open lets in what cannot be asked about; otherwise it is refused with "error", so that it may be offered again.
	Open bool
	// Batch is how many questions may wait for their answers (default 1, as strfry does it). A child that reads line by line
	// notices nothing but that the next line is there already.
	Batch  int
	Stderr io.Writer // nil: what the child complains of is dropped
	Clock  func() time.Time
}

// ShellCommand makes a configuration of a command as it stands in strfry's: a path, which is watched for changes, or, if it
// holds a space, a command for the shell.
func ShellCommand(command string) PluginConfig {
	c := PluginConfig{Command: []string{"/bin/sh", "-c", command}}
	if !strings.Contains(command, " ") {
		c.Watch = command
	}
	return c
}

// Plugin is a Policy that asks a child process, in strfry's write-policy format: a JSON object a line each way.
// A child that does not answer in time, answers for another event or ends is replaced; lines of it that are no JSON are passed over, as
// strfry does. When the program's file has changed, the next event is asked of the new one. Asking starts the child;
// Close ends it.
type Plugin struct {
	cfg PluginConfig

	mu      sync.Mutex
	child   *child
	started time.Time
	closed  bool
	failed  atomic.Int64
	asked   atomic.Int64
	starts  atomic.Int64
}

// child is one running process.
type child struct {
	cmd   *exec.Cmd
	in    io.WriteCloser
	lines chan []byte // of its output; closed at its end
	gone  chan struct{}
	file  os.FileInfo // of what is watched, as it was when the child started
}

// NewPlugin makes the policy. The child starts with the first event.
func NewPlugin(cfg PluginConfig) (*Plugin, error) {
	if len(cfg.Command) == 0 {
		return nil, errors.New("plugin: no command")
	}
	if cfg.Watch == "" {
		cfg.Watch = cfg.Command[0]
	}
	path, err := exec.LookPath(cfg.Watch)
	if err != nil {
		return nil, fmt.Errorf("plugin: %w", err)
	}
	cfg.Watch = path
	if cfg.Timeout <= 0 {
		cfg.Timeout = 5 * time.Second
	}
	if cfg.Pause <= 0 {
		cfg.Pause = time.Second
	}
	cfg.Batch = max(cfg.Batch, 1)
	if cfg.Clock == nil {
		cfg.Clock = time.Now
	}
	return &Plugin{cfg: cfg}, nil
}

// PluginStats counts what became of questions.
type PluginStats struct {
	Asked  int64 `json:"asked"`
	Failed int64 `json:"failed"` // not answered
	Starts int64 `json:"starts"` // of the child
}

// Stats may be called at any time.
func (p *Plugin) Stats() PluginStats {
	return PluginStats{p.asked.Load(), p.failed.Load(), p.starts.Load()}
}

// question is a line to the child, as strfry writes it.
type question struct {
	Type       string          `json:"type"` // always "new"
	Event      json.RawMessage `json:"event"`
	ReceivedAt int64           `json:"receivedAt"`
	SourceType string          `json:"sourceType"` // IP4, IP6, Import, Sync, Stream, Stored
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
	case r.Source == FromMesh, r.Source == FromStream:
		q.SourceType = "Stream"
	case r.Source == FromStore:
		q.SourceType = "Stored"
	case r.Client.Is4():
		q.SourceType = "IP4"
	default:
		q.SourceType = "IP6"
	}
	q.SourceInfo = r.Info
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
	return p.AdmitAll(ctx, []*Request{r})[0]
}

// AdmitAll implements Batched.
func (p *Plugin) AdmitAll(ctx context.Context, list []*Request) []*Rejection {
	out := make([]*Rejection, 0, len(list))
	p.mu.Lock()
	defer p.mu.Unlock()
	for len(list) > 0 {
		n := min(len(list), p.cfg.Batch)
		answers, err := p.ask(ctx, list[:n])
		if err != nil {
			p.stop()
		}
		for _, r := range list[:n] {
			p.asked.Add(1)
			a := answers[r.Event.ID.String()]
			switch {
			case a != nil:
				out = append(out, a.verdict())
			case p.cfg.Open:
				p.failed.Add(1)
				out = append(out, nil)
			default:
				p.failed.Add(1)
				out = append(out, Reject(Error, "the write policy gave no answer"))
			}
		}
		list = list[n:]
	}
	return out
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

// maxNoise is how many lines that are no JSON a child may write instead of an answer.
const maxNoise = 100

// ask sends a line for each event and waits for the answers, in whatever order they come. What came before an error counts.
func (p *Plugin) ask(ctx context.Context, list []*Request) (map[string]*answer, error) {
	if err := p.ready(); err != nil {
		return nil, err
	}
	var text []byte
	open := make(map[string]bool, len(list))
	for _, r := range list {
		line, err := json.Marshal(newQuestion(r))
		if err != nil {
			return nil, fmt.Errorf("write a question: %w", err)
		}
		text = append(append(text, line...), '\n')
		open[r.Event.ID.String()] = true
	}
	c := p.child
	// A child may answer the first question before it has read the last. One that does not read at all would hold the
	// write; closing its input ends that.
	wrote := make(chan error, 1)
	go func() {
		_, err := c.in.Write(text)
		wrote <- err
	}()
	answers := make(map[string]*answer, len(list))
	err := p.collect(ctx, c, open, answers)
	if err != nil {
		_ = c.in.Close()
	}
	if werr := <-wrote; err == nil && werr != nil {
		err = fmt.Errorf("ask: %w", werr)
	}
	return answers, err
}

func (p *Plugin) collect(ctx context.Context, c *child, open map[string]bool, answers map[string]*answer) error {
	patience := time.NewTimer(p.cfg.Timeout)
	defer patience.Stop()
	for noise := 0; len(open) > 0; {
		select {
		case text, ok := <-c.lines:
			if !ok {
				return errors.New("the child ended")
			}
			var a answer
			if json.Unmarshal(text, &a) != nil {
				if noise++; noise > maxNoise {
					return errors.New("the child answers with what is no JSON")
				}
				continue
			}
			switch {
			case !open[a.ID]:
				return errors.New("an answer for another event")
			case a.Action != "accept" && a.Action != "reject" && a.Action != "shadowReject":
				return fmt.Errorf("unknown action %.20q", a.Action)
			}
			delete(open, a.ID)
			answers[a.ID] = &a
			patience.Reset(p.cfg.Timeout)
		case <-patience.C:
			return errors.New("no answer in time")
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// ready makes sure that a child of the present program runs.
func (p *Plugin) ready() error {
	if p.closed {
		return errors.New("the plugin is closed")
	}
	file, err := os.Stat(p.cfg.Watch)
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
	p.starts.Add(1)
	return p.start(file)
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

func (p *Plugin) start(file os.FileInfo) error {
	cmd := exec.Command(p.cfg.Command[0], p.cfg.Command[1:]...)
	ownGroup(cmd)
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
	endGroup(c.cmd)
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
	endGroup(c.cmd)
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
