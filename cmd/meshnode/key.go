package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"fleetmesh.org/fleetmesh/internal/daemon"
	"fleetmesh.org/fleetmesh/internal/identity"
	"fleetmesh.org/fleetmesh/nostr"
	"fleetmesh.org/fleetmesh/spec"
)

type keyCmd struct {
	Show      keyShowCmd      `cmd:"" help:"The public keys of the node; secrets are never printed." default:"1"`
	Import    keyImportCmd    `cmd:"" help:"Put another node key in the place of the present one: the node becomes another."`
	Export    keyExportCmd    `cmd:"" help:"Print a secret key."`
	Rotate    keyRotateCmd    `cmd:"" help:"Draw a new agreement or transport key; the old one is honoured for an overlap."`
	Protect   keyProtectCmd   `cmd:"" help:"Encrypt the node key at rest with a passphrase (NIP-49)."`
	Unprotect keyUnprotectCmd `cmd:"" help:"Store the node key plain again."`
	Agent     keyAgentCmd     `cmd:"" help:"Keep a node key in a process of its own, and sign for a node over a socket."`
	Attach    keyAttachCmd    `cmd:"" help:"Use such an agent from now on."`
	Backup    keyBackupCmd    `cmd:"" help:"Write the keys and the configuration into one archive."`
	Restore   keyRestoreCmd   `cmd:"" help:"Make a node directory from such an archive."`
}

func (c *keyCmd) Help() string {
	return `An encrypted node key is opened with the passphrase in ` + daemon.PassphraseEnv + `, or in the file that ` + daemon.PassphraseFileEnv + ` names.`
}

type keyShowCmd struct{}

func (keyShowCmd) Run(a *app) error {
	node, err := a.dir.PublicKey()
	if err != nil {
		return err
	}
	agreement, transport, err := a.dir.PublicKeys(time.Now().Unix())
	if err != nil {
		return err
	}
	backend, err := a.dir.Backend()
	if err != nil {
		return err
	}
	shown := map[string]string{
		"did": identity.FormatDID(node), "npub": nostr.EncodeNpub(node), "node": identity.NodeMultikey(node),
		"agreement": agreement[0], "transport": transport[0], "kept_in": a.dir.Keys(), "backend": backend,
		"former_agreement": strings.Join(agreement[1:], " "), "former_transport": strings.Join(transport[1:], " "),
	}
	return a.print(shown, func(w io.Writer) {
		for _, name := range []string{"did", "npub", "node", "agreement", "former_agreement", "transport", "former_transport", "kept_in", "backend"} {
			if shown[name] != "" {
				fmt.Fprintf(w, "%-16s %s\n", name, shown[name])
			}
		}
	})
}

// readSecret reads a secret key from the first line of a file: nsec, hex, or an ncryptsec that the passphrase opens. It is never an
// argument, where others could read it.
func readSecret(a *app, path string) (k nostr.SecretKey, err error) {
	var in io.Reader = a.in
	if path != "-" {
		f, err := os.Open(path)
		if err != nil {
			return k, fmt.Errorf("read the secret key: %w", err)
		}
		defer f.Close()
		in = f
	}
	line, err := bufio.NewReader(io.LimitReader(in, 4096)).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return k, fmt.Errorf("read the secret key: %w", err)
	}
	line = strings.TrimSpace(line)
	if !strings.HasPrefix(line, "ncryptsec1") {
		if k, err = nostr.ParseSecretKey(line); err != nil {
			return k, &exit{spec.ExitInvalid, "the secret key is neither nsec, nor 64 hex digits, nor ncryptsec"}
		}
		return k, nil
	}
	passphrase, err := daemon.Passphrase()
	if err != nil {
		return k, err
	}
	k, _, err = nostr.DecryptSecretKey(line, passphrase)
	return k, err
}

type keyImportCmd struct {
	File    string `arg:"" optional:"" help:"File whose first line is the key: nsec, hex or ncryptsec; stdin if absent." default:"-"`
	Replace bool   `help:"Yes: replace the key of an existing node. It is kept beside the new one."`
}

func (c *keyImportCmd) Run(a *app) error {
	if a.running() {
		return &exit{spec.ExitUsage, "the node is running: stop it first"}
	}
	if !a.dir.Exists() {
		return &exit{spec.ExitUsage, fmt.Sprintf("there is no node in %s: use meshnode init --import-key", a.dir)}
	}
	if !c.Replace {
		return &exit{spec.ExitUsage, "this node has a key already; with another it is another node, which no peer knows: say --replace"}
	}
	k, err := readSecret(a, c.File)
	if err != nil {
		return err
	}
	passphrase, err := daemon.Passphrase()
	if err != nil {
		return err
	}
	kept, err := a.dir.ImportNodeKey(k, passphrase, time.Now().Unix())
	if err != nil {
		return err
	}
	r := map[string]string{"did": identity.FormatDID(k.PubKey()), "kept": kept}
	return a.print(r, func(w io.Writer) {
		fmt.Fprintf(w, "this node is now %s; the key it had is kept in %s\n", r["did"], kept)
	})
}

