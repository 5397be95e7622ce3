package image

import (
	"archive/tar"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"path"
	"sort"
	"time"
)

// entry is one member of an archive. Exactly one of from, data and link says what is
// in it; none of them makes a folder.
type entry struct {
	name string // without leading slash
	mode int64
	from string // a file on disk
	data []byte
	link string // target of a symbolic link
}

// writeTar writes the entries sorted by name and without any time or owner, so that
// the same content always gives the same bytes. Parent folders that no entry names are
// added where folders is set: container layers want them, upstream's tarballs have none.
func writeTar(w io.Writer, entries []entry, folders bool) error {
	byName := map[string]entry{}
	for _, e := range entries {
		if _, ok := byName[e.name]; ok {
			return fmt.Errorf("two archive members called %s", e.name)
		}
		byName[e.name] = e
	}
	if folders {
		for _, e := range entries {
			for dir := path.Dir(e.name); dir != "." && dir != "/"; dir = path.Dir(dir) {
				if _, ok := byName[dir]; !ok {
					byName[dir] = entry{name: dir, mode: 0o755}
				}
			}
		}
	}
	names := make([]string, 0, len(byName))
	for name := range byName {
		names = append(names, name)
	}
	sort.Strings(names)
	tw := tar.NewWriter(w)
	for _, name := range names {
		if err := writeEntry(tw, byName[name]); err != nil {
			return fmt.Errorf("archiving %s: %w", name, err)
		}
	}
	return tw.Close()
}

func writeEntry(tw *tar.Writer, e entry) error {
	h := &tar.Header{Name: e.name, Mode: e.mode, ModTime: time.Unix(0, 0), Format: tar.FormatUSTAR}
	switch {
	case e.from != "":
		f, err := os.Open(e.from)
		if err != nil {
			return err
		}
		defer closeQuietly(f)
		st, err := f.Stat()
		if err != nil {
			return err
		}
		h.Typeflag, h.Size = tar.TypeReg, st.Size()
		if err := tw.WriteHeader(h); err != nil {
			return err
		}
		_, err = io.Copy(tw, f)
		return err
	case e.data != nil:
		h.Typeflag, h.Size = tar.TypeReg, int64(len(e.data))
		if err := tw.WriteHeader(h); err != nil {
			return err
		}
		_, err := tw.Write(e.data)
		return err
	case e.link != "":
		h.Typeflag, h.Linkname = tar.TypeSymlink, e.link
		return tw.WriteHeader(h)
	default:
		h.Typeflag, h.Name = tar.TypeDir, e.name+"/"
		return tw.WriteHeader(h)
	}
}

// writeTarGz is writeTar into a compressed file. Speed counts more than size: the
// file travels over a bridge inside this computer.
func writeTarGz(path string, entries []entry) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer closeQuietly(f)
	zw, err := gzip.NewWriterLevel(f, gzip.BestSpeed)
	if err != nil {
		return err
	}
	if err := writeTar(zw, entries, false); err != nil {
		return err
	}
	if err := zw.Close(); err != nil {
		return err
	}
	return f.Close()
}

// writeTarFile is writeTar into a plain file.
func writeTarFile(path string, entries []entry) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer closeQuietly(f)
	if err := writeTar(f, entries, true); err != nil {
		return err
	}
	return f.Close()
}

// fileSHA256 is the digest of a file, in hexadecimal.
func fileSHA256(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer closeQuietly(f)
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}
