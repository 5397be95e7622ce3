package image

import (
	"archive/tar"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// plainLayer is a layer that stays an uncompressed tar file. The library's own
// layers always compress: here every machine would decompress again, and two cores
// shared by all machines are what a lab is short of.
type plainLayer struct {
	path string
	hash v1.Hash
	size int64
}

func newPlainLayer(path string) (*plainLayer, error) {
	digest, err := fileSHA256(path)
	if err != nil {
		return nil, err
	}
	st, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	return &plainLayer{path: path, hash: v1.Hash{Algorithm: "sha256", Hex: digest}, size: st.Size()}, nil
}

// Digest implements v1.Layer.
func (l *plainLayer) Digest() (v1.Hash, error) { return l.hash, nil }

// DiffID implements v1.Layer; without compression it is the digest.
func (l *plainLayer) DiffID() (v1.Hash, error) { return l.hash, nil }

// Compressed implements v1.Layer.
func (l *plainLayer) Compressed() (io.ReadCloser, error) { return os.Open(l.path) }

// Uncompressed implements v1.Layer.
func (l *plainLayer) Uncompressed() (io.ReadCloser, error) { return os.Open(l.path) }

// Size implements v1.Layer.
func (l *plainLayer) Size() (int64, error) { return l.size, nil }

// MediaType implements v1.Layer.
func (l *plainLayer) MediaType() (types.MediaType, error) { return types.DockerUncompressedLayer, nil }

// writeImage writes a docker-archive into dir and returns what the registry needs
// to know of it.
func writeImage(p picture, dir string) (indexImage, error) {
	img := empty.Image
	var layers []v1.Layer
	for i, entries := range p.layers {
		path := filepath.Join(dir, fmt.Sprintf(".layer-%d.tar", i))
		defer func() { _ = os.Remove(path) }() // it is in the archive by then
		if err := writeTarFile(path, entries); err != nil {
			return indexImage{}, err
		}
		l, err := newPlainLayer(path)
		if err != nil {
			return indexImage{}, err
		}
		layers = append(layers, l)
	}
	img, err := mutate.AppendLayers(img, layers...)
	if err != nil {
		return indexImage{}, err
	}
	cf, err := img.ConfigFile()
	if err != nil {
		return indexImage{}, err
	}
	cf = cf.DeepCopy()
	cf.Architecture, cf.OS, cf.Config = arch, "linux", p.config
	if img, err = mutate.ConfigFile(img, cf); err != nil {
		return indexImage{}, err
	}
	ref, err := name.ParseReference(p.ref)
	if err != nil {
		return indexImage{}, err
	}
	archive := filepath.Join(dir, p.file())
	if err := tarball.WriteToFile(archive, ref, img); err != nil {
		return indexImage{}, err
	}
	return indexArchive(archive, img)
}

// index says what is in the folder of images. The archives are not compressed, so a
// blob is a range of one of them: the registry needs no store of its own.
type index struct {
	Images map[string]indexImage `json:"images"` // by reference
}

// indexImage is one image of the index.
type indexImage struct {
	Archive   string               `json:"archive"` // file name
	MediaType string               `json:"media_type"`
	Digest    string               `json:"digest"`
	Manifest  []byte               `json:"manifest"` // base64: its very bytes have the digest
	Blobs     map[string]indexBlob `json:"blobs"`    // by digest
	// Kubernetes are the versions that use the image; none means that it is for any.
	Kubernetes []string `json:"kubernetes,omitempty"`
}

// indexBlob is where a blob lies in its archive.
type indexBlob struct {
	Offset int64 `json:"offset"`
	Size   int64 `json:"size"`
}

// indexName is the index's file in the folder of images.
const indexName = "index.json"

func indexArchive(archive string, img v1.Image) (indexImage, error) {
	manifest, err := img.RawManifest()
	if err != nil {
		return indexImage{}, err
	}
	digest, err := img.Digest()
	if err != nil {
		return indexImage{}, err
	}
	mt, err := img.MediaType()
	if err != nil {
		return indexImage{}, err
	}
	blobs, err := archiveBlobs(archive)
	if err != nil {
		return indexImage{}, err
	}
	return indexImage{
		Archive: filepath.Base(archive), MediaType: string(mt), Digest: digest.String(), Manifest: manifest, Blobs: blobs,
	}, nil
}

// archiveBlobs finds the blobs in a docker-archive: members are called
// sha256:HEX (the configuration) or HEX.EXTENSION (a layer).
func archiveBlobs(archive string) (map[string]indexBlob, error) {
	f, err := os.Open(archive)
	if err != nil {
		return nil, err
	}
	defer closeQuietly(f)
	blobs := map[string]indexBlob{}
	tr := tar.NewReader(f)
	for {
		h, err := tr.Next()
		if errors.Is(err, io.EOF) {
			return blobs, nil
		}
		if err != nil {
			return nil, err
		}
		hex, _, _ := strings.Cut(strings.TrimPrefix(h.Name, "sha256:"), ".")
		if len(hex) != 64 {
			continue
		}
		// The reader takes headers block by block, so the file stands where the content begins.
		offset, err := f.Seek(0, io.SeekCurrent)
		if err != nil {
			return nil, err
		}
		blobs["sha256:"+hex] = indexBlob{Offset: offset, Size: h.Size}
	}
}

func (ix index) write(dir string) error {
	data, err := json.MarshalIndent(ix, "", " ")
	if err != nil {
		return err
	}
	return writePublic(filepath.Join(dir, indexName), append(data, '\n'), 0o644)
}

func readIndex(dir string) (index, error) {
	var ix index
	data, err := os.ReadFile(filepath.Join(dir, indexName))
	if err != nil {
		return ix, err
	}
	if err := json.Unmarshal(data, &ix); err != nil {
		return ix, fmt.Errorf("reading %s: %w", filepath.Join(dir, indexName), err)
	}
	return ix, nil
}
