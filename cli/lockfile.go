package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/google/renameio/v2"

	"hk/tasks/host"
	"hk/tasks/spec"
)

// readLock reads the lock file beside the config, if there is one.
func (s *site) readLock() error {
	l, err := spec.LoadLock(spec.LockPath(s.config, s.name))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return &exitError{code: ExitConfig, class: classConfig, err: err}
	}
	s.lock = l
	return nil
}

// ensureLock has a lock file in memory: the one beside the config, else the
// copy in the credential unit, else one resolved now. It is written by saveLock
// only, in the write step.
func (s *site) ensureLock(ctx context.Context) error {
	if err := s.lockFromUnit(); err != nil {
		return err
	}
	if s.lock != nil && s.lock.Kubernetes == s.cfg.Kubernetes.Version {
		return nil
	}
	if s.lock != nil && s.sess.Established() {
		return nil // the version differs: the matrix speaks of that before anything is resolved
	}
	v, err := host.VersionsFor(s.cfg.Kubernetes.Version)
	if err != nil {
		return &exitError{code: ExitConfig, class: classConfig, err: err}
	}
	s.tell("resolving what is downloaded: Kubernetes " + v.Kubernetes + ", etcd " + v.Etcd + ", containerd " + v.Containerd)
	l, err := host.ResolveLock(ctx, host.Resolve{
		Versions: v, Arches: host.Arches(s.cfg), Mirror: s.effective().Mirrors.Artifacts, Fetch: s.world.fetch, Now: s.a.now(),
		Progress: s.progress(), Known: s.a.knownArchive, Keep: s.a.keepArchive,
	})
	if err != nil {
		return &exitError{
			code: ExitCloud, class: classCloud, err: err,
			hint: "the artifacts' upstreams (or mirrors.artifacts) must be reachable once; nothing was changed",
		}
	}
	s.lock, s.fresh = l, true
	return s.loadSession()
}

// progress tells of long downloads each few seconds.
func (s *site) progress() func(name string, done, total int64) {
	last := s.a.now()
	return func(name string, done, total int64) {
		if now := s.a.now(); now.Sub(last) > 3*time.Second {
			last = now
			line := fmt.Sprintf("reading %s: %d MiB", name, done>>20)
			if total > 0 {
				line += fmt.Sprintf(" of %d", total>>20)
			}
			s.tell(line)
		}
	}
}

// saveLock writes a lock file that is not beside the config yet.
func (s *site) saveLock() error {
	if !s.fresh || s.config == "" {
		return nil
	}
	if err := spec.SaveLock(spec.LockPath(s.config, s.name), s.lock); err != nil {
		return &exitError{
			code: ExitState, class: classState, err: err,
			hint: "the lock file belongs beside the config; make its folder writable",
		}
	}
	s.fresh = false
	return nil
}

// fetchURL opens a download; three tries for what may pass.
func fetchURL(ctx context.Context, url string) (io.ReadCloser, int64, error) {
	var err error
	for try := range 3 {
		if try > 0 {
			select {
			case <-time.After(time.Duration(try) * time.Second):
			case <-ctx.Done():
				return nil, 0, ctx.Err()
			}
		}
		var body io.ReadCloser
		var size int64
		var again bool
		if body, size, again, err = fetchOnce(ctx, url); err == nil || !again {
			return body, size, err
		}
	}
	return nil, 0, err
}

func fetchOnce(ctx context.Context, url string) (body io.ReadCloser, size int64, again bool, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, 0, false, err
	}
	req.Header.Set("User-Agent", "hk/"+version)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, 0, ctx.Err() == nil, err
	}
	if resp.StatusCode != http.StatusOK {
		_ = resp.Body.Close() // nothing of it is wanted
		return nil, 0, resp.StatusCode >= 500, fmt.Errorf("%s: %s", url, resp.Status)
	}
	return resp.Body, resp.ContentLength, false, nil
}

// lockFromUnit takes the credential unit's copy where there is no lock file
// beside the config.
func (s *site) lockFromUnit() error {
	if s.lock != nil {
		return nil
	}
	text := s.sess.LockText()
	if len(text) == 0 {
		return nil
	}
	l, err := spec.ParseLock(text, "lock.yaml of the credential unit")
	if err != nil {
		return err
	}
	s.lock, s.fresh = l, true
	return nil
}

// archives is where the hashes of what archives hold are kept, by the hash of
// the archive itself: reading three archives takes seconds, and what is in one
// never changes. "" if this computer has no place for it.
func (a *app) archives() string {
	dir := a.getenv("XDG_CACHE_HOME")
	if !filepath.IsAbs(dir) {
		home := a.getenv("HOME")
		if home == "" {
			return ""
		}
		dir = filepath.Join(home, ".cache")
	}
	return filepath.Join(dir, "hk", "archives")
}

func (a *app) knownArchive(sha256 string) map[string]string {
	if a.archives() == "" {
		return nil
	}
	data, err := os.ReadFile(filepath.Join(a.archives(), sha256+".json"))
	if err != nil {
		return nil
	}
	var files map[string]string
	if json.Unmarshal(data, &files) != nil {
		return nil
	}
	return files
}

func (a *app) keepArchive(sha256 string, files map[string]string) {
	dir := a.archives()
	if dir == "" || os.MkdirAll(dir, 0o700) != nil {
		return
	}
	data, err := json.Marshal(files)
	if err == nil {
		_ = renameio.WriteFile(filepath.Join(dir, sha256+".json"), data, 0o600) // it is read again then
	}
}
