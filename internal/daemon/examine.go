package daemon

import (
	"fmt"
	"os"
	"strings"
	"time"

	"fleetmesh.org/fleetmesh/internal/host"
)

// CheckKeys says what is wrong with the keys of a directory, nil if the node can start with them. An encrypted node key is not opened.
func (d Dir) CheckKeys() error {
	for _, role := range []string{"agreement", "transport"} {
		if _, err := d.readKey(role); err != nil {
			return fmt.Errorf("%w: restore it with meshnode key restore", err)
		}
	}
	if socket, err := d.agentSocket(); err != nil || socket != "" {
		if err == nil {
			_, err = os.Stat(socket)
		}
		if err != nil {
			return fmt.Errorf("the agent that keeps the node key does not answer: %w: start meshnode key agent", err)
		}
		return nil
	}
	text, err := d.secretText(d.keyFile("node"), "node key")
	if err != nil {
		return fmt.Errorf("%w: restore it with meshnode key restore", err)
	}
	if strings.HasPrefix(text, encryptedPrefix) {
		pass, err := Passphrase()
		if err == nil && pass == "" {
			err = fmt.Errorf("the node key is encrypted: set %s or %s where the node is started", PassphraseEnv, PassphraseFileEnv)
		}
		return err
	}
	if _, err := parseHexKey(text); err != nil {
		return fmt.Errorf("read the node key: %s: %w: restore it with meshnode key restore", d.keyFile("node"), err)
	}
	return nil
}

// CheckJournal reads the journal of peerings and accounting and changes nothing.
func (d Dir) CheckJournal() error { return host.CheckJournal(d.Journal()) }

// Ahead says by how many seconds the newest file that the node wrote lies in the future of now, 0 if none does. c may be nil.
func (d Dir) Ahead(c *Config, now time.Time) int64 {
	if c == nil {
		c = DefaultConfig("")
	}
	return newestFile(d, c, now)
}
