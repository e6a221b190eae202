package policy

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"
)

// TestForeignPlugins runs strfry plugins that are not ours, unmodified. FLEETMESH_STRFRY_PLUGINS holds their commands, one a line, as they would stand in
// strfry's configuration. Every event must get an answer, asked one at a time and in batches.
func TestForeignPlugins(t *testing.T) {
	commands := os.Getenv("FLEETMESH_STRFRY_PLUGINS")
	if commands == "" {
		t.Skip("FLEETMESH_STRFRY_PLUGINS names none")
	}
	for command := range strings.Lines(commands) {
		if command = strings.TrimSpace(command); command == "" {
			continue
		}
		for _, batch := range []int{1, 16} {
			cfg := ShellCommand(command)
			cfg.Timeout, cfg.Batch, cfg.Stderr = time.Minute, batch, os.Stderr
			p, err := NewPlugin(cfg)
			if err != nil {
				t.Error(err)
				continue
			}
			var list []*Request
			for i := range 40 {
				r := request([]string{"good morning", "free, click, subscribe, promo", "http://a http://b http://c http://d http://e"}[i%3] + fmt.Sprint(" ", i))
				r.Source = []Source{FromClient, FromImport, FromSync, FromStream, FromStore}[i%5]
				list = append(list, r)
			}
			said := map[string]int{}
			for _, no := range p.AdmitAll(t.Context(), list) {
				if no == nil {
					said["accept"]++
				} else {
					said[no.String()]++
				}
			}
			t.Logf("%s, batches of %d: %v", command, batch, said)
			if st := p.Stats(); st.Failed != 0 || st.Starts != 1 {
				t.Errorf("%s: %+v", command, st)
			}
			if err := p.Close(); err != nil {
				t.Error(err)
			}
		}
	}
}
