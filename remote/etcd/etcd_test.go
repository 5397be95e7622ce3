package etcd

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"hk/remote"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// server is a small etcd: one store, members and their faults.
type server struct {
	pb.UnimplementedKVServer
	pb.UnimplementedClusterServer
	pb.UnimplementedMaintenanceServer

	addr string
	mu   sync.Mutex
	kv   map[string]string
	rev  int64
	list []*pb.Member
	snap [][]byte
	fail error // what every call answers
	seen []string
}

func (s *server) enter(call string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seen = append(s.seen, call)
	return s.fail
}

func (s *server) Put(_ context.Context, r *pb.PutRequest) (*pb.PutResponse, error) {
	if err := s.enter("put " + string(r.Key)); err != nil {
		return nil, err
	}
	s.rev++
	s.kv[string(r.Key)] = string(r.Value)
	return &pb.PutResponse{Header: &pb.ResponseHeader{Revision: s.rev}}, nil
}

func (s *server) Range(_ context.Context, r *pb.RangeRequest) (*pb.RangeResponse, error) {
	if err := s.enter("get " + string(r.Key)); err != nil {
		return nil, err
	}
	if r.Serializable {
		return nil, errors.New("the read does not go through quorum")
	}
	out := &pb.RangeResponse{Header: &pb.ResponseHeader{Revision: s.rev}}
	if v, ok := s.kv[string(r.Key)]; ok {
		out.Kvs = []*mvccpb.KeyValue{{Key: r.Key, Value: []byte(v), ModRevision: s.rev}}
	}
	return out, nil
}

func (s *server) DeleteRange(_ context.Context, r *pb.DeleteRangeRequest) (*pb.DeleteRangeResponse, error) {
	if err := s.enter("delete " + string(r.Key)); err != nil {
		return nil, err
	}
	s.rev++
	delete(s.kv, string(r.Key))
	return &pb.DeleteRangeResponse{Header: &pb.ResponseHeader{Revision: s.rev}}, nil
}

func (s *server) MemberList(_ context.Context, r *pb.MemberListRequest) (*pb.MemberListResponse, error) {
	if err := s.enter("list"); err != nil {
		return nil, err
	}
	if !r.Linearizable {
		return nil, errors.New("the list does not go through quorum")
	}
	return &pb.MemberListResponse{Members: s.list}, nil
}

func (s *server) MemberAdd(_ context.Context, r *pb.MemberAddRequest) (*pb.MemberAddResponse, error) {
	if err := s.enter("add"); err != nil {
		return nil, err
	}
	for _, m := range s.list {
		if m.PeerURLs[0] == r.PeerURLs[0] {
			return nil, rpctypes.ErrGRPCPeerURLExist
		}
	}
	m := &pb.Member{ID: uint64(len(s.list) + 1), PeerURLs: r.PeerURLs, IsLearner: r.IsLearner}
	s.list = append(s.list, m)
	return &pb.MemberAddResponse{Member: m}, nil
}

func (s *server) MemberRemove(context.Context, *pb.MemberRemoveRequest) (*pb.MemberRemoveResponse, error) {
	if err := s.enter("remove"); err != nil {
		return nil, err
	}
	return nil, rpctypes.ErrGRPCMemberNotFound
}

func (s *server) MemberPromote(context.Context, *pb.MemberPromoteRequest) (*pb.MemberPromoteResponse, error) {
	if err := s.enter("promote"); err != nil {
		return nil, err
	}
	return nil, rpctypes.ErrGRPCLearnerNotReady
}

func (s *server) Status(context.Context, *pb.StatusRequest) (*pb.StatusResponse, error) {
	if err := s.enter("status"); err != nil {
		return nil, err
	}
	return &pb.StatusResponse{
		Header: &pb.ResponseHeader{MemberId: 1, ClusterId: 2}, Version: "3.7.3", DbSize: 10, DbSizeQuota: 20, Leader: 1,
		RaftIndex: 5, RaftAppliedIndex: 4, Errors: []string{"NOSPACE"},
	}, nil
}

func (s *server) Alarm(context.Context, *pb.AlarmRequest) (*pb.AlarmResponse, error) {
	if err := s.enter("alarm"); err != nil {
		return nil, err
	}
	return &pb.AlarmResponse{Alarms: []*pb.AlarmMember{{MemberID: 10, Alarm: pb.AlarmType_NOSPACE}}}, nil
}

