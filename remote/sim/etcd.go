package sim

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"strings"

	"hk/remote"
)

const (
	initialEnv    = "/etc/etcd/initial.env"
	etcdMemberDir = "/var/lib/etcd/member"
)

// etcdCluster is one etcd, by its token.
type etcdCluster struct {
	ID      uint64
	UID     string // of hk's cluster, by the founding server's label
	Members []etcdMember
	Rev     int64
}

type etcdMember struct {
	ID      uint64
	Name    string
	Peer    string
	Learner bool
	Server  int64 // 0: never started
}

func etcdKey(token string) string { return "etcd/" + token }

// startEtcd starts a member: with data it goes on, without it founds or enters
// the cluster that its environment names.
func startEtcd(t *tx, v *server) error {
	for _, need := range []string{"/usr/local/bin/etcd", "/etc/etcd/pki/ca.crt", "/etc/etcd/pki/peer.crt", "/etc/etcd/pki/server.crt"} {
		if !t.has(fileKey(v.ID, need)) {
			return fmt.Errorf("etcd: %s is missing", need)
		}
	}
	if t.has(key("member", v.ID)) {
		return nil
	}
	env, ok := load[hostFile](t, fileKey(v.ID, initialEnv))
	if !ok {
		return fmt.Errorf("etcd: no %s", initialEnv)
	}
	vars := map[string]string{}
	for l := range strings.SplitSeq(string(env.Content), "\n") {
		if k, val, ok := strings.Cut(l, "="); ok {
			vars[k] = val
		}
	}
	token := vars["ETCD_INITIAL_CLUSTER_TOKEN"]
	c, there := load[etcdCluster](t, etcdKey(token))
	own := ownPeer(t, v)
	if vars["ETCD_INITIAL_CLUSTER_STATE"] == "new" && !there {
		c = etcdCluster{ID: uint64(t.next()), UID: v.Labels[remote.LabelUID]}
		for m := range strings.SplitSeq(vars["ETCD_INITIAL_CLUSTER"], ",") {
			name, peer, _ := strings.Cut(m, "=")
			c.Members = append(c.Members, etcdMember{ID: uint64(t.next()), Name: name, Peer: peer})
		}
	}
	for i := range c.Members {
		m := &c.Members[i]
		if m.Peer != own {
			continue
		}
		if m.Server != 0 {
			return errors.New("etcd: member has already been bootstrapped")
		}
		m.Server = v.ID
		if m.Name == "" {
			m.Name = strings.TrimPrefix(v.Name, v.Labels[remote.LabelCluster]+"-")
		}
		store(t, etcdKey(token), c)
		store(t, key("member", v.ID), token)
		store(t, fileKey(v.ID, etcdMemberDir), hostFile{Dir: true, Mode: 0o700, Owner: "etcd:etcd"})
		return nil
	}
	return errors.New("etcd: this member is not in the cluster's list")
}

// ownPeer is the machine's peer URL, as its unit file has it.
func ownPeer(t *tx, v *server) string {
	f, _ := load[hostFile](t, fileKey(v.ID, "/etc/systemd/system/etcd.service"))
	for w := range strings.FieldsSeq(string(f.Content)) {
		if u, ok := strings.CutPrefix(w, "--initial-advertise-peer-urls="); ok {
			return u
		}
	}
	return ""
}

// memberUp reports whether the member's process runs and can be reached.
func memberUp(t *tx, m *etcdMember) bool {
	v, ok := load[server](t, key("server", m.Server))
	if m.Server == 0 || !ok || v.Status != "running" {
		return false
	}
	if cut, _ := load[bool](t, key("cut", m.Server)); cut {
		return false
	}
	u, _ := load[hostUnit](t, unitKey(m.Server, etcdUnit))
	return u.Active
}

func (c *etcdCluster) quorum(t *tx) bool {
	voters, up := 0, 0
	for i := range c.Members {
		if c.Members[i].Learner {
			continue
		}
		voters++
		if memberUp(t, &c.Members[i]) {
			up++
		}
	}
	return voters > 0 && up > voters/2
}

// etcdOf is the etcd of hk's cluster with this UID.
func etcdOf(t *tx, uid string) (etcdCluster, bool) {
	for _, k := range t.keys("etcd/") {
		if c, _ := load[etcdCluster](t, k); c.UID == uid {
			return c, true
		}
	}
	return etcdCluster{}, false
}

// Etcd is a client.
type Etcd struct {
	w   *World
	eps []remote.Endpoint
}

var _ remote.Etcd = (*Etcd)(nil)

// NewEtcd makes a client of the etcd that runs on the endpoints' hosts.
func (w *World) NewEtcd(c remote.ClientCert, eps []remote.Endpoint) (remote.Etcd, error) {
	if len(c.Cert) == 0 || len(c.Key) == 0 || len(c.CA) == 0 {
		return nil, errors.New("etcd needs a client certificate")
	}
	return &Etcd{w: w, eps: eps}, nil
}

func etcdErr(op, why string) error {
	return &remote.WorldError{World: "etcd", Op: op, Again: true, Err: errors.New(why)}
}

// through finds the cluster by any endpoint that is up; with a host only by it.
func (e *Etcd) through(t *tx, op, host string) (string, etcdCluster, *etcdMember, error) {
	for _, ep := range e.eps {
		h, ok := ep.Via.(*Host)
		if !ok || host != "" && ep.Host != host {
			continue
		}
		v, err := h.machine(t, op)
		if err != nil {
			continue
		}
		token, ok := load[string](t, key("member", v.ID))
		u, _ := load[hostUnit](t, unitKey(v.ID, etcdUnit))
		if !ok || !u.Active {
			continue
		}
		c, _ := load[etcdCluster](t, etcdKey(token))
		for i := range c.Members {
			if c.Members[i].Server == v.ID {
				return etcdKey(token), c, &c.Members[i], nil
			}
		}
	}
	return "", etcdCluster{}, nil, etcdErr(op, "no member answers")
}

