package network

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"hk/cache/fp"
	"hk/remote"
	"hk/tasks"
	"hk/tasks/internal/fake"
	"hk/tasks/spec"
)

// sets keeps the last set.
type sets struct{ data []byte }

func (s *sets) PutSet(data []byte) (fp.OutputDigest, error) {
	s.data = data
	return fp.OutputDigest{1}, nil
}
func (s *sets) GetSet(fp.OutputDigest) ([]byte, error) { return s.data, nil }

// leaver answers for its own key.
type leaver struct {
	*fake.Host
	key string
}

func (l *leaver) Facts(context.Context, remote.FactsQuery) (*remote.Facts, error) {
	return &remote.Facts{WireGuard: map[string]remote.WGFact{Interface: {PublicKey: l.key}}}, nil
}

// TestPeersKeepWhoLeaves: a host that is being removed stays a peer, in its old
// place, until it was drained; then, and when it does not answer, it is none.
func TestPeersKeepWhoLeaves(t *testing.T) {
	c := newCluster(t, "name: demo\nmasters: {count: 1}\nworkers: [{pool: a, count: 1}, {pool: b, count: 1}]\n")
	for i, n := range []string{"a-3", "a-2"} {
		c.view.Leaving = append(c.view.Leaving, tasks.Leaving{Host: spec.Gone(c.view.Spec, n, 20-i), ServerID: 7, Addr: "198.18.0.77"})
	}
	drained := map[string]bool{}
	v := c.view
	v.OutOf = func(kind, host string) (fp.Output, bool) {
		if strings.HasSuffix(kind, ".remove") {
			return nil, drained[host]
		}
		task, ok := c.g.Lookup(kind + "/" + host)
		if !ok {
			return nil, false
		}
		return c.output(task)
	}
	e := fake.Env(fake.NewVault())
	s := &sets{}
	e.Sets = s
	up := map[string]bool{"a-2": true, "a-3": true}
	e.HostOf = func(name string) (remote.Host, error) {
		if !up[name] {
			return nil, remote.ErrUnreachable
		}
		return &leaver{fake.NewHost(name), "key of " + name}, nil
	}
	peers := func() string {
		t.Helper()
		in, err := peersInputs(&v)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := verifyPeers(t.Context(), in, e); err != nil {
			t.Fatal(err)
		}
		var list []Peer
		if err := json.Unmarshal(s.data, &list); err != nil {
			t.Fatal(err)
		}
		var out []string
		for _, p := range list {
			if p.Public != "key of "+p.Host || p.Endpoint == "" || p.MeshIP == "" {
				t.Errorf("%+v", p)
			}
			out = append(out, p.Host)
		}
		return strings.Join(out, " ")
	}
	if got := peers(); got != "master-1 a-1 a-2 a-3 b-1" {
		t.Errorf("before: %s", got)
	}
	drained["a-3"] = true
	if got := peers(); got != "master-1 a-1 a-2 b-1" {
		t.Errorf("a-3 drained: %s", got)
	}
	up["a-2"] = false
	if got := peers(); got != "master-1 a-1 b-1" {
		t.Errorf("a-2 does not answer: %s", got)
	}
}
