package sim

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"path"
	"strings"
)

// programs are what the world's archives hold, all in each of them.
func programs() []string {
	return []string{
		"etcd", "etcdctl", "etcdutl", "containerd", "containerd-shim-runc-v2", "ctr", "crictl",
		"bandwidth", "bridge", "host-local", "loopback", "portmap", "ptp",
	}
}

// Fetch is the world's upstream: every download and its published checksum, in
// the layout of the real ones. The bytes stand for programs and say which.
func Fetch(_ context.Context, url string) (io.ReadCloser, int64, error) {
	b, err := upstream(path.Base(url))
	if err != nil {
		return nil, 0, err
	}
	return io.NopCloser(bytes.NewReader(b)), int64(len(b)), nil
}

func upstream(name string) ([]byte, error) {
	switch {
	case name == "SHA256SUMS":
		return sums("etcd-v3.7.3-linux-amd64.tar.gz", "etcd-v3.7.3-linux-arm64.tar.gz")
	case name == "runc.sha256sum":
		return sums("runc.amd64", "runc.arm64")
	case strings.HasSuffix(name, ".sha256sum"):
		return sums(strings.TrimSuffix(name, ".sha256sum"))
	case strings.HasSuffix(name, ".sha256"):
		return sums(strings.TrimSuffix(name, ".sha256"))
	case strings.HasSuffix(name, ".tar.gz"), strings.HasSuffix(name, ".tgz"):
		return archive(name)
	}
	return []byte("simulated " + name + "\n"), nil
}

func sums(names ...string) ([]byte, error) {
	var out bytes.Buffer
	for _, n := range names {
		b, err := upstream(n)
		if err != nil {
			return nil, err
		}
		fmt.Fprintf(&out, "%s  %s\n", sum(b), n)
	}
	return out.Bytes(), nil
}

func archive(name string) ([]byte, error) {
	var out bytes.Buffer
	gz := gzip.NewWriter(&out)
	t := tar.NewWriter(gz)
	for _, p := range programs() {
		body := []byte("simulated " + p + " of " + name + "\n")
		if err := t.WriteHeader(&tar.Header{Name: "bin/" + p, Mode: 0o755, Size: int64(len(body)), Typeflag: tar.TypeReg}); err != nil {
			return nil, err
		}
		if _, err := t.Write(body); err != nil {
			return nil, err
		}
	}
	if err := t.Close(); err != nil {
		return nil, err
	}
	if err := gz.Close(); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}
