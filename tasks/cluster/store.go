package cluster

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/google/renameio/v2"

	"hk/remote"
)

// Store keeps credential units: named sets of small files. Every write is
// durable when it returns and, file by file, all or nothing. Errors of the file
// system are Refusals with exit 10.
type Store interface {
	// List names the units, sorted.
	List() ([]string, error)
	// Load returns all files of a unit; ErrNotFound if there is no unit.
	Load(unit string) (map[string][]byte, error)
	// Create makes a whole unit at once; fs.ErrExist if there is one.
	Create(unit string, files map[string][]byte) error
	// Replace writes one file of a unit, beside and renamed into place.
	Replace(unit, file string, data []byte) error
	// Remove removes one file of a unit, quiet about what is gone.
	Remove(unit, file string) error
	// Retire moves a unit out of the way, under another name.
	Retire(unit, as string) error
	// Place says where a unit is, for people.
	Place(unit string) string
	// ID tells this store from every other; it is drawn on the first call.
	ID() (string, error)
}

// maxFile bounds what is read of a unit: a larger file is not hk's.
const maxFile = 4 << 20

// Dir is the Store in the file system: a directory of mode 0700 per unit, files
// 0600.
type Dir struct {
	home           string
	units, retired string
	swept          sync.Map // units whose directories were swept
	// step is called before each change of the file system; an error stops
	// there, as a crash would. Tests use it; nil does nothing.
	step func(what string) error
}

// NewDir keeps units in HOME/clusters and retired ones in HOME/destroyed.
// Nothing is made before the first write.
func NewDir(home string) *Dir {
	return &Dir{home: home, units: filepath.Join(home, "clusters"), retired: filepath.Join(home, "destroyed")}
}

// ID implements Store.
func (d *Dir) ID() (string, error) {
	path := filepath.Join(d.home, "id")
	for range 2 {
		b, err := os.ReadFile(path)
		if err == nil && len(b) > 0 {
			return strings.TrimSpace(string(b)), nil
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return "", stateError("reading", path, err)
		}
		if err := os.MkdirAll(d.home, 0o700); err != nil {
			return "", stateError("making", d.home, err)
		}
		id, err := NewUID(nil)
		if err != nil {
			return "", err
		}
		if err := renameio.WriteFile(path, []byte(id+"\n"), 0o600, renameio.WithTempDir(d.home)); err != nil {
			return "", stateError("writing", path, err)
		}
	}
	return "", foreign(path, "its identity cannot be kept")
}

// NewDirAt keeps units in one directory and retired ones in another, for
// credentials that are kept apart from the state directory.
func NewDirAt(units, retired string) *Dir { return &Dir{units: units, retired: retired} }

func (d *Dir) at(what string) error {
	if d.step == nil {
		return nil
	}
	return d.step(what)
}

// Place implements Store.
func (d *Dir) Place(unit string) string { return filepath.Join(d.units, unit) }

// List implements Store.
func (d *Dir) List() ([]string, error) {
	es, err := os.ReadDir(d.units)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, stateError("reading", d.units, err)
	}
	var out []string
	for _, e := range es {
		if e.IsDir() && !strings.HasPrefix(e.Name(), ".") {
			out = append(out, e.Name())
		}
	}
	return out, nil // ReadDir sorts
}

// Load implements Store.
func (d *Dir) Load(unit string) (map[string][]byte, error) {
	dir := d.Place(unit)
	es, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("credential unit %s: %w", dir, remote.ErrNotFound)
	}
	if err != nil {
		return nil, stateError("reading", dir, err)
	}
	out := map[string][]byte{}
	for _, e := range es {
		if strings.HasPrefix(e.Name(), ".") || !e.Type().IsRegular() {
			continue // rests of an interrupted write; the next one sweeps them
		}
		path := filepath.Join(dir, e.Name())
		if fi, err := e.Info(); err == nil && fi.Size() > maxFile {
			return nil, foreign(dir, e.Name()+" is too large")
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return nil, stateError("reading", path, err)
		}
		out[e.Name()] = data
	}
	return out, nil
}