func (s *server) Defragment(context.Context, *pb.DefragmentRequest) (*pb.DefragmentResponse, error) {
	return &pb.DefragmentResponse{}, s.enter("defragment")
}

func (s *server) Snapshot(_ *pb.SnapshotRequest, out grpc.ServerStreamingServer[pb.SnapshotResponse]) error {
	for _, b := range s.snap {
		if err := out.Send(&pb.SnapshotResponse{Blob: b}); err != nil {
			return err
		}
	}
	return nil
}

func (s *server) calls() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := s.seen
	s.seen = nil
	return out
}

func (s *server) breaks(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fail = err
}

// pki signs one server certificate, of name "etcd", and one client's.
func pki(t *testing.T) (remote.ClientCert, *tls.Config) {
	t.Helper()
	var ca *x509.Certificate
	var caKey *ecdsa.PrivateKey
	sign := func(c *x509.Certificate) (*x509.Certificate, *ecdsa.PrivateKey) {
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		c.SerialNumber = big.NewInt(time.Now().UnixNano())
		c.NotBefore, c.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
		parent, signer := ca, caKey
		if parent == nil {
			parent, signer = c, key
		}
		der, err := x509.CreateCertificate(rand.Reader, c, parent, key.Public(), signer)
		if err != nil {
			t.Fatal(err)
		}
		out, err := x509.ParseCertificate(der)
		if err != nil {
			t.Fatal(err)
		}
		return out, key
	}
	ca, caKey = sign(&x509.Certificate{IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign, Subject: pkix.Name{CommonName: "ca"}})
	srv, srvKey := sign(&x509.Certificate{DNSNames: []string{"etcd"}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}})
	cli, cliKey := sign(&x509.Certificate{Subject: pkix.Name{CommonName: "hk"}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
	der, err := x509.MarshalECPrivateKey(cliKey)
	if err != nil {
		t.Fatal(err)
	}
	block := func(kind string, b []byte) []byte { return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: b}) }
	pool := x509.NewCertPool()
	pool.AddCert(ca)
	return remote.ClientCert{CA: block("CERTIFICATE", ca.Raw), Cert: block("CERTIFICATE", cli.Raw), Key: block("EC PRIVATE KEY", der)},
		&tls.Config{
			Certificates: []tls.Certificate{{Certificate: [][]byte{srv.Raw}, PrivateKey: srvKey}}, ClientCAs: pool, ClientAuth: tls.RequireAndVerifyClientCert,
			MinVersion: tls.VersionTLS12,
		}
}

func newServer(t *testing.T, conf *tls.Config) *server {
	t.Helper()
	s := &server{kv: map[string]string{}}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s.addr = ln.Addr().String()
	g := grpc.NewServer(grpc.Creds(credentials.NewTLS(conf)))
	pb.RegisterKVServer(g, s)
	pb.RegisterClusterServer(g, s)
	pb.RegisterMaintenanceServer(g, s)
	done := make(chan struct{})
	go func() { _ = g.Serve(ln); close(done) }()
	t.Cleanup(func() { g.Stop(); <-done })
	return s
}

// via stands for a host that dials for hk.
type via struct {
	remote.Host
	to string
	mu sync.Mutex
	n  int
}

func (v *via) Dial(ctx context.Context, addr string) (net.Conn, error) {
	v.mu.Lock()
	v.n++
	v.mu.Unlock()
	if v.to == "" {
		return nil, errors.New("host is down")
	}
	return new(net.Dialer).DialContext(ctx, "tcp", v.to)
}

