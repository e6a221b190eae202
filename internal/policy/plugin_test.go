package policy

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"fleetmesh.org/fleetmesh/nostr"
)

// TestMain lets the test binary play the plugin: it does what the content of the event says.
func TestMain(m *testing.M) {
	if os.Getenv("FLEETMESH_TEST_PLUGIN") == "" {
		os.Exit(m.Run())
	}
	in := bufio.NewScanner(os.Stdin)
	in.Buffer(nil, 1<<20)
	later := ""
	for in.Scan() {
		var q struct {
			Type, SourceType, SourceInfo, Authed string
			ReceivedAt                           int64
			Event                                struct{ ID, Content string }
		}
		if err := json.Unmarshal(in.Bytes(), &q); err != nil || q.Type != "new" {
			os.Exit(3)
		}
		id := q.Event.ID
		switch q.Event.Content {
		case "die":
			os.Exit(1)
		case "hang":
			select {}
		case "nonsense":
			fmt.Println("{")
			fmt.Println("loading the list of bad words")
			fmt.Printf(`{"id":"%s","action":"accept"}`+"\n", id)
		case "later":
			later = id
			continue
		case "other":
			fmt.Printf(`{"id":"%064d","action":"accept"}`+"\n", 0)
		case "shadow":
			fmt.Printf(`{"id":"%s","action":"shadowReject"}`+"\n", id)
		case "echo":
			msg := fmt.Sprintf("pow: %s %s %s %d", q.SourceType, q.SourceInfo, q.Authed, q.ReceivedAt)
			fmt.Printf(`{"id":"%s","action":"reject","msg":%q}`+"\n", id, msg)
		case "plain":
			fmt.Printf(`{"id":"%s","action":"reject","msg":"go away: now"}`+"\n", id)
		case "bare":
			fmt.Printf(`{"id":"%s","action":"reject"}`+"\n", id)
		case "perhaps":
			fmt.Printf(`{"id":"%s","action":"perhaps"}`+"\n", id)
		default:
			fmt.Printf(`{"id":"%s","action":"accept","msg":""}`+"\n", id)
		}
		if later != "" {
			fmt.Printf(`{"id":"%s","action":"reject","msg":"blocked: late"}`+"\n", later)
			later = ""
		}
	}
}

func request(content string) *Request {
	e := &nostr.Event{Kind: 1, Tags: []nostr.Tag{}, Content: content}
	e.ID = e.ComputeID()
	return &Request{Event: e, Now: 77, Client: netip.MustParseAddr("192.0.2.1"), Keys: []nostr.PubKey{alice}}
}

func newTestPlugin(t *testing.T, now func() time.Time) *Plugin {
	t.Helper()
	t.Setenv("FLEETMESH_TEST_PLUGIN", "1")
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	p, err := NewPlugin(PluginConfig{Command: []string{exe}, Clock: now, Timeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Close() })
	return p
}

func TestPlugin(t *testing.T) {
	now := time.Unix(1000, 0)
	p := newTestPlugin(t, func() time.Time { return now })
	for _, tc := range []struct{ content, want string }{
		{"hello", ""},
		{"echo", "pow: IP4 192.0.2.1 " + alice.String() + " 77"},
		{"plain", "blocked: go away: now"},
		{"bare", "blocked: refused by the write policy"},
		{"die", "error: the write policy gave no answer"},
		{"hello", "error: the write policy gave no answer"}, // not started again at once
		{"wait", ""},
		{"nonsense", ""},
		{"other", "error: the write policy gave no answer"},
		{"wait", ""},
		{"perhaps", "error: the write policy gave no answer"},
		{"wait", ""},
	} {
		if tc.content == "wait" {
			now = now.Add(2 * time.Second)
		}
		got := ""
		if no := p.Admit(t.Context(), request(tc.content)); no != nil {
			got = no.String()
		}
		if got != tc.want {
			t.Errorf("%s: %q, want %q", tc.content, got, tc.want)
		}
	}
	if no := p.Admit(t.Context(), request("shadow")); no == nil || !no.Shadow {
		t.Errorf("shadowReject: %+v", no)
	}
	if err := p.Close(); err != nil {
		t.Error(err)
	}
	if no := p.Admit(t.Context(), request("hello")); no == nil || no.Prefix != Error {
		t.Errorf("after Close: %v", no)
	}
}

func TestPluginThatHangs(t *testing.T) {
	p := newTestPlugin(t, nil)
	p.cfg.Timeout, p.cfg.Pause = time.Millisecond, time.Nanosecond
	if no := p.Admit(t.Context(), request("hang")); no == nil || no.Prefix != Error {
		t.Errorf("hang: %v", no)
	}
	p.cfg.Timeout = time.Minute
	if no := p.Admit(t.Context(), request("hello")); no != nil {
		t.Errorf("after a hang: %v", no)
	}
}

