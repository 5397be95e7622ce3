package provision

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"

	"hk/cache/fp"
	"hk/remote"
	"hk/tasks"
	"hk/tasks/spec"
)

// project is a cloud project in memory for the cluster's objects.
type project struct {
	remote.Cloud
	mu      sync.Mutex
	inv     remote.Inventory
	creates int
	lost    bool // the answer to every create is lost
	hidden  bool // the last look is from before anything was made
	zone    string
	attach  bool // new load balancers are attached to their networks at once
}

// answer is the end of a create: nil if its name is taken.
func (p *project) answer(taken bool) error {
	if taken {
		return &remote.CloudError{Code: uniquenessError, Message: "name is already used"}
	}
	p.creates++
	if p.lost {
		return &remote.CloudError{Message: "connection reset", Again: true}
	}
	return nil
}

func (p *project) Inventory(context.Context) (*remote.Inventory, error) { return p.look(), nil }

func (p *project) look() *remote.Inventory {
	p.mu.Lock()
	defer p.mu.Unlock()
	inv := p.inv
	return &inv
}

// add is a create: the name must be free.
func add[T any](p *project, list *[]T, o T, name func(*T) (string, map[string]string)) (*T, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	want, _ := name(&o)
	for i := range *list {
		if n, _ := name(&(*list)[i]); n == want {
			return nil, p.answer(true)
		}
	}
	*list = append(*list, o)
	return &o, p.answer(false)
}

func (p *project) Catalog(context.Context) (*remote.Catalog, error) {
	return &remote.Catalog{Locations: map[string]string{"fsn1": "eu-central"}}, nil
}

func (p *project) CreateNetwork(_ context.Context, n remote.Network, zone string) (*remote.Network, error) {
	n.ID, p.zone = 11, zone
	return add(p, &p.inv.Networks, n, networkName)
}

func (p *project) CreateFirewall(_ context.Context, f remote.Firewall) (*remote.Firewall, error) {
	f.ID = int64(21 + len(p.inv.Firewalls))
	return add(p, &p.inv.Firewalls, f, firewallName)
}

func (p *project) SetFirewallRules(_ context.Context, id int64, rules []remote.Rule) error {
	for i := range p.inv.Firewalls {
		if p.inv.Firewalls[i].ID == id {
			p.inv.Firewalls[i].Rules = rules
		}
	}
	return nil
}

func (p *project) CreatePlacementGroup(_ context.Context, g remote.PlacementGroup) (*remote.PlacementGroup, error) {
	g.ID = 31
	return add(p, &p.inv.PlacementGroups, g, groupName)
}

func (p *project) CreateSSHKey(_ context.Context, k remote.SSHKey) (*remote.SSHKey, error) {
	k.ID = 41
	return add(p, &p.inv.SSHKeys, k, func(k *remote.SSHKey) (string, map[string]string) { return keyBody(k.PublicKey), nil })
}

func (p *project) CreateLoadBalancer(_ context.Context, lb remote.LoadBalancer) (*remote.LoadBalancer, error) {
	lb.ID, lb.IPv4 = 51, "198.18.0.200"
	if !p.attach {
		lb.Networks = nil
	}
	return add(p, &p.inv.LoadBalancers, lb, loadBalancerName)
}

func (p *project) LoadBalancer(context.Context, int64) (*remote.LoadBalancer, error) {
	lb := p.inv.LoadBalancers[0]
	return &lb, nil
}

// keyVault holds the operator's public key.
type keyVault struct {
	tasks.Vault
	key string
}

func (v keyVault) Secret(name string) ([]byte, error) {
	if name != OperatorKey || v.key == "" {
		return nil, remote.ErrNotFound
	}
	return []byte(v.key), nil
}

const publicKey = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIMTsbRU5dhMapAngsqTdmK8ebotMbpfzDgRzPQBNtS3X"

