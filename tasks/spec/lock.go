package spec

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"regexp"

	"github.com/google/renameio/v2"
	"go.yaml.in/yaml/v4"
)

const lockHeader = `# Written by hk: what the cluster downloads, by hash. Keep it beside the config,
# in version control too; removing it resolves everything anew.
`

// LockPath is where the lock file of a config is: NAME.lock.yaml beside it.
func LockPath(config, name string) string {
	return filepath.Join(filepath.Dir(config), name+".lock.yaml")
}

// LoadLock reads a lock file; an error wrapping fs.ErrNotExist if there is none.
func LoadLock(path string) (*LockFile, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("reading the lock file: %w", err)
	}
	return ParseLock(data, path)
}

// ParseLock reads a lock file's bytes.
func ParseLock(data []byte, filename string) (*LockFile, error) {
	bad := func(msg string) error {
		return &ConfigError{File: filename, Msg: msg, Hint: "remove the file, and the next build resolves it anew"}
	}
	l := &LockFile{}
	if err := yaml.Load(bytes.TrimSpace(data), l, yaml.WithKnownFields(), yaml.WithUniqueKeys()); err != nil {
		return nil, bad("is no lock file: " + err.Error())
	}
	if _, err := parseVersion(l.Kubernetes); err != nil {
		return nil, bad(fmt.Sprintf("kubernetes: %v", err))
	}
	for name, a := range l.Artifacts {
		if !sha256RE.MatchString(a.SHA256) || a.Path == "" {
			return nil, bad("artifact " + name + " has no path or no hash")
		}
		for m, h := range a.Files {
			if !sha256RE.MatchString(h) {
				return nil, bad("artifact " + name + " has no hash of " + m)
			}
		}
	}
	return l, nil
}

var sha256RE = regexp.MustCompile(`^[0-9a-f]{64}$`)

// MarshalLock writes a lock file's bytes; equal lock files give equal bytes.
func MarshalLock(l *LockFile) ([]byte, error) {
	data, err := yaml.Dump(l, yaml.WithIndent(2))
	if err != nil {
		return nil, fmt.Errorf("writing the lock file: %w", err)
	}
	return append([]byte(lockHeader), data...), nil
}

// SaveLock writes a lock file beside its place and renames it into it.
func SaveLock(path string, l *LockFile) error {
	data, err := MarshalLock(l)
	if err != nil {
		return err
	}
	if err := renameio.WriteFile(path, data, 0o644); err != nil {
		return fmt.Errorf("writing the lock file: %w", err)
	}
	return nil
}
