package etcd

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"io"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// snapshot copies a snapshot's stream to w and checks the hash at its end, so
// that a stream cut short is never taken for a backup.
func snapshot(ctx context.Context, cli *clientv3.Client, w io.Writer) (int64, error) {
	s, err := maintenance(cli).Snapshot(ctx, &pb.SnapshotRequest{})
	if err != nil {
		return 0, clientv3.ContextError(ctx, err)
	}
	var size int64
	h := sha256.New()
	var end []byte // the last 32 bytes seen, which may be the hash
	for {
		part, err := s.Recv()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return size, clientv3.ContextError(ctx, err)
		}
		n, err := w.Write(part.Blob)
		size += int64(n)
		if err != nil {
			return size, err
		}
		end = append(end, part.Blob...)
		if over := len(end) - sha256.Size; over > 0 {
			h.Write(end[:over])
			end = append([]byte(nil), end[over:]...)
		}
	}
	if len(end) < sha256.Size || !bytes.Equal(h.Sum(nil), end) {
		return size, errors.New("the snapshot's hash does not fit: the stream was cut short")
	}
	return size, nil
}
