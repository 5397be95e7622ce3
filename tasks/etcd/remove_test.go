package etcd

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"hk/remote"
	"hk/tasks/internal/fake"
)

func TestRemoveProvesTheRestFirst(t *testing.T) {
	member := func(id uint64, host, ip string) remote.Member {
		return remote.Member{ID: id, Name: host, PeerURLs: []string{Member{host, ip}.PeerURL()}, Started: true}
	}
	three := []remote.Member{member(1, "master-1", "10.100.0.1"), member(2, "master-2", "10.100.0.2"), member(3, "master-3", "10.100.0.3")}
	leader := func() *remote.EtcdStatus { return &remote.EtcdStatus{Leader: 1} }
	in := removeIn{Host: "master-3", MeshIP: "10.100.0.3", Server: 7}
	for name, tt := range map[string]struct {
		members []remote.Member
		up      []string
		calls   []string
		says    string
	}{
		"all up":                 {three, []string{"master-1", "master-2", "master-3"}, []string{"proof ", "remove 3", "proof "}, ""},
		"it is off":              {three, []string{"master-1", "master-2"}, []string{"proof ", "remove 3", "proof "}, ""},
		"another is off":         {three, []string{"master-1", "master-3"}, nil, "1 of the 2 members that stay are healthy, 2 are needed; not healthy: master-2"},
		"gone already":           {three[:2], []string{"master-1", "master-2"}, []string{"proof "}, ""},
		"two, the other is fine": {[]remote.Member{three[0], three[2]}, []string{"master-1"}, []string{"proof ", "remove 3", "proof "}, ""},
		"the only one":           {three[2:], []string{"master-3"}, nil, "it is the only member"},
		"never started":          {[]remote.Member{three[0], {ID: 3, PeerURLs: three[2].PeerURLs, Learner: true}}, []string{"master-1"}, []string{"proof ", "remove 3", "proof "}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := &fake.Etcd{List: slices.Clone(tt.members), Says: map[string]*remote.EtcdStatus{}}
				for _, h := range tt.up {
					c.Says[h] = leader()
				}
				e := fake.Env(fake.NewVault())
				e.EtcdBorn = true
				e.Etcd = func() (remote.Etcd, error) { return c, nil }
				err := runRemove(t.Context(), in, e)
				if err == nil {
					_, err = verifyRemove(t.Context(), in, e)
				}
				if tt.says == "" && err != nil || tt.says != "" && (err == nil || !strings.Contains(err.Error(), tt.says)) {
					t.Errorf("error %v, want %q", err, tt.says)
				}
				if !slices.Equal(c.Calls, tt.calls) {
					t.Errorf("calls %v, want %v", c.Calls, tt.calls)
				}
			})
		})
	}
}

// TestRemoveBeforeBirth: an etcd that never lived has nobody to ask.
func TestRemoveBeforeBirth(t *testing.T) {
	e := fake.Env(fake.NewVault())
	e.Etcd = func() (remote.Etcd, error) { return nil, remote.ErrNotFound }
	in := removeIn{Host: "master-3", MeshIP: "10.100.0.3"}
	if err := runRemove(t.Context(), in, e); err != nil {
		t.Error(err)
	}
	e.EtcdBorn = true
	if err := runRemove(t.Context(), in, e); err == nil {
		t.Error("a member was forgotten without being asked about")
	}
}
