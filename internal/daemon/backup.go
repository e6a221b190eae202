package daemon

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// maxBackupFile bounds one file of an archive.
const maxBackupFile = 1 << 20

// Backup writes who a node is and how it is set up into one tar archive of mode 0600: its keys, node.yaml and bootstrap.toml. Events are
// backed up by an export. The journal of peerings is left out: an old one would contradict what peers have signed since.
func (d Dir) Backup(path string) (names []string, err error) {
	names, err = d.backupNames()
	if err != nil {
		return nil, err
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, fmt.Errorf("back up: %w", err)
	}
	w := tar.NewWriter(f)
	for _, name := range names {
		if err = d.addToBackup(w, name); err != nil {
			break
		}
	}
	if err = errors.Join(err, w.Close(), f.Sync(), f.Close()); err != nil {
		os.Remove(path)
		return nil, fmt.Errorf("back up: %w", err)
	}
	return names, nil
}

func (d Dir) backupNames() ([]string, error) {
	keys, err := filepath.Glob(filepath.Join(d.Keys(), "*"))
	if err != nil {
		return nil, fmt.Errorf("back up: %w", err)
	}
	var names []string
	for _, path := range keys {
		if name := filepath.Base(path); backupKey(name) {
			names = append(names, "keys/"+name)
		}
	}
	slices.Sort(names)
	return append(names, "node.yaml", "bootstrap.toml"), nil
}

func backupKey(name string) bool {
	return slices.Contains([]string{"node.key", "node.pub", "agent", "agreement.key", "transport.key", "agreement.former", "transport.former"}, name)
}

func (d Dir) addToBackup(w *tar.Writer, name string) error {
	text, err := os.ReadFile(filepath.Join(string(d), filepath.FromSlash(name)))
	if errors.Is(err, fs.ErrNotExist) && name == "bootstrap.toml" {
		return nil
	}
	if err != nil {
		return err
	}
	if err := w.WriteHeader(&tar.Header{Name: name, Mode: 0o600, Size: int64(len(text)), Typeflag: tar.TypeReg}); err != nil {
		return err
	}
	_, err = w.Write(text)
	return err
}

// Restore unpacks a backup into a directory that holds no node and no keys. Nothing is written before the whole archive was read and found
// complete.
func (d Dir) Restore(path string) error {
	files, err := readBackup(path)
	if err != nil {
		return fmt.Errorf("restore %s: %w", path, err)
	}
	if d.Exists() {
		return fmt.Errorf("restore: there is a node in %s already", d)
	}
	if old, _ := filepath.Glob(filepath.Join(d.Keys(), "*.key")); len(old) > 0 {
		return fmt.Errorf("restore: %s holds keys already", d.Keys())
	}
	for _, dir := range []string{string(d), d.Keys(), filepath.Dir(d.Journal())} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return fmt.Errorf("restore: %w", err)
		}
	}
	names := make([]string, 0, len(files))
	for name := range files {
		if name != "node.yaml" {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	for _, name := range append(names, "node.yaml") { // the configuration last: where it stands, the node is whole
		mode := os.FileMode(0o600)
		if !strings.HasPrefix(name, "keys/") {
			mode = 0o644
		}
		if err := writeFile(filepath.Join(string(d), filepath.FromSlash(name)), files[name], mode); err != nil {
			return fmt.Errorf("restore %s: %w", name, err)
		}
	}
	return nil
}

func readBackup(path string) (map[string][]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return parseBackup(f)
}

func parseBackup(in io.Reader) (map[string][]byte, error) {
	files := map[string][]byte{}
	r := tar.NewReader(in)
	for {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
		key, isKey := strings.CutPrefix(h.Name, "keys/")
		if h.Typeflag != tar.TypeReg || (h.Name != "node.yaml" && h.Name != "bootstrap.toml" && !(isKey && backupKey(key))) {
			return nil, fmt.Errorf("it holds %q, which no backup does", h.Name)
		}
		text, err := io.ReadAll(io.LimitReader(r, maxBackupFile+1))
		if err != nil {
			return nil, err
		}
		if len(text) > maxBackupFile || files[h.Name] != nil {
			return nil, fmt.Errorf("%q is too large, or there twice", h.Name)
		}
		files[h.Name] = text
	}
	for _, name := range []string{"node.yaml", "keys/node.key", "keys/agreement.key", "keys/transport.key"} {
		if files[name] == nil && (name != "keys/node.key" || files["keys/agent"] == nil) {
			return nil, fmt.Errorf("it holds no %s", name)
		}
	}
	if _, err := ParseConfig(files["node.yaml"]); err != nil {
		return nil, fmt.Errorf("its node.yaml: %w", err)
	}
	return files, nil
}
