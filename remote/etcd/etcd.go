package etcd

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"hk/remote"
)

// proofs is the prefix of the keys Proof writes. Nothing of Kubernetes is
// below it.
const proofs = "hk/proof/"

// Members asks the cluster, by a read that goes through quorum.
func (c *Client) Members(ctx context.Context) ([]remote.Member, error) {
	var out []remote.Member
	err := c.anywhere(ctx, "list members", func(ctx context.Context, cli *clientv3.Client) error {
		r, err := cli.MemberList(ctx)
		if err != nil {
			return err
		}
		out = nil
		for _, m := range r.Members {
			out = append(out, remote.Member{ID: m.ID, Name: m.Name, PeerURLs: m.PeerURLs, Learner: m.IsLearner, Started: len(m.ClientURLs) > 0})
		}
		return nil
	})
	return out, err
}

// Status asks one member, by hk's host name.
func (c *Client) Status(ctx context.Context, host string) (*remote.EtcdStatus, error) {
	out := new(remote.EtcdStatus)
	err := c.at(ctx, host, "status of etcd on "+host, callTimeout, func(ctx context.Context, cli *clientv3.Client) error {
		r, err := maintenance(cli).Status(ctx, &pb.StatusRequest{})
		if err != nil {
			return clientv3.ContextError(ctx, err)
		}
		*out = remote.EtcdStatus{
			Member: r.Header.MemberId, ClusterID: r.Header.ClusterId, Leader: r.Leader, Version: r.Version, DBSize: r.DbSize,
			Quota: r.DbSizeQuota, RaftIndex: r.RaftIndex, Applied: r.RaftAppliedIndex, Learner: r.IsLearner, Alarms: r.Errors,
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

// Proof writes, reads back through quorum and removes one key of hk's own. The
// key is the same for a member each time, so that a proof cut short leaves
// nothing that the next does not remove.
func (c *Client) Proof(ctx context.Context, host string) error {
	prove := func(ctx context.Context, cli *clientv3.Client) error {
		value := rand.Text()
		key := proofs + host
		put, err := cli.Put(ctx, key, value)
		if err != nil {
			return err
		}
		got, err := cli.Get(ctx, key)
		if err != nil {
			return err
		}
		// Another hk may prove the same at this moment; then its value is newer.
		if len(got.Kvs) == 1 && got.Kvs[0].ModRevision == put.Header.Revision && !bytes.Equal(got.Kvs[0].Value, []byte(value)) {
			return errors.New("etcd returned another value than was written")
		}
		if len(got.Kvs) == 0 && got.Header.Revision <= put.Header.Revision {
			return errors.New("etcd lost what was written")
		}
		_, err = cli.Delete(ctx, key)
		return err
	}
	if host == "" {
		return c.anywhere(ctx, "write and read through quorum", prove)
	}
	return c.at(ctx, host, "write and read through quorum at "+host, callTimeout, prove)
}

// AddLearner adds a member that does not vote yet, or finds the one that an
// earlier call with a lost answer added.
func (c *Client) AddLearner(ctx context.Context, peerURL string) (uint64, error) {
	op := "add learner " + peerURL
	var id uint64
	err := c.anywhere(ctx, op, func(ctx context.Context, cli *clientv3.Client) error {
		r, err := cli.MemberAddAsLearner(ctx, []string{peerURL})
		if err == nil {
			id = r.Member.ID
			return nil
		}
		if !errors.Is(err, rpctypes.ErrPeerURLExist) {
			return err
		}
		list, lerr := cli.MemberList(ctx)
		if lerr != nil {
			return lerr
		}
		for _, m := range list.Members {
			if slices.Contains(m.PeerURLs, peerURL) && m.IsLearner {
				id = m.ID
				return nil
			}
		}
		return err
	})
	return id, err
}

// Promote makes a learner a voter. Until it has caught up, the error says that
// trying again helps.
func (c *Client) Promote(ctx context.Context, id uint64) error {
	return c.anywhere(ctx, fmt.Sprintf("promote member %x", id), func(ctx context.Context, cli *clientv3.Client) error {
		_, err := cli.MemberPromote(ctx, id)
		if errors.Is(err, rpctypes.ErrMemberNotLearner) {
			return nil
		}
		return err
	})
}

// Remove removes a member, or finds it gone.
func (c *Client) Remove(ctx context.Context, id uint64) error {
	return c.anywhere(ctx, fmt.Sprintf("remove member %x", id), func(ctx context.Context, cli *clientv3.Client) error {
		_, err := cli.MemberRemove(ctx, id)
		if errors.Is(err, rpctypes.ErrMemberNotFound) {
			return nil
		}
		return err
	})
}

// Snapshot streams a snapshot of one member into w. Its last 32 bytes are
// etcd's own SHA-256 of the rest.
func (c *Client) Snapshot(ctx context.Context, host string, w interface{ Write([]byte) (int, error) }) (int64, error) {
	var size int64
	err := c.at(ctx, host, "snapshot of etcd on "+host, longTimeout, func(ctx context.Context, cli *clientv3.Client) error {
		var err error
		size, err = snapshot(ctx, cli, w)
		return err
	})
	return size, err
}

// Alarms lists the alarms that are set, such as NOSPACE.
func (c *Client) Alarms(ctx context.Context) ([]string, error) {
	var out []string
	err := c.anywhere(ctx, "list alarms", func(ctx context.Context, cli *clientv3.Client) error {
		r, err := cli.AlarmList(ctx)
		if err != nil {
			return err
		}
		out = nil
		for _, a := range r.Alarms {
			out = append(out, fmt.Sprintf("%s on member %x", a.Alarm, a.MemberID))
		}
		return nil
	})
	return out, err
}

// Defragment gives free space of one member's file back; the member answers
// nothing meanwhile.
func (c *Client) Defragment(ctx context.Context, host string) error {
	return c.at(ctx, host, "defragment etcd on "+host, longTimeout, func(ctx context.Context, cli *clientv3.Client) error {
		_, err := maintenance(cli).Defragment(ctx, &pb.DefragmentRequest{})
		return clientv3.ContextError(ctx, err)
	})
}
