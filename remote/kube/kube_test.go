package kube

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"errors"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"hk/remote"
)

// authority signs what a test needs.
type authority struct {
	t    *testing.T
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{t: t}
	a.cert, a.key = a.sign(&x509.Certificate{IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign, Subject: pkix.Name{CommonName: "ca"}})
	return a
}

func (a *authority) sign(c *x509.Certificate) (*x509.Certificate, *ecdsa.PrivateKey) {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.t.Fatal(err)
	}
	c.SerialNumber = big.NewInt(time.Now().UnixNano())
	c.NotBefore, c.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	parent, signer := a.cert, a.key
	if parent == nil {
		parent, signer = c, key
	}
	der, err := x509.CreateCertificate(rand.Reader, c, parent, key.Public(), signer)
	if err != nil {
		a.t.Fatal(err)
	}
	out, err := x509.ParseCertificate(der)
	if err != nil {
		a.t.Fatal(err)
	}
	return out, key
}

func pemOf(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}

func (a *authority) client() remote.ClientCert {
	a.t.Helper()
	c, key := a.sign(&x509.Certificate{Subject: pkix.Name{CommonName: "admin"}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		a.t.Fatal(err)
	}
	return remote.ClientCert{CA: pemOf("CERTIFICATE", a.cert.Raw), Cert: pemOf("CERTIFICATE", c.Raw), Key: pemOf("EC PRIVATE KEY", der)}
}

// server is an API server that knows who asks and keeps a list of it.
type server struct {
	*httptest.Server
	mu    sync.Mutex
	asked []string
	last  []byte
}

func newServer(a *authority, h func(w http.ResponseWriter, r *http.Request, body []byte)) *server {
	a.t.Helper()
	s := new(server)
	s.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		s.mu.Lock()
		s.asked, s.last = append(s.asked, r.Method+" "+r.URL.RequestURI()), body
		s.mu.Unlock()
		if len(r.TLS.PeerCertificates) != 1 || r.TLS.PeerCertificates[0].Subject.CommonName != "admin" {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		h(w, r, body)
	}))
	cert, key := a.sign(&x509.Certificate{DNSNames: []string{"kubernetes"}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}})
	pool := x509.NewCertPool()
	pool.AddCert(a.cert)
	s.TLS = &tls.Config{
		Certificates: []tls.Certificate{{Certificate: [][]byte{cert.Raw}, PrivateKey: key}}, ClientCAs: pool, ClientAuth: tls.VerifyClientCertIfGiven,
	}
	s.EnableHTTP2 = true
	s.StartTLS()
	a.t.Cleanup(s.Close)
	return s
}

func (s *server) endpoint(host string) remote.Endpoint {
	return remote.Endpoint{Host: host, Addr: s.Listener.Addr().String(), ServerName: "kubernetes"}
}

func (s *server) requests() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := s.asked
	s.asked = nil
	return out
}

func status(w http.ResponseWriter, code int, reason string) {
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(map[string]any{"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": reason, "code": code, "message": reason})
}

