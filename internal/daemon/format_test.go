package daemon

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
)

func TestMigrateInPlace(t *testing.T) {
	if len(migrations) != DirFormat-1 {
		t.Fatalf("%d migrations lead to version %d", len(migrations), DirFormat)
	}
	for i, m := range migrations {
		if m.From != i+1 {
			t.Errorf("step %d starts from version %d", i, m.From)
		}
	}
	d := Dir(filepath.Join(t.TempDir(), "n"))
	if err := d.Init(DefaultConfig("127.0.0.1:0")); err != nil {
		t.Fatal(err)
	}
	if v, err := d.Format(); err != nil || v != DirFormat {
		t.Errorf("a new directory is of version %d, %v", v, err)
	}
	if steps, err := d.Migrations(); err != nil || len(steps) != 0 {
		t.Errorf("a new directory needs %v, %v", steps, err)
	}
	// As version 1 left it.
	if err := errors.Join(os.Remove(d.formatFile()), os.Chmod(d.Keys(), 0o755)); err != nil {
		t.Fatal(err)
	}
	steps, err := d.Migrations()
	if err != nil || len(steps) != 1 {
		t.Fatalf("%v, %v", steps, err)
	}
	if fi, err := os.Stat(d.Keys()); err != nil || fi.Mode().Perm() != 0o755 {
		t.Errorf("the dry run changed the directory: %v", err)
	}
	for range 2 { // twice is as good as once
		if _, err := d.Migrate(); err != nil {
			t.Fatal(err)
		}
		if fi, err := os.Stat(d.Keys()); err != nil || fi.Mode().Perm() != 0o700 {
			t.Errorf("keys: %v, %v", fi.Mode(), err)
		}
		if v, _ := d.Format(); v != DirFormat {
			t.Errorf("after the migration it is of version %d", v)
		}
	}
}

func TestANewerDirectoryIsLeftAlone(t *testing.T) {
	d := Dir(filepath.Join(t.TempDir(), "n"))
	if err := d.Init(DefaultConfig("127.0.0.1:0")); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		text  string
		newer bool
	}{{"99\n", true}, {"x\n", false}, {"0\n", false}} {
		if err := os.WriteFile(d.formatFile(), []byte(c.text), 0o644); err != nil {
			t.Fatal(err)
		}
		_, err := d.Migrate()
		if err == nil || errors.Is(err, ErrNewerDir) != c.newer {
			t.Errorf("format %q: %v", c.text, err)
		}
		if err := Run(context.Background(), Options{Dir: d, Log: quiet()}); err == nil || errors.Is(err, ErrNewerDir) != c.newer {
			t.Errorf("run with format %q: %v", c.text, err)
		}
		if _, err := OpenOffline(d); err == nil {
			t.Errorf("opened with format %q", c.text)
		}
		if text, err := os.ReadFile(d.formatFile()); err != nil || string(text) != c.text {
			t.Errorf("the file holds %q now, %v", text, err)
		}
		if _, err := os.Stat(d.Store(DefaultConfig(""))); err == nil {
			t.Error("a store was made")
		}
	}
}
