package image

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"sort"
	"strconv"
	"strings"
	"time"
)

// Registry serves the images read-only over the registry protocol (v2). The registry's
// own host name does not matter: registry.k8s.io/pause:3.10.2 is served as
// /v2/pause/manifests/3.10.2, the way a mirror is configured in containerd's hosts.toml.
// Blobs are ranges of the archives on disk and are streamed from there.
func Registry(set *Set) (http.Handler, error) {
	ix, err := readIndex(set.Images)
	if err != nil {
		return nil, fmt.Errorf("opening the images: %w", err)
	}
	r := &registry{dir: set.Images, repositories: map[string]*repository{}}
	for ref, img := range ix.Images {
		name, tag := splitRef(ref)
		repo, ok := r.repositories[name]
		if !ok {
			repo = &repository{tags: map[string]indexImage{}, digests: map[string]indexImage{}, blobs: map[string]location{}}
			r.repositories[name] = repo
		}
		repo.tags[tag], repo.digests[img.Digest] = img, img
		for digest, b := range img.Blobs {
			repo.blobs[digest] = location{archive: img.Archive, indexBlob: b}
		}
	}
	return r, nil
}

// registry is the read-only half of the protocol: github.com/opencontainers/distribution-spec.
type registry struct {
	dir          string
	repositories map[string]*repository
}

type repository struct {
	tags    map[string]indexImage
	digests map[string]indexImage
	blobs   map[string]location
}

type location struct {
	archive string
	indexBlob
}

func (r *registry) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	w.Header().Set("Docker-Distribution-Api-Version", "registry/2.0")
	if req.Method != http.MethodGet && req.Method != http.MethodHead {
		refuse(w, http.StatusMethodNotAllowed, "UNSUPPORTED", "this registry is read-only")
		return
	}
	rest, ok := strings.CutPrefix(req.URL.Path, "/v2/")
	switch {
	case !ok && req.URL.Path != "/v2":
		http.NotFound(w, req)
		return
	case rest == "":
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, "{}")
		return
	}
	// A repository's name may have slashes; what follows it has a fixed number of parts.
	parts := strings.Split(rest, "/")
	if len(parts) < 3 {
		http.NotFound(w, req)
		return
	}
	kind, what := parts[len(parts)-2], parts[len(parts)-1]
	repo, ok := r.repositories[strings.Join(parts[:len(parts)-2], "/")]
	if !ok {
		refuse(w, http.StatusNotFound, "NAME_UNKNOWN", "no such repository")
		return
	}
	switch {
	case kind == "manifests":
		repo.serveManifest(w, req, what)
	case kind == "blobs":
		r.serveBlob(w, req, repo, what)
	case kind == "tags" && what == "list":
		repo.serveTags(w, strings.Join(parts[:len(parts)-2], "/"))
	default:
		http.NotFound(w, req)
	}
}

func (repo *repository) serveManifest(w http.ResponseWriter, req *http.Request, ref string) {
	img, ok := repo.tags[ref]
	if !ok {
		img, ok = repo.digests[ref]
	}
	if !ok {
		refuse(w, http.StatusNotFound, "MANIFEST_UNKNOWN", "no such tag or digest")
		return
	}
	w.Header().Set("Content-Type", img.MediaType)
	w.Header().Set("Docker-Content-Digest", img.Digest)
	w.Header().Set("Content-Length", strconv.Itoa(len(img.Manifest)))
	if req.Method == http.MethodGet {
		_, _ = w.Write(img.Manifest) // the client went away: nobody to tell
	}
}

func (r *registry) serveBlob(w http.ResponseWriter, req *http.Request, repo *repository, digest string) {
	at, ok := repo.blobs[digest]
	if !ok {
		refuse(w, http.StatusNotFound, "BLOB_UNKNOWN", "no such blob")
		return
	}
	f, err := os.Open(filepath.Join(r.dir, at.archive))
	if err != nil {
		refuse(w, http.StatusInternalServerError, "UNKNOWN", err.Error())
		return
	}
	defer closeQuietly(f)
	w.Header().Set("Content-Type", "application/octet-stream")
	w.Header().Set("Docker-Content-Digest", digest)
	http.ServeContent(w, req, "", time.Time{}, io.NewSectionReader(f, at.Offset, at.Size))
}

func (repo *repository) serveTags(w http.ResponseWriter, name string) {
	tags := make([]string, 0, len(repo.tags))
	for tag := range repo.tags {
		tags = append(tags, tag)
	}
	sort.Strings(tags)
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(map[string]any{"name": name, "tags": tags}) // as above
}

// refuse answers with an error as the protocol spells it.
func refuse(w http.ResponseWriter, status int, code, message string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(map[string]any{"errors": []map[string]string{{"code": code, "message": message}}})
}