func newProject() (*project, *tasks.Env, map[string]string) {
	p, notes := &project{attach: true}, map[string]string{}
	return p, &tasks.Env{
		Cluster: "demo", UID: "uid", Cloud: p, Log: func(string) {}, Note: func(k, v string) { notes[k] = v },
		Vault: keyVault{key: publicKey + " op@laptop\n"},
		Found: func() *remote.Inventory {
			if p.hidden {
				return nil
			}
			return p.look()
		},
	}, notes
}

// made is run and verify of one cluster task.
type made struct {
	run    func(ctx context.Context, e *tasks.Env) error
	verify func(ctx context.Context, e *tasks.Env) (fp.Output, error)
}

func objects() map[string]made {
	n := networkIn{Name: "demo", Range: "10.99.0.0/16", Location: "fsn1"}
	f := firewallIn{Name: "demo", MeshPort: 51820, SSHPort: 22, Endpoint: spec.EndpointMaster}
	g := placementIn{Name: "demo", Groups: []string{"demo-master-1", "demo-worker-1"}}
	k := sshKeyIn{Name: "demo", KeyID: "id"}
	l := loadBalancerIn{Name: "demo", Location: "fsn1", Network: 11}
	return map[string]made{
		"network": {
			func(ctx context.Context, e *tasks.Env) error { return runNetwork(ctx, n, e) },
			func(ctx context.Context, e *tasks.Env) (fp.Output, error) { return verifyNetwork(ctx, n, e) },
		},
		"firewall": {
			func(ctx context.Context, e *tasks.Env) error { return runFirewall(ctx, f, e) },
			func(ctx context.Context, e *tasks.Env) (fp.Output, error) { return verifyFirewall(ctx, f, e) },
		},
		"placement": {
			func(ctx context.Context, e *tasks.Env) error { return runPlacement(ctx, g, e) },
			func(ctx context.Context, e *tasks.Env) (fp.Output, error) { return verifyPlacement(ctx, g, e) },
		},
		"ssh key": {
			func(ctx context.Context, e *tasks.Env) error { return runSSHKey(ctx, k, e) },
			func(ctx context.Context, e *tasks.Env) (fp.Output, error) { return verifySSHKey(ctx, k, e) },
		},
		"load balancer": {
			func(ctx context.Context, e *tasks.Env) error { return runLoadBalancer(ctx, l, e) },
			func(ctx context.Context, e *tasks.Env) (fp.Output, error) { return verifyLoadBalancer(ctx, l, e) },
		},
	}
}

// TestObjectsAreMadeOnce: whatever becomes of the answers, and whether or not
// the last look knows of them, there is one object each, and it carries our UID.
func TestObjectsAreMadeOnce(t *testing.T) {
	want := map[string]int{"network": 1, "firewall": 2, "placement": 2, "ssh key": 1, "load balancer": 1}
	for name, o := range objects() {
		for _, how := range []string{"answered", "lost", "unseen"} {
			t.Run(name+" "+how, func(t *testing.T) {
				p, e, _ := newProject()
				p.lost, p.hidden = how == "lost", how == "unseen"
				for range 2 {
					if err := o.run(t.Context(), e); err != nil {
						t.Fatal(err)
					}
					if _, err := o.verify(t.Context(), e); err != nil {
						t.Fatal(err)
					}
				}
				if name == "network" && p.zone != "eu-central" {
					t.Errorf("network zone %q", p.zone)
				}
				if p.creates != want[name] {
					t.Errorf("%d creates, want %d", p.creates, want[name])
				}
				for _, l := range labelsOf(&p.inv) {
					if l[remote.LabelUID] != "uid" || l[remote.LabelCluster] != "demo" {
						t.Errorf("labels %v", l)
					}
				}
			})
		}
	}
}

func labelsOf(inv *remote.Inventory) []map[string]string {
	var out []map[string]string
	for i := range inv.Networks {
		out = append(out, inv.Networks[i].Labels)
	}
	for i := range inv.Firewalls {
		out = append(out, inv.Firewalls[i].Labels)
	}
	for i := range inv.PlacementGroups {
		out = append(out, inv.PlacementGroups[i].Labels)
	}
	for i := range inv.SSHKeys {
		out = append(out, inv.SSHKeys[i].Labels)
	}
	for i := range inv.LoadBalancers {
		out = append(out, inv.LoadBalancers[i].Labels)
	}
	return out
}

