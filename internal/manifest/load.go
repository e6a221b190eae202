package manifest

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
)

// Load reads manifests from files, from the *.yaml, *.yml and *.json files of folders, and from in where a path is "-". It checks them
// (see Check). Wrong manifests come back as Problems, all files' together; another error says which file could not be read.
func Load(paths []string, in io.Reader) (Set, error) {
	var all Set
	var bad Problems
	for _, path := range paths {
		files, err := expand(path)
		if err != nil {
			return nil, err
		}
		for _, file := range files {
			text, err := read(file, in)
			if err != nil {
				return nil, fmt.Errorf("read a manifest: %w", err)
			}
			docs, err := Parse(label(file), text)
			if p, ok := err.(Problems); ok {
				bad = append(bad, p...)
			}
			all = append(all, docs...)
		}
	}
	if len(bad) > 0 {
		return nil, bad
	}
	return all, Check(all)
}

func label(file string) string {
	if file == "-" {
		return "stdin"
	}
	return file
}

func expand(path string) ([]string, error) {
	if path == "-" {
		return []string{path}, nil
	}
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("read a manifest: %w", err)
	}
	if !info.IsDir() {
		return []string{path}, nil
	}
	var files []string
	for _, pattern := range []string{"*.yaml", "*.yml", "*.json"} {
		found, err := filepath.Glob(filepath.Join(path, pattern))
		if err != nil {
			return nil, fmt.Errorf("look through %s: %w", path, err)
		}
		files = append(files, found...)
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("read manifests: %s holds no .yaml, .yml or .json file", path)
	}
	slices.Sort(files)
	return files, nil
}

// read takes no more of a file than Parse would.
func read(file string, in io.Reader) ([]byte, error) {
	if file != "-" {
		f, err := os.Open(file)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		in = f
	}
	return io.ReadAll(io.LimitReader(in, MaxSize+1))
}
