package bridge

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"fleetmesh.org/fleetmesh/internal/gateway"
)

// routed is a configuration as an operator of strfry's router may have it.
const routed = `
# comment
connectionTimeout = 7
verbose = false // another

streams {
    ## from friends
    friends {
        dir = "down"
        pluginDown = "/home/user/spam-filter.js"
        urls = [
            "wss://nos.lol"
            "wss://relayable.org/"
            "wss://nos.lol"
        ]
    }

    cluster {
        dir = "both", urls = [ "wss://eu.example.com", "wss://na.example.com" ]
    }

    /* profiles
       and lists */
    "directory" : {
        dir: 'up'
        filter = { "kinds": [0, 3], since = 0x10, "#t": ["a" "b"] }
        pluginUp = """node filter.js --strict"""
        urls = [ "ws://internal-directory.example.com" ]
        eventsPerSecond = 2.5
        auth = true
    }
}
`

func TestRouterConfig(t *testing.T) {
	c, err := ParseConfig(routed)
	if err != nil {
		t.Fatal(err)
	}
	if c.ConnectionTimeout != 7*time.Second || c.Verbose || len(c.Streams) != 3 {
		t.Fatalf("%+v", c)
	}
	f, b, d := c.Streams[0], c.Streams[1], c.Streams[2]
	if f.Name != "friends" || f.Dir != gateway.Pull || strings.Join(f.URLs, " ") != "wss://nos.lol/ wss://relayable.org/" || f.PluginDown != "/home/user/spam-filter.js" {
		t.Errorf("%+v", f)
	}
	if b.Dir != gateway.Both || len(b.URLs) != 2 || b.filterText() != "{}" {
		t.Errorf("%+v", b)
	}
	if d.Dir != gateway.Push || d.filterText() != `{"kinds":[0,3],"#t":["a","b"],"since":16}` || d.PluginUp != "node filter.js --strict" || d.EventsPerSecond != 2.5 || !d.Auth {
		t.Errorf("%+v %s", d, d.filterText())
	}
	// As programs write it: commas after the last, and lists without a member.
	if c, err = ParseConfig("connectionTimeout = 20\n\nstreams {\n\n  a {\n  dir = \"both\"\n\n  filter = {\"kinds\":[1],\"limit\":5}\n\n  urls = [\n  \"wss://relay.example\",\n  ]\n  reconnectDelaySeconds = 30\n }\n b { dir = \"up\"\n urls = []\n }\n}\n"); err != nil || len(c.Streams) != 2 || len(c.Streams[1].URLs) != 0 || c.Streams[0].Filter.Limit != nil {
		t.Errorf("%+v %v", c, err)
	}
	if c, err = ParseConfig(`{"streams": {"a": {"dir": "up", "urls": ["ws://a.example"]}}}`); err != nil || len(c.Streams) != 1 || !c.Verbose {
		t.Errorf("JSON is the format too: %+v %v", c, err)
	}
}

func TestRouterConfigRefuses(t *testing.T) {
	stream := func(s string) string {
		return "streams {\n a {\n  dir = \"up\"\n  urls = [\"ws://a\"]\n  " + s + "\n }\n}"
	}
	for text, want := range map[string]string{
		"":                                       "streams is missing",
		"streams = 3":                            "line 1: streams is a number",
		"streams { a = 1 }":                      `stream "a" is a number`,
		"\nstreams { a { dir = \"up\" } }":       `line 2: stream "a" has no urls`,
		"streams { a { urls = [\"ws://a\"] } }":  "has no dir",
		"streams { a {\n dir = \"sideways\" } }": `line 2: dir of stream "a" is sideways`,
		"streams { a { dir = up } }":             "strings stand in quotes",
		"streams { a { dir = \"up\", urls = [\"ftp://a\"] } }": `has "ftp://a"`,
		"streams { a { dir = \"up\", urls = \"ws://a\" } }":    "want a list",
		"streams { } streams { }":                              "stands twice",
		"streams { ":                                           "has no end",
		"/* ":                                                  "no end",
		"verbose = yes":                                        "want a value",
		"connectionTimeout = 0":                                "want 1 to 3600",
		"conectionTimeout = 3":                                 `unknown key "conectionTimeout"`,
		"streams.a = 3":                                        "paths and additions",
		stream("filtre = {}"):                                  `line 5: unknown key "filtre"`,
		stream("filter = { kinds = [\"x\"] }"):                 "line 5: filter",
		stream("filter = { search = \"x\" }"):                  "search",
		stream("pluginUp = 3"):                                 "want a string",
		stream("pluginUp = \"x"):                               "no end in its line",
		stream("eventsPerSecond = 1e"):                         "not a number",
		"streams {} }":                                         "found",
		"a = " + strings.Repeat("[", 100):                      "deeper",
		"\xff":                                                 "UTF-8",
	} {
		_, err := ParseConfig(text)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}

func FuzzRouterConfig(f *testing.F) {
	f.Add(routed)
	f.Add(`{"streams":{}}`)
	f.Add("a = '\\u00e4\\ud83d\\ude00' b = '''\nx''' c = -1.5e3")
	f.Fuzz(func(t *testing.T, text string) {
		o, err := parseTao(text)
		if err != nil {
			return
		}
		raw, err := json.Marshal((&value{data: o}).plain())
		if err != nil {
			t.Fatalf("%q: %v", text, err)
		}
		if _, err := parseTao(string(raw)); err != nil {
			t.Errorf("%s: %v", raw, err) // JSON is the format too
		}
	})
}