// TestPluginInBatches asks several questions before the first answer, and gets the answers in another order.
func TestPluginInBatches(t *testing.T) {
	p := newTestPlugin(t, nil)
	p.cfg.Batch = 9
	var list []*Request
	for i := range 20 {
		r := request([]string{"later", "plain", "hello"}[i%3])
		r.Event.CreatedAt = int64(i)
		r.Event.ID = r.Event.ComputeID()
		list = append(list, r)
	}
	for i, no := range p.AdmitAll(t.Context(), list) {
		got, want := "", []string{"blocked: late", "blocked: go away: now", ""}[i%3]
		if no != nil {
			got = no.String()
		}
		if got != want {
			t.Errorf("event %d: %q, want %q", i, got, want)
		}
	}
	if st := p.Stats(); st.Asked != 20 || st.Failed != 0 || st.Starts != 1 {
		t.Errorf("%+v", st)
	}
}

// TestPluginThatFailsOpen lets in what cannot be asked about, and keeps what was answered before the end.
func TestPluginThatFailsOpen(t *testing.T) {
	p := newTestPlugin(t, nil)
	p.cfg.Batch, p.cfg.Open = 4, true
	list := []*Request{request("plain"), request("die"), request("hello")}
	got := p.AdmitAll(t.Context(), list)
	if got[0] == nil || got[1] != nil || got[2] != nil {
		t.Errorf("%v", got)
	}
	if st := p.Stats(); st.Failed != 2 {
		t.Errorf("%+v", st)
	}
}

// TestShellCommand runs what a shell would, and ends all of it.
func TestShellCommand(t *testing.T) {
	if _, err := exec.LookPath("sh"); err != nil {
		t.Skip("there is no sh here")
	}
	dir := t.TempDir()
	script := filepath.Join(dir, "policy") // without a first line that names an interpreter
	if err := os.WriteFile(script, []byte(`while read -r l; do id=${l#*\"id\":\"}; echo "{\"id\":\"${id%%\"*}\",\"action\":\"reject\",\"msg\":\"$WORD: x\"}"; done`), 0o700); err != nil {
		t.Fatal(err)
	}
	for command, want := range map[string]string{script: "", "WORD=pow sh " + script: "pow: x"} {
		cfg := ShellCommand(command)
		cfg.Timeout = time.Minute
		p, err := NewPlugin(cfg)
		if err != nil {
			t.Fatal(err)
		}
		no := p.Admit(t.Context(), request("hello"))
		if no == nil || want != "" && no.String() != want {
			t.Errorf("%s: %v", command, no)
		}
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestPluginThatIsNot(t *testing.T) {
	for _, cmd := range [][]string{nil, {"/does/not/exist"}} {
		if _, err := NewPlugin(PluginConfig{Command: cmd}); err == nil {
			t.Errorf("%q: no error", cmd)
		}
	}
}

// TestExample runs the example that ships, and then a newer version of it.
func TestExample(t *testing.T) {
	if _, err := exec.LookPath("sh"); err != nil {
		t.Skip("there is no sh here")
	}
	text, err := os.ReadFile(filepath.Join("..", "..", "examples", "write-policy.sh"))
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "policy.sh")
	write := func(text string) {
		if err := os.WriteFile(path+".new", []byte(text), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(path+".new", path); err != nil {
			t.Fatal(err)
		}
	}
	write(string(text))
	p, err := NewPlugin(PluginConfig{Command: []string{path}, Timeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = p.Close() }()
	ask := func(content string) string {
		if no := p.Admit(t.Context(), request(content)); no != nil {
			return no.String()
		}
		return ""
	}
	if got := ask("hello"); got != "" {
		t.Errorf("hello: %q", got)
	}
	if got := ask("a casino"); got != "blocked: no casinos" {
		t.Errorf("casino: %q", got)
	}
	write(strings.ReplaceAll(string(text), "casino", "poker"))
	if a, b := ask("a casino"), ask("a poker"); a != "" || b != "blocked: no pokers" {
		t.Errorf("the new version: %q %q", a, b)
	}
}

func FuzzAnswer(f *testing.F) {
	f.Add(`{"id":"x","action":"reject","msg":"blocked: no"}`)
	f.Add(`{"id":"x","action":"reject","msg":": "}`)
	f.Fuzz(func(t *testing.T, line string) {
		var a answer
		if json.Unmarshal([]byte(line), &a) != nil {
			return
		}
		if no := a.verdict(); no != nil && (no.Prefix == "" || no.Text == "") {
			t.Errorf("%q: %+v", line, no)
		}
	})
}