// cluster is a client of two members: master-1, which is down, and master-2.
func cluster(t *testing.T) (remote.Etcd, *server, *via) {
	t.Helper()
	cert, conf := pki(t)
	s := newServer(t, conf)
	up := &via{to: s.addr}
	e, err := New(cert, []remote.Endpoint{
		{Host: "master-1", Addr: "127.0.0.1:2379", ServerName: "etcd", Via: &via{}},
		{Host: "master-2", Addr: "127.0.0.1:2379", ServerName: "etcd", Via: up},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
	return e, s, up
}

func TestProof(t *testing.T) {
	e, s, up := cluster(t)
	for _, host := range []string{"", "master-2"} {
		if err := e.Proof(t.Context(), host); err != nil {
			t.Fatal(err)
		}
		key := "hk/proof/" + host
		if d := cmp.Diff([]string{"put " + key, "get " + key, "delete " + key}, s.calls()); d != "" {
			t.Error(d)
		}
	}
	if len(s.kv) != 0 {
		t.Errorf("left behind: %v", s.kv)
	}
	if up.n != 1 {
		t.Errorf("%d connections", up.n)
	}
	err := e.Proof(t.Context(), "master-1")
	var we *remote.WorldError
	if !errors.As(err, &we) || !we.Again || we.World != "etcd" || !strings.Contains(err.Error(), "master-1") {
		t.Errorf("a member that is down: %v", err)
	}
	if err := e.Proof(t.Context(), "master-7"); err == nil {
		t.Error("a member that is none")
	}
	s.breaks(rpctypes.ErrGRPCNoLeader)
	if err := e.Proof(t.Context(), ""); !errors.As(err, &we) || !we.Again {
		t.Errorf("no leader: %v", err)
	}
	s.breaks(rpctypes.ErrGRPCNoSpace)
	if err := e.Proof(t.Context(), "master-2"); !errors.Is(err, rpctypes.ErrNoSpace) {
		t.Errorf("no space: %v", err)
	}
}

func TestMembers(t *testing.T) {
	e, _, _ := cluster(t)
	id, err := e.AddLearner(t.Context(), "https://10.100.0.3:2380")
	if err != nil {
		t.Fatal(err)
	}
	if again, err := e.AddLearner(t.Context(), "https://10.100.0.3:2380"); err != nil || again != id {
		t.Errorf("the second call with the same URL: %d %v", again, err)
	}
	list, err := e.Members(t.Context())
	if d := cmp.Diff([]remote.Member{{ID: id, PeerURLs: []string{"https://10.100.0.3:2380"}, Learner: true}}, list); d != "" || err != nil {
		t.Errorf("%s %v", d, err)
	}
	var we *remote.WorldError
	if err := e.Promote(t.Context(), id); !errors.As(err, &we) || !we.Again {
		t.Errorf("a learner that is behind: %v", err)
	}
	if err := e.Remove(t.Context(), id); err != nil {
		t.Errorf("a member that is gone: %v", err)
	}
}

func TestStatus(t *testing.T) {
	e, s, _ := cluster(t)
	got, err := e.Status(t.Context(), "master-2")
	want := &remote.EtcdStatus{Member: 1, ClusterID: 2, Leader: 1, Version: "3.7.3", DBSize: 10, Quota: 20, RaftIndex: 5, Applied: 4, Alarms: []string{"NOSPACE"}}
	if d := cmp.Diff(want, got); d != "" || err != nil {
		t.Errorf("%s %v", d, err)
	}
	alarms, err := e.Alarms(t.Context())
	if d := cmp.Diff([]string{"NOSPACE on member a"}, alarms); d != "" || err != nil {
		t.Errorf("%s %v", d, err)
	}
	if err := e.Defragment(t.Context(), "master-2"); err != nil {
		t.Error(err)
	}
	if d := cmp.Diff([]string{"status", "alarm", "defragment"}, s.calls()); d != "" {
		t.Error(d)
	}
}

func TestSnapshot(t *testing.T) {
	e, s, _ := cluster(t)
	data := bytes.Repeat([]byte("etcd"), 50000)
	sum := sha256.Sum256(data)
	whole := append(bytes.Clone(data), sum[:]...)
	s.snap = [][]byte{whole[:7], whole[7 : len(whole)-5], whole[len(whole)-5:]}
	var buf bytes.Buffer
	n, err := e.Snapshot(t.Context(), "master-2", &buf)
	if err != nil || n != int64(len(whole)) || !bytes.Equal(buf.Bytes(), whole) {
		t.Errorf("%d bytes, %v", n, err)
	}
	s.snap = s.snap[:2]
	if _, err := e.Snapshot(t.Context(), "master-2", &buf); err == nil {
		t.Error("a snapshot cut short passes for a whole one")
	}
}

// A server with another name in its certificate is not spoken to.
func TestServerName(t *testing.T) {
	cert, conf := pki(t)
	s := newServer(t, conf)
	e, err := New(cert, []remote.Endpoint{{Host: "master-1", Addr: s.addr, ServerName: "other"}})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if _, err := e.Status(ctx, "master-1"); err == nil {
		t.Error("it was")
	}
	if len(s.calls()) != 0 {
		t.Error("it was asked")
	}
}
