package image

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
)

// Mirror serves the artifacts in upstream's layout: what dl.k8s.io serves below
// /v1.37.2/bin/linux/amd64/ and what github.com serves below
// /OWNER/REPOSITORY/releases/download/TAG/. It reads the folder at every request, so
// artifacts that a later Prepare adds appear by themselves.
func Mirror(set *Set) http.Handler {
	dir := set.Artifacts
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			http.Error(w, "this mirror is read-only", http.StatusMethodNotAllowed)
			return
		}
		rel := strings.TrimPrefix(r.URL.Path, "/")
		// Not http.FileServer: neither listings, nor redirects, nor what a killed
		// Prepare has left half made under a name with a dot.
		if !filepath.IsLocal(rel) || hasHiddenPart(rel) {
			http.NotFound(w, r)
			return
		}
		if err := serveFile(w, r, filepath.Join(dir, rel), "application/octet-stream"); err != nil {
			http.NotFound(w, r)
		}
	})
}

// serveFile answers with a regular file; after an error nothing is written yet.
func serveFile(w http.ResponseWriter, r *http.Request, path, contentType string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer closeQuietly(f)
	st, err := f.Stat()
	if err != nil {
		return err
	}
	if !st.Mode().IsRegular() {
		return fmt.Errorf("%s is not a file", path)
	}
	w.Header().Set("Content-Type", contentType)
	http.ServeContent(w, r, "", st.ModTime(), f)
	return nil
}

func hasHiddenPart(rel string) bool {
	for part := range strings.SplitSeq(rel, "/") {
		if strings.HasPrefix(part, ".") {
			return true
		}
	}
	return false
}