type keyExportCmd struct {
	Role   string `help:"Which key." enum:"node,agreement,transport" default:"node"`
	Format string `help:"nsec and ncryptsec are for the node key." enum:"nsec,hex,ncryptsec" default:"hex"`
	Yes    bool   `help:"Yes: print a secret. Whoever sees it is this node."`
}

func (c *keyExportCmd) Run(a *app) error {
	if !c.Yes {
		return &exit{spec.ExitUsage, "this prints a secret, and whoever sees it is this node: say --yes"}
	}
	if c.Format != "hex" && c.Role != "node" {
		return &exit{spec.ExitUsage, fmt.Sprintf("the %s key has the format hex alone", c.Role)}
	}
	k, err := a.dir.LoadKeys()
	if err != nil {
		return err
	}
	secret := map[string][32]byte{"node": k.Node, "agreement": k.Agreement, "transport": k.Transport}[c.Role]
	text := fmt.Sprintf("%x", secret)
	switch c.Format {
	case "nsec":
		text = nostr.EncodeNsec(k.Node)
	case "ncryptsec":
		passphrase, err := daemon.Passphrase()
		if err != nil {
			return err
		}
		if passphrase == "" {
			return &exit{spec.ExitUsage, "ncryptsec needs a passphrase: set " + daemon.PassphraseEnv + " or " + daemon.PassphraseFileEnv}
		}
		if text, err = nostr.EncryptSecretKey(k.Node, passphrase, 16, nostr.KeySecurityUnknown); err != nil {
			return err
		}
	}
	return a.print(map[string]string{"role": c.Role, "format": c.Format, "secret": text}, func(w io.Writer) { fmt.Fprintln(w, text) })
}

type keyRotateCmd struct {
	Role    string        `arg:"" help:"agreement or transport." enum:"agreement,transport"`
	Overlap time.Duration `help:"How long the old key is honoured." default:"168h"`
}

func (c *keyRotateCmd) Run(a *app) error {
	now := time.Now()
	if err := a.dir.Rotate(c.Role, int64(c.Overlap/time.Second), now.Unix()); err != nil {
		return err
	}
	running := a.running()
	if running {
		if err := a.call("keys.reload", nil, nil, nil); err != nil {
			return fmt.Errorf("the key is rotated, and the running node has not taken it up: %w", err)
		}
	}
	agreement, transport, err := a.dir.PublicKeys(now.Unix())
	if err != nil {
		return err
	}
	list := map[string][]string{"agreement": agreement, "transport": transport}[c.Role]
	r := map[string]any{"role": c.Role, "key": list[0], "former": list[1:], "honoured_until": now.Add(c.Overlap).Unix(), "published": running}
	return a.print(r, func(w io.Writer) {
		fmt.Fprintf(w, "the %s key is %s; the one before is honoured until %s\n", c.Role, list[0], now.Add(c.Overlap).Format(time.DateTime))
		if !running {
			fmt.Fprintln(w, "the node is stopped: peers learn of it when it runs again")
		}
	})
}

type keyProtectCmd struct {
	PassphraseFile string `help:"File whose first line is the passphrase, instead of the environment." placeholder:"FILE"`
}

func (c *keyProtectCmd) Run(a *app) error {
	passphrase, err := daemon.Passphrase()
	if c.PassphraseFile != "" {
		passphrase, err = daemon.ReadPassphrase(c.PassphraseFile)
	}
	if err != nil {
		return err
	}
	if passphrase == "" {
		return &exit{spec.ExitUsage, "no passphrase: give --passphrase-file, or set " + daemon.PassphraseEnv}
	}
	return c.apply(a, passphrase)
}

func (c *keyProtectCmd) apply(a *app, passphrase string) error {
	if err := a.dir.Protect(passphrase); err != nil {
		return err
	}
	backend, err := a.dir.Backend()
	if err != nil {
		return err
	}
	return a.print(map[string]string{"backend": backend}, func(w io.Writer) { fmt.Fprintf(w, "the node key is kept in a %s\n", backend) })
}

type keyUnprotectCmd struct{}

func (keyUnprotectCmd) Run(a *app) error { return new(keyProtectCmd).apply(a, "") }

type keyBackupCmd struct {
	File string `arg:"" help:"The archive; it must not exist yet. It holds secrets."`
}

func (c *keyBackupCmd) Run(a *app) error {
	names, err := a.dir.Backup(c.File)
	if err != nil {
		return err
	}
	return a.print(map[string]any{"file": c.File, "holds": names}, func(w io.Writer) {
		fmt.Fprintf(w, "%s holds %s. Events are backed up with: meshnode export\n", c.File, strings.Join(names, ", "))
	})
}

type keyRestoreCmd struct {
	File string `arg:"" help:"The archive." type:"existingfile"`
}

func (c *keyRestoreCmd) Run(a *app) error {
	if err := a.dir.Restore(c.File); err != nil {
		return err
	}
	return a.print(map[string]string{"dir": string(a.dir)}, func(w io.Writer) {
		fmt.Fprintf(w, "restored into %s; see who it is with: meshnode id --dir %s\n", a.dir, a.dir)
	})
}