func (e *Etcd) read(ctx context.Context, op, host string, quorum bool, fn func(*tx, etcdCluster, *etcdMember) error) error {
	return e.w.view(ctx, "etcd "+op, func(t *tx) error {
		_, c, m, err := e.through(t, op, host)
		if err != nil {
			return err
		}
		if quorum && !c.quorum(t) {
			return etcdErr(op, "no leader: the cluster has no quorum")
		}
		return fn(t, c, m)
	})
}

func (e *Etcd) write(ctx context.Context, op, host string, fn func(*tx, *etcdCluster) error) error {
	return e.w.update(ctx, "etcd "+op, func(t *tx) error {
		k, c, _, err := e.through(t, op, host)
		if err != nil {
			return err
		}
		if !c.quorum(t) {
			return etcdErr(op, "no leader: the cluster has no quorum")
		}
		if err := fn(t, &c); err != nil {
			return err
		}
		c.Rev++
		store(t, k, c)
		return nil
	})
}

// Members lists them through quorum.
func (e *Etcd) Members(ctx context.Context) ([]remote.Member, error) {
	var out []remote.Member
	err := e.read(ctx, "members", "", true, func(_ *tx, c etcdCluster, _ *etcdMember) error {
		for _, m := range c.Members {
			rm := remote.Member{ID: m.ID, Name: m.Name, PeerURLs: []string{m.Peer}, Learner: m.Learner, Started: m.Server != 0}
			if m.Server == 0 {
				rm.Name = ""
			}
			out = append(out, rm)
		}
		return nil
	})
	return out, err
}

// Status asks one member.
func (e *Etcd) Status(ctx context.Context, host string) (*remote.EtcdStatus, error) {
	var out *remote.EtcdStatus
	err := e.read(ctx, "status", host, false, func(t *tx, c etcdCluster, m *etcdMember) error {
		out = &remote.EtcdStatus{Member: m.ID, ClusterID: c.ID, Version: "3.7.3", DBSize: 1 << 20, Quota: 8 << 30, RaftIndex: uint64(c.Rev), Applied: uint64(c.Rev), Learner: m.Learner}
		if c.quorum(t) {
			out.Leader = c.Members[0].ID
		}
		return nil
	})
	return out, err
}

// Proof writes and reads through quorum.
func (e *Etcd) Proof(ctx context.Context, host string) error {
	return e.write(ctx, "proof", host, func(*tx, *etcdCluster) error { return nil })
}

// AddLearner adds a member that does not vote yet.
func (e *Etcd) AddLearner(ctx context.Context, peer string) (uint64, error) {
	var id uint64
	err := e.write(ctx, "member add", "", func(t *tx, c *etcdCluster) error {
		for i := range c.Members {
			if c.Members[i].Peer == peer {
				return etcdErr("member add", "peer URL exists")
			}
			if c.Members[i].Learner {
				return etcdErr("member add", "too many learner members in cluster")
			}
		}
		id = uint64(t.next())
		c.Members = append(c.Members, etcdMember{ID: id, Peer: peer, Learner: true})
		return nil
	})
	return id, err
}

// Promote makes a learner vote.
func (e *Etcd) Promote(ctx context.Context, id uint64) error {
	return e.write(ctx, "member promote", "", func(t *tx, c *etcdCluster) error {
		for i := range c.Members {
			if m := &c.Members[i]; m.ID == id {
				if !memberUp(t, m) {
					return etcdErr("member promote", "the learner is not in sync with the leader")
				}
				m.Learner = false
				return nil
			}
		}
		return etcdErr("member promote", "member not found")
	})
}

// Remove removes a member.
func (e *Etcd) Remove(ctx context.Context, id uint64) error {
	return e.write(ctx, "member remove", "", func(_ *tx, c *etcdCluster) error {
		n := len(c.Members)
		c.Members = slices.DeleteFunc(c.Members, func(m etcdMember) bool { return m.ID == id })
		if len(c.Members) == n {
			return etcdErr("member remove", "member not found")
		}
		return nil
	})
}

// Snapshot writes what stands for one: a page and, as etcd does, its hash.
func (e *Etcd) Snapshot(ctx context.Context, host string, w interface{ Write([]byte) (int, error) }) (int64, error) {
	var n int
	err := e.read(ctx, "snapshot", host, false, func(_ *tx, c etcdCluster, _ *etcdMember) error {
		var err error
		page := make([]byte, 512)
		copy(page, fmt.Sprintf("simulated snapshot of %x at revision %d\n", c.ID, c.Rev))
		hash := sha256.Sum256(page)
		n, err = w.Write(append(page, hash[:]...))
		return err
	})
	return int64(n), err
}

// Alarms has none.
func (e *Etcd) Alarms(ctx context.Context) ([]string, error) {
	return nil, e.read(ctx, "alarms", "", true, func(*tx, etcdCluster, *etcdMember) error { return nil })
}

// Defragment asks one member.
func (e *Etcd) Defragment(ctx context.Context, host string) error {
	return e.read(ctx, "defragment", host, false, func(*tx, etcdCluster, *etcdMember) error { return nil })
}

// Close has nothing to close.
func (e *Etcd) Close() error { return nil }
