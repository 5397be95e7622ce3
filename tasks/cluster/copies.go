package cluster

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"hk/remote"
	"hk/tasks"
	"hk/tasks/spec"
)

// masters are the wanted masters that were contacted before.
func (s *Session) masters() []tasks.HostRecord {
	u := s.Unit()
	var out []tasks.HostRecord
	if u == nil {
		return nil
	}
	for _, h := range s.Wanted() {
		if r, ok := u.Host(h.Name); ok && r.Seen && h.Has(spec.Master) {
			out = append(out, r)
		}
	}
	return out
}

// CopiesStale reports whether a master that answered keeps another unit than
// the one here. A build with nothing to run then still has something to tell.
func (s *Session) CopiesStale() bool {
	f, u := s.Found(), s.Unit()
	if f == nil || u == nil {
		return false
	}
	sum := sumOf(u.Tar())
	for _, r := range s.masters() {
		if h := f.Hosts[r.Host]; h != nil && h.Facts != nil && !keepsCopy(h.Facts, sum) {
			return true
		}
	}
	return false
}

func keepsCopy(f *remote.Facts, sum string) bool {
	return strings.HasPrefix(f.Files[HostUnitFile], sum)
}

// refreshTime bounds what telling the masters may add to a build.
const refreshTime = 20 * time.Second

func (s *Session) refresh(ctx context.Context, journal map[string][]byte) []string {
	ctx, cancel := context.WithTimeout(ctx, refreshTime)
	defer cancel()
	text := s.Unit().Tar()
	sum := sumOf(text)
	f := s.Found()
	var mu sync.Mutex
	var warnings []string
	var wg sync.WaitGroup
	for _, r := range s.masters() {
		same := false
		if f != nil {
			h := f.Hosts[r.Host]
			if h != nil && h.Down != "" {
				continue // it costs its own tasks a line already
			}
			same = h != nil && h.Facts != nil && keepsCopy(h.Facts, sum)
		}
		host := s.open(r)
		wg.Go(func() {
			if err := tell(ctx, host, text, same, journal); err != nil {
				mu.Lock()
				warnings = append(warnings, fmt.Sprintf("%s keeps an older copy of the credential unit: %v", host.Name(), err))
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	slices.Sort(warnings)
	return warnings
}

func tell(ctx context.Context, host remote.Host, text []byte, same bool, journal map[string][]byte) error {
	if !same {
		_, err := host.Apply(ctx, remote.HostState{Files: []remote.File{
			{Path: HostUnitDir, Mode: fs.ModeDir | 0o700},
			{Path: HostUnitFile, Mode: 0o600, Content: text, Secret: true},
		}})
		if err != nil {
			return err
		}
	}
	if len(journal) == 0 {
		return nil
	}
	return host.Journal(ctx, journal)
}

// Tar is the whole unit as one archive, the same bytes for the same unit.
func (u *Unit) Tar() []byte {
	st := u.read()
	files := maps.Clone(st.files)
	files[manifestFile] = st.m.encode()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, name := range slices.Sorted(maps.Keys(files)) {
		h := &tar.Header{Name: name, Mode: 0o600, Size: int64(len(files[name])), Format: tar.FormatUSTAR}
		if err := w.WriteHeader(h); err != nil {
			panic("bug: archiving a unit: " + err.Error()) // to memory
		}
		if _, err := w.Write(files[name]); err != nil {
			panic("bug: archiving a unit: " + err.Error())
		}
	}
	if err := w.Close(); err != nil {
		panic("bug: archiving a unit: " + err.Error())
	}
	return b.Bytes()
}

// Untar reads what Tar wrote.
func Untar(text []byte) (map[string][]byte, error) {
	out := map[string][]byte{}
	r := tar.NewReader(bytes.NewReader(text))
	for {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return out, nil
		}
		if err != nil {
			return nil, fmt.Errorf("reading the copy of a unit: %w", err)
		}
		if h.Name != path.Base(h.Name) || h.Typeflag != tar.TypeReg || h.Size > maxFile {
			return nil, fmt.Errorf("reading the copy of a unit: unexpected entry %q", h.Name)
		}
		if out[h.Name], err = io.ReadAll(r); err != nil {
			return nil, fmt.Errorf("reading the copy of a unit: %w", err)
		}
	}
}