// Create implements Store: the unit is made beside its place and renamed into
// it, so that it is there whole or not at all.
func (d *Dir) Create(unit string, files map[string][]byte) error {
	if err := d.at("mkdir"); err != nil {
		return err
	}
	if err := os.MkdirAll(d.units, 0o700); err != nil {
		return stateError("making", d.units, err)
	}
	sweep(d.units, "."+unit+".new-")
	tmp, err := os.MkdirTemp(d.units, "."+unit+".new-")
	if err != nil {
		return stateError("writing to", d.units, err)
	}
	done := false
	defer func() {
		if !done && d.step == nil {
			_ = os.RemoveAll(tmp) // best effort: a dotted name is never read
		}
	}()
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if err := d.at("create " + name); err != nil {
			return err
		}
		if err := writeDurable(filepath.Join(tmp, name), files[name]); err != nil {
			return stateError("writing", filepath.Join(d.units, unit, name), err)
		}
	}
	if err := syncDir(tmp); err != nil {
		return stateError("writing", tmp, err)
	}
	if err := d.at("rename unit"); err != nil {
		return err
	}
	if err := os.Rename(tmp, d.Place(unit)); err != nil {
		if errors.Is(err, fs.ErrExist) || isNotEmpty(d.Place(unit)) {
			return fmt.Errorf("credential unit %s: %w", d.Place(unit), fs.ErrExist)
		}
		return stateError("making", d.Place(unit), err)
	}
	done = true
	return stateError("writing", d.units, syncDir(d.units))
}

// sweep removes what interrupted writes left: names that are never read, with
// secrets in them. Only one hk writes a unit at a time.
func sweep(dir, prefix string) {
	es, err := os.ReadDir(dir)
	if err != nil {
		return // whoever writes there next says so
	}
	for _, e := range es {
		if strings.HasPrefix(e.Name(), prefix) {
			_ = os.RemoveAll(filepath.Join(dir, e.Name())) // best effort
		}
	}
}

func isNotEmpty(dir string) bool {
	es, err := os.ReadDir(dir)
	return err == nil && len(es) > 0
}

// Replace implements Store.
func (d *Dir) Replace(unit, file string, data []byte) error {
	dir := d.Place(unit)
	if err := d.at("replace " + file); err != nil {
		return err
	}
	if _, swept := d.swept.LoadOrStore(unit, true); !swept {
		sweep(dir, ".")
	}
	err := renameio.WriteFile(filepath.Join(dir, file), data, 0o600,
		renameio.WithTempDir(dir), renameio.WithStaticPermissions(0o600))
	if err != nil {
		return stateError("writing", filepath.Join(dir, file), err)
	}
	if err := d.at("sync " + file); err != nil {
		return err
	}
	return stateError("writing", dir, syncDir(dir))
}

// Remove implements Store.
func (d *Dir) Remove(unit, file string) error {
	dir := d.Place(unit)
	if err := d.at("remove " + file); err != nil {
		return err
	}
	if err := os.Remove(filepath.Join(dir, file)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return stateError("removing", filepath.Join(dir, file), err)
	}
	return stateError("writing", dir, syncDir(dir))
}

// Retire implements Store.
func (d *Dir) Retire(unit, as string) error {
	if err := d.at("retire"); err != nil {
		return err
	}
	if err := os.MkdirAll(d.retired, 0o700); err != nil {
		return stateError("making", d.retired, err)
	}
	if err := os.Rename(d.Place(unit), filepath.Join(d.retired, as)); err != nil {
		return stateError("moving", d.Place(unit), err)
	}
	return stateError("writing", d.units, syncDir(d.units))
}

func writeDurable(path string, data []byte) (err error) {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if _, err = f.Write(data); err != nil {
		return err
	}
	return f.Sync()
}

func syncDir(dir string) (err error) {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	return f.Sync()
}