func client(t *testing.T, a *authority, ends ...remote.Endpoint) remote.Kube {
	t.Helper()
	k, err := New(a.client(), ends)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func TestApply(t *testing.T) {
	a := newAuthority(t)
	s := newServer(a, func(w http.ResponseWriter, r *http.Request, body []byte) {
		if r.Method == http.MethodGet {
			_, _ = io.WriteString(w, `{"resources":[{"name":"widgets","kind":"Widget","namespaced":false},{"name":"widgets/status","kind":"Widget","namespaced":false}]}`)
			return
		}
		_, _ = w.Write(body)
	})
	k := client(t, a, s.endpoint("master-1"))
	for manifest, want := range map[string][]string{
		"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: x, namespace: kube-system}\ndata: {a: b}\n": {"PATCH /api/v1/namespaces/kube-system/configmaps/x?fieldManager=hk&force=true"},
		"apiVersion: apps/v1\nkind: DaemonSet\nmetadata: {name: x}\n":                                  {"PATCH /apis/apps/v1/namespaces/default/daemonsets/x?fieldManager=hk&force=true"},
		`{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"x"}}`:                               {"PATCH /api/v1/namespaces/x?fieldManager=hk&force=true"},
		"apiVersion: example.com/v1\nkind: Widget\nmetadata: {name: x}\n":                              {"GET /apis/example.com/v1", "PATCH /apis/example.com/v1/widgets/x?fieldManager=hk&force=true"},
	} {
		if err := k.Apply(t.Context(), []byte(manifest)); err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(want, s.requests()); d != "" {
			t.Error(d)
		}
	}
	for _, bad := range []string{"kind: x", "\t", "apiVersion: v1\nkind: ConfigMap\n"} {
		if err := k.Apply(t.Context(), []byte(bad)); err == nil || len(s.requests()) != 0 {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

const nodeJSON = `{"apiVersion":"v1","kind":"Node","metadata":{"name":"demo-worker-1","uid":"u","resourceVersion":"7","labels":{"a":"1","b":"2"}},
"spec":{"providerID":"hcloud://1","taints":[{"key":"other","effect":"NoExecute","timeAdded":"2026-12-01T00:00:00Z"},{"key":"old","effect":"NoSchedule"}]},
"status":{"addresses":[{"type":"InternalIP","address":"10.100.0.4"}],"nodeInfo":{"kubeletVersion":"v1.37.2"},
"conditions":[{"type":"MemoryPressure","status":"False"},{"type":"DiskPressure","status":"True"},{"type":"Ready","status":"False","reason":"KubeletNotReady","message":"cni"}]}}`

func TestNode(t *testing.T) {
	a := newAuthority(t)
	conflict := 1
	s := newServer(a, func(w http.ResponseWriter, r *http.Request, body []byte) {
		switch {
		case strings.HasSuffix(r.URL.Path, "/gone"):
			status(w, 404, "NotFound")
		case r.Method == http.MethodPatch && conflict > 0:
			conflict--
			status(w, 409, "Conflict")
		default:
			_, _ = io.WriteString(w, nodeJSON)
		}
	})
	k := client(t, a, s.endpoint("master-1"))
	n, err := k.Node(t.Context(), "demo-worker-1")
	if err != nil {
		t.Fatal(err)
	}
	want := &remote.Node{
		Name: "demo-worker-1", UID: "u", ProviderID: "hcloud://1", KubeletVersion: "v1.37.2", Labels: map[string]string{"a": "1", "b": "2"},
		Taints:         []remote.Taint{{Key: "other", Effect: "NoExecute"}, {Key: "old", Effect: "NoSchedule"}},
		NotReadyReason: "KubeletNotReady", NotReadyMessage: "cni", Pressure: []string{"DiskPressure"}, Addresses: []string{"10.100.0.4"},
	}
	if d := cmp.Diff(want, n); d != "" {
		t.Error(d)
	}
	_, err = k.Node(t.Context(), "gone")
	var we *remote.WorldError
	if !errors.Is(err, remote.ErrNotFound) || !errors.As(err, &we) || we.Again {
		t.Errorf("%v", err)
	}
	if err := k.DeleteNode(t.Context(), "gone"); err != nil {
		t.Errorf("deleting what is gone: %v", err)
	}
	s.requests()

	if err := k.PatchNode(t.Context(), "demo-worker-1", remote.NodePatch{
		Labels: map[string]string{"a": "1", "c": "3"}, RemoveLabels: []string{"b", "z"}, PodCIDR: "10.128.4.0/24",
		Taints: []remote.Taint{{Key: "new", Effect: "NoSchedule"}}, RemoveTaints: []remote.Taint{{Key: "old", Effect: "NoSchedule"}},
	}); err != nil {
		t.Fatal(err)
	}
	if got := s.requests(); len(got) != 4 {
		t.Errorf("one conflict is two looks and two patches: %q", got)
	}
	var patch map[string]any
	if err := json.Unmarshal(s.last, &patch); err != nil {
		t.Fatal(err)
	}
	wantPatch := map[string]any{
		"metadata": map[string]any{"resourceVersion": "7", "labels": map[string]any{"b": nil, "c": "3"}},
		"spec": map[string]any{"podCIDR": "10.128.4.0/24", "podCIDRs": []any{"10.128.4.0/24"}, "taints": []any{
			map[string]any{"key": "other", "effect": "NoExecute", "timeAdded": "2026-12-01T00:00:00Z"},
			map[string]any{"key": "new", "value": "", "effect": "NoSchedule"},
		}},
	}
	if d := cmp.Diff(wantPatch, patch); d != "" {
		t.Error(d)
	}
	if err := k.PatchNode(t.Context(), "demo-worker-1", remote.NodePatch{Labels: map[string]string{"a": "1"}}); err != nil || len(s.requests()) != 1 {
		t.Errorf("a Node that is so already is written: %v", err)
	}
	if err := k.Cordon(t.Context(), "demo-worker-1", false); err != nil || len(s.requests()) != 1 {
		t.Errorf("uncordon of a Node that is not cordoned: %v", err)
	}
	if err := k.Cordon(t.Context(), "demo-worker-1", true); err != nil || string(s.last) != `{"spec":{"unschedulable":true}}` {
		t.Errorf("%v %s", err, s.last)
	}
}

func TestRolloutAndList(t *testing.T) {
	a := newAuthority(t)
	answer := ""
	s := newServer(a, func(w http.ResponseWriter, r *http.Request, _ []byte) { _, _ = io.WriteString(w, answer) })
	k := client(t, a, s.endpoint("master-1"))
	for in, want := range map[string]remote.Rollout{
		`{"kind":"Deployment","apiVersion":"apps/v1","metadata":{"name":"x","generation":2},"spec":{"replicas":3},"status":{"observedGeneration":2,"updatedReplicas":2,"availableReplicas":1}}`:          {Desired: 3, Updated: 2, Available: 1},
		`{"kind":"Deployment","apiVersion":"apps/v1","metadata":{"name":"x","generation":3},"spec":{"replicas":3},"status":{"observedGeneration":2,"updatedReplicas":3,"availableReplicas":3}}`:          {Desired: 3},
		`{"kind":"DaemonSet","apiVersion":"apps/v1","metadata":{"name":"x","generation":1},"status":{"observedGeneration":1,"desiredNumberScheduled":5,"updatedNumberScheduled":4,"numberAvailable":3}}`: {Desired: 5, Updated: 4, Available: 3},
	} {
		answer = in
		ref := remote.ObjectRef{Group: "apps", Version: "v1", Resource: "deployments", Namespace: "kube-system", Name: "x"}
		if strings.Contains(in, "DaemonSet") {
			ref.Resource = "daemonsets"
		}
		got, err := k.Rollout(t.Context(), ref)
		if err != nil || *got != want {
			t.Errorf("%+v %v", got, err)
		}
	}
	answer = `{"kind":"NodeList","apiVersion":"v1","metadata":{},"items":[` + nodeJSON + `]}`
	nodes, err := k.Nodes(t.Context())
	if err != nil || len(nodes) != 1 || nodes[0].Name != "demo-worker-1" {
		t.Errorf("%v %v", nodes, err)
	}
	b, err := k.Get(t.Context(), remote.ObjectRef{Version: "v1", Resource: "nodes"})
	if err != nil || !strings.Contains(string(b), "demo-worker-1") {
		t.Errorf("%s %v", b, err)
	}
}

func TestPodsAndEvictions(t *testing.T) {
	a := newAuthority(t)
	code := http.StatusCreated
	s := newServer(a, func(w http.ResponseWriter, r *http.Request, _ []byte) {
		if r.Method == http.MethodPost {
			status(w, code, map[int]string{404: "NotFound", 409: "Conflict", 429: "TooManyRequests"}[code])
			return
		}
		_, _ = io.WriteString(w, `{"kind":"PodList","apiVersion":"v1","metadata":{},"items":[
			{"metadata":{"namespace":"a","name":"web","uid":"1","ownerReferences":[{"kind":"ReplicaSet","controller":true}]},"status":{"phase":"Running"}},
			{"metadata":{"namespace":"a","name":"agent","uid":"2","ownerReferences":[{"kind":"DaemonSet","controller":true}]}},
			{"metadata":{"namespace":"a","name":"etcd","uid":"3","annotations":{"kubernetes.io/config.mirror":"x"}}},
			{"metadata":{"namespace":"a","name":"job","uid":"4","deletionTimestamp":"2026-12-01T00:00:00Z"},"status":{"phase":"Succeeded"}}]}`)
	})
	k := client(t, a, s.endpoint("master-1"))
	got, err := k.PodsOn(t.Context(), "demo-worker-1")
	if err != nil {
		t.Fatal(err)
	}
	want := []remote.Pod{
		{Namespace: "a", Name: "web", UID: "1"},
		{Namespace: "a", Name: "agent", UID: "2", Bound: true},
		{Namespace: "a", Name: "etcd", UID: "3", Bound: true},
		{Namespace: "a", Name: "job", UID: "4", Finished: true, Leaving: true},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	if r := s.requests(); len(r) != 1 || r[0] != "GET /api/v1/pods?fieldSelector=spec.nodeName%3Ddemo-worker-1" {
		t.Errorf("requests %v", r)
	}
	for answer, ok := range map[int]func(error) bool{
		201: func(err error) bool { return err == nil },
		404: func(err error) bool { return err == nil },
		409: func(err error) bool { return err == nil }, // another pod has the name by now
		429: func(err error) bool { return errors.Is(err, remote.ErrBudget) },
		403: func(err error) bool { return err != nil && !errors.Is(err, remote.ErrBudget) },
	} {
		code = answer
		if err := k.Evict(t.Context(), want[0]); !ok(err) {
			t.Errorf("%d: %v", answer, err)
		}
		if r := s.requests(); len(r) != 1 || r[0] != "POST /api/v1/namespaces/a/pods/web/eviction?fieldManager=hk" {
			t.Errorf("requests %v", r)
		}
		if !strings.Contains(string(s.last), `"preconditions":{"uid":"1"}`) {
			t.Errorf("body %s", s.last)
		}
	}
}

// A master that is down costs one dial; the next one answers, and is asked
// first from then on.
func TestFailover(t *testing.T) {
	a := newAuthority(t)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	down := remote.Endpoint{Host: "master-1", Addr: ln.Addr().String(), ServerName: "kubernetes"}
	ln.Close()
	sick := newServer(a, func(w http.ResponseWriter, _ *http.Request, _ []byte) { status(w, 503, "ServiceUnavailable") })
	well := newServer(a, func(w http.ResponseWriter, _ *http.Request, _ []byte) {
		_, _ = io.WriteString(w, `{"gitVersion":"v1.37.2"}`)
	})
	k := client(t, a, well.endpoint(External), down, sick.endpoint("master-2"), well.endpoint("master-3"))
	for range 2 {
		if v, err := k.Version(t.Context()); err != nil || v != "v1.37.2" {
			t.Fatalf("%s %v", v, err)
		}
	}
	if n := len(sick.requests()); n != 1 {
		t.Errorf("the sick master was asked %d times", n)
	}
	if k.(*Client).ends[3].Host != External {
		t.Error("the external endpoint is not the last")
	}
	k = client(t, a, down, sick.endpoint("master-2"))
	_, err = k.Version(t.Context())
	var we *remote.WorldError
	if !errors.As(err, &we) || !we.Again || !strings.Contains(err.Error(), "master-1") || !strings.Contains(err.Error(), "master-2") {
		t.Errorf("%v", err)
	}
}

func TestReadyAt(t *testing.T) {
	a := newAuthority(t)
	ready := false
	s := newServer(a, func(w http.ResponseWriter, r *http.Request, _ []byte) {
		if !ready {
			w.WriteHeader(500)
			_, _ = io.WriteString(w, "[-]etcd failed")
		}
	})
	k := client(t, a, s.endpoint("master-1"))
	err := k.ReadyAt(t.Context(), "master-1")
	var we *remote.WorldError
	if !errors.As(err, &we) || !we.Again || !strings.Contains(err.Error(), "[-]etcd failed") {
		t.Errorf("%v", err)
	}
	ready = true
	for _, via := range []string{"master-1", ""} {
		if err := k.ReadyAt(t.Context(), via); err != nil {
			t.Errorf("%q: %v", via, err)
		}
	}
	if err := k.ReadyAt(t.Context(), "master-9"); err == nil {
		t.Error("a master that is none")
	}
}

func TestServedCA(t *testing.T) {
	a, other := newAuthority(t), newAuthority(t)
	h := func(http.ResponseWriter, *http.Request, []byte) {}
	s, foreign := newServer(a, h), newServer(other, h)
	k := client(t, a, s.endpoint("master-1"), foreign.endpoint("master-2"))
	sum := sha256.Sum256(a.cert.Raw)
	if got, err := k.ServedCA(t.Context(), "master-1"); err != nil || got != hex.EncodeToString(sum[:]) {
		t.Errorf("%s %v", got, err)
	}
	_, err := k.ServedCA(t.Context(), "master-2")
	if _, ok := errors.AsType[x509.UnknownAuthorityError](err); !ok {
		t.Errorf("a server of other roots: %v", err)
	}
}

// tunnel stands for a host that dials for hk.
type tunnel struct {
	remote.Host
	to    string
	dials []string
}

func (h *tunnel) Dial(ctx context.Context, addr string) (net.Conn, error) {
	h.dials = append(h.dials, addr)
	return new(net.Dialer).DialContext(ctx, "tcp", h.to)
}

func TestVia(t *testing.T) {
	a := newAuthority(t)
	s := newServer(a, func(w http.ResponseWriter, _ *http.Request, _ []byte) {
		_, _ = io.WriteString(w, `{"gitVersion":"v1.37.2"}`)
	})
	h := &tunnel{to: s.Listener.Addr().String()}
	k := client(t, a, remote.Endpoint{Host: "master-1", Addr: "127.0.0.1:6443", ServerName: "kubernetes", Via: h})
	for range 3 {
		if _, err := k.Version(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if d := cmp.Diff([]string{"127.0.0.1:6443"}, h.dials); d != "" {
		t.Errorf("three calls, one connection: %s", d)
	}
}