func TestForeignNetworkStaysUntouched(t *testing.T) {
	p, e, _ := newProject()
	p.inv.Networks = []remote.Network{{ID: 1, Name: "demo", Range: "10.0.0.0/8"}}
	err := objects()["network"].run(t.Context(), e)
	var ce *remote.CloudError
	if err == nil || !strings.Contains(err.Error(), "is not ours and stays untouched") || !errors.As(err, &ce) {
		t.Errorf("error %v", err)
	}
	if len(p.inv.Networks) != 1 || len(p.inv.Networks[0].Labels) != 0 {
		t.Errorf("%+v", p.inv.Networks)
	}
}

// TestForeignKeyIsUsed: the operator's key is in the project already, under
// another name; it is used and stays as it is.
func TestForeignKeyIsUsed(t *testing.T) {
	p, e, _ := newProject()
	p.inv.SSHKeys = []remote.SSHKey{{ID: 3, Name: "laptop", PublicKey: publicKey + " other comment"}}
	o := objects()["ssh key"]
	if err := o.run(t.Context(), e); err != nil {
		t.Fatal(err)
	}
	out, err := o.verify(t.Context(), e)
	if err != nil || out["id"] != "3" || p.creates != 0 || p.inv.SSHKeys[0].Labels != nil {
		t.Errorf("%v %v %+v", out, err, p.inv.SSHKeys)
	}
	for _, key := range []string{"", "no key"} {
		e.Vault = keyVault{key: key}
		if err := o.run(t.Context(), e); err == nil {
			t.Errorf("operator's key %q: no error", key)
		}
	}
}

func TestFirewallIsRepaired(t *testing.T) {
	p, e, notes := newProject()
	o := objects()["firewall"]
	if err := o.run(t.Context(), e); err != nil {
		t.Fatal(err)
	}
	out, err := o.verify(t.Context(), e)
	if err != nil || out["id"] != "21" || out["masters_id"] != "22" {
		t.Errorf("%v %v", out, err)
	}
	good := notes["cloud:firewall"]
	p.inv.Firewalls[0].Rules = p.inv.Firewalls[0].Rules[:1]
	if _, err := o.verify(t.Context(), e); err == nil || !strings.Contains(err.Error(), "demo [tcp 22]") {
		t.Errorf("two rules gone: %v", err)
	}
	if err := o.run(t.Context(), e); err != nil {
		t.Fatal(err)
	}
	if _, err := o.verify(t.Context(), e); err != nil || notes["cloud:firewall"] != good || p.creates != 2 {
		t.Errorf("%v, %d creates, noted %q", err, p.creates, notes["cloud:firewall"])
	}
}

func TestLoadBalancerIsWaitedFor(t *testing.T) {
	p, e, _ := newProject()
	p.attach = false
	o := objects()["load balancer"]
	if err := o.run(t.Context(), e); err != nil {
		t.Fatal(err)
	}
	var again tasks.Transient
	if _, err := o.verify(t.Context(), e); !errors.As(err, &again) {
		t.Errorf("not attached: %v", err)
	}
	p.inv.LoadBalancers[0].Networks = []int64{11}
	if out, err := o.verify(t.Context(), e); err != nil || out["ipv4"] != "198.18.0.200" || out["id"] != "51" {
		t.Errorf("%v %v", out, err)
	}
}

func TestUnknownLocation(t *testing.T) {
	p, e, _ := newProject()
	err := runNetwork(t.Context(), networkIn{Name: "demo", Range: "10.99.0.0/16", Location: "mars1"}, e)
	if err == nil || !strings.Contains(err.Error(), "no location mars1") || p.creates != 0 {
		t.Errorf("error %v, %d creates", err, p.creates)
	}
}
