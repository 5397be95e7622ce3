package api_test

import (
	"fmt"
	"net"
	"strings"
	"testing"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"

	"hk/remote/lab/api"
)

func TestServerLife(t *testing.T) {
	w := newWorld(t)
	s := w.server(t, "one", func(o *hcloud.ServerCreateOpts) { o.Labels = map[string]string{"a": "b"} })
	if s.Status != hcloud.ServerStatusRunning || s.Locked || s.PublicNet.IPv4.IP == nil || s.Labels["a"] != "b" || s.Image.Name != "debian-12" {
		t.Fatalf("after creation: %+v", s)
	}
	if s.PublicNet.IPv6.IP != nil {
		t.Error("the lab has no IPv6 and says so")
	}
	act, _, err := w.Server.Poweroff(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	w.wait(t, act)
	if got := w.get(t, s.ID).Status; got != hcloud.ServerStatusOff {
		t.Errorf("after poweroff: %s", got)
	}
	act, _, err = w.Server.ChangeType(t.Context(), s, hcloud.ServerChangeTypeOpts{ServerType: &hcloud.ServerType{Name: "cx33"}})
	if err != nil {
		t.Fatal(err)
	}
	w.wait(t, act)
	if got := w.get(t, s.ID); got.ServerType.Name != "cx33" || got.PrimaryDiskSize != 40 {
		t.Errorf("after change of type: %s, disk %d", got.ServerType.Name, got.PrimaryDiskSize)
	}
	act, _, err = w.Server.Poweron(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	w.wait(t, act)
	_, _, err = w.Server.ChangeType(t.Context(), s, hcloud.ServerChangeTypeOpts{ServerType: &hcloud.ServerType{Name: "cx43"}})
	wantCode(t, err, hcloud.ErrorCodeServerNotStopped)

	// It reboots, which is to be started again, and then goes off by itself.
	started := w.fake.did(fmt.Sprintf("start %d", s.ID))
	w.fake.set(s.ID, api.PowerReboot)
	w.api.Exited(s.ID)
	eventually(t, "it is started again", func() bool { return w.fake.did(fmt.Sprintf("start %d", s.ID)) == started+1 })
	if got := w.get(t, s.ID).Status; got != hcloud.ServerStatusRunning {
		t.Errorf("after a reboot: %s", got)
	}
	w.fake.set(s.ID, api.PowerOff)
	w.api.Exited(s.ID)
	eventually(t, "it is off", func() bool { return w.get(t, s.ID).Status == hcloud.ServerStatusOff })
	r, _, err := w.Server.RebuildWithResult(t.Context(), s, hcloud.ServerRebuildOpts{Image: &hcloud.Image{Name: "hk-snapshot"}})
	if err != nil {
		t.Fatal(err)
	}
	w.wait(t, r.Action)
	if got := w.get(t, s.ID); got.Status != hcloud.ServerStatusRunning || !got.PublicNet.IPv4.IP.Equal(s.PublicNet.IPv4.IP) || got.Image.Description != "hk-snapshot" {
		t.Errorf("after rebuild: %+v", got)
	}
	if w.fake.did(fmt.Sprintf("wipe %d", s.ID)) != 1 {
		t.Error("the disk was not wiped")
	}

	yes, no := true, false
	act, _, err = w.Server.ChangeProtection(t.Context(), s, hcloud.ServerChangeProtectionOpts{Delete: &yes, Rebuild: &yes})
	if err != nil {
		t.Fatal(err)
	}
	w.wait(t, act)
	_, _, err = w.Server.DeleteWithResult(t.Context(), s)
	wantCode(t, err, hcloud.ErrorCodeProtected)
	_, _, err = w.Server.RebuildWithResult(t.Context(), s, hcloud.ServerRebuildOpts{Image: &hcloud.Image{Name: "debian-12"}})
	wantCode(t, err, hcloud.ErrorCodeProtected)
	if _, _, err = w.Server.ChangeProtection(t.Context(), s, hcloud.ServerChangeProtectionOpts{Delete: &no, Rebuild: &no}); err != nil {
		t.Fatal(err)
	}
	d, _, err := w.Server.DeleteWithResult(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	w.wait(t, d.Action)
	if got := w.get(t, s.ID); got != nil {
		t.Errorf("after deletion: %+v", got)
	}
	if list, err := w.Action.AllWithOpts(t.Context(), hcloud.ActionListOpts{ID: []int64{act.ID, d.Action.ID}}); err != nil || len(list) != 2 {
		t.Errorf("actions by ID: %d %v", len(list), err)
	}
}

func TestServerRefusals(t *testing.T) {
	w := newWorld(t)
	group, _, err := w.PlacementGroup.Create(t.Context(), hcloud.PlacementGroupCreateOpts{Name: "g", Type: hcloud.PlacementGroupTypeSpread})
	if err != nil {
		t.Fatal(err)
	}
	in := func(o *hcloud.ServerCreateOpts) { o.PlacementGroup = group.PlacementGroup }
	for i := range 10 {
		w.server(t, fmt.Sprintf("s%d", i), in)
	}
	for name, c := range map[string]struct {
		change func(*hcloud.ServerCreateOpts)
		code   hcloud.ErrorCode
	}{
		"eleventh of a group": {in, hcloud.ErrorCodePlacementError},
		"name taken":          {func(o *hcloud.ServerCreateOpts) { o.Name = "S3" }, hcloud.ErrorCodeUniquenessError},
		"name is no hostname": {func(o *hcloud.ServerCreateOpts) { o.Name = "a_b" }, hcloud.ErrorCodeInvalidInput},
		"unknown type":        {func(o *hcloud.ServerCreateOpts) { o.ServerType = &hcloud.ServerType{Name: "cx1"} }, hcloud.ErrorCodeInvalidInput},
		"not sold there":      {func(o *hcloud.ServerCreateOpts) { o.Location = &hcloud.Location{Name: "ash"} }, hcloud.ErrorCodeInvalidInput},
		"sold out there": {func(o *hcloud.ServerCreateOpts) {
			o.ServerType, o.Location = &hcloud.ServerType{Name: "cx53"}, &hcloud.Location{Name: "nbg1"}
		}, hcloud.ErrorCodeResourceUnavailable},
		"unknown image":      {func(o *hcloud.ServerCreateOpts) { o.Image = &hcloud.Image{Name: "plan9"} }, hcloud.ErrorCodeInvalidInput},
		"unknown key":        {func(o *hcloud.ServerCreateOpts) { o.SSHKeys = []*hcloud.SSHKey{{ID: 1}} }, hcloud.ErrorCodeInvalidInput},
		"user data too long": {func(o *hcloud.ServerCreateOpts) { o.UserData = strings.Repeat("x", 32<<10+1) }, hcloud.ErrorCodeInvalidInput},
		"unknown network":    {func(o *hcloud.ServerCreateOpts) { o.Networks = []*hcloud.Network{{ID: 1}} }, hcloud.ErrorCodeNotFound},
	} {
		o := hcloud.ServerCreateOpts{
			Name: "new", ServerType: &hcloud.ServerType{Name: "cx23"}, Image: &hcloud.Image{Name: "debian-12"}, Location: &hcloud.Location{Name: "fsn1"},
		}
		c.change(&o)
		_, _, err := w.Server.Create(t.Context(), o)
		if !hcloud.IsError(err, c.code) {
			t.Errorf("%s: %v, want %s", name, err, c.code)
		}
	}
	if n, err := w.Server.All(t.Context()); err != nil || len(n) != 10 {
		t.Errorf("refused servers left something: %d servers, %v", len(n), err)
	}
}

func TestLocked(t *testing.T) {
	w := newWorld(t)
	w.fake.hold = make(chan struct{})
	r, _, err := w.Server.Create(t.Context(), hcloud.ServerCreateOpts{
		Name: "slow", ServerType: &hcloud.ServerType{Name: "cx23"}, Image: &hcloud.Image{Name: "debian-12"},
	})
	if err != nil {
		t.Fatal(err)
	}
	if s := w.get(t, r.Server.ID); !s.Locked || s.Status != hcloud.ServerStatusInitializing {
		t.Errorf("while it is made: locked %t, %s", s.Locked, s.Status)
	}
	_, _, err = w.Server.Poweroff(t.Context(), r.Server)
	wantCode(t, err, hcloud.ErrorCodeLocked)
	_, _, err = w.Server.DeleteWithResult(t.Context(), r.Server)
	wantCode(t, err, hcloud.ErrorCodeLocked)
	// Labels are not what is locked.
	if _, _, err = w.Server.Update(t.Context(), r.Server, hcloud.ServerUpdateOpts{Labels: map[string]string{"x": "y"}}); err != nil {
		t.Error(err)
	}
	close(w.fake.hold)
	w.wait(t, append(r.NextActions, r.Action)...)
}

func TestNetworks(t *testing.T) {
	w := newWorld(t)
	_, all, _ := net.ParseCIDR("10.0.0.0/16")
	n, _, err := w.Network.Create(t.Context(), hcloud.NetworkCreateOpts{Name: "n", IPRange: all})
	if err != nil {
		t.Fatal(err)
	}
	_, _, err = w.Server.Create(t.Context(), hcloud.ServerCreateOpts{
		Name: "early", ServerType: &hcloud.ServerType{Name: "cx23"}, Image: &hcloud.Image{Name: "debian-12"}, Networks: []*hcloud.Network{n},
	})
	wantCode(t, err, hcloud.ErrorCodeNoSubnetAvailable)
	for _, c := range []string{"10.0.1.0/24", "10.0.2.0/29"} {
		_, sub, _ := net.ParseCIDR(c)
		a, _, err := w.Network.AddSubnet(t.Context(), n, hcloud.NetworkAddSubnetOpts{Subnet: hcloud.NetworkSubnet{
			Type: hcloud.NetworkSubnetTypeCloud, IPRange: sub, NetworkZone: hcloud.NetworkZoneEUCentral,
		}})
		if err != nil {
			t.Fatal(err)
		}
		w.wait(t, a)
	}
	_, bad, _ := net.ParseCIDR("10.0.1.128/25")
	_, _, err = w.Network.AddSubnet(t.Context(), n, hcloud.NetworkAddSubnetOpts{Subnet: hcloud.NetworkSubnet{
		Type: hcloud.NetworkSubnetTypeCloud, IPRange: bad, NetworkZone: hcloud.NetworkZoneEUCentral,
	}})
	wantCode(t, err, hcloud.ErrorCodeInvalidInput)

	in := func(o *hcloud.ServerCreateOpts) { o.Networks = []*hcloud.Network{n} }
	a := w.server(t, "a", in)
	if len(a.PrivateNet) != 1 || a.PrivateNet[0].IP.String() != "10.0.2.1" || w.fake.did(fmt.Sprintf("join %d 10.0.2.1", a.ID)) == 0 {
		t.Fatalf("the newest subnet's first address: %+v", a.PrivateNet)
	}
	b := w.server(t, "b")
	_, _, err = w.Server.AttachToNetwork(t.Context(), b, hcloud.ServerAttachToNetworkOpts{Network: n, IP: net.ParseIP("10.0.2.1")})
	wantCode(t, err, hcloud.ErrorCodeIPNotAvailable)
	act, _, err := w.Server.AttachToNetwork(t.Context(), b, hcloud.ServerAttachToNetworkOpts{Network: n, IP: net.ParseIP("10.0.1.9")})
	if err != nil {
		t.Fatal(err)
	}
	w.wait(t, act)
	_, _, err = w.Server.AttachToNetwork(t.Context(), b, hcloud.ServerAttachToNetworkOpts{Network: n})
	wantCode(t, err, hcloud.ErrorCodeServerAlreadyAttached)
	if _, err := w.Network.Delete(t.Context(), n); !hcloud.IsError(err, hcloud.ErrorCodeResourceInUse) {
		t.Errorf("deleting a network in use: %v", err)
	}
	got, _, err := w.Network.GetByID(t.Context(), n.ID)
	if err != nil || len(got.Servers) != 2 || got.Subnets[0].Gateway.String() != "10.0.0.1" {
		t.Errorf("network: %+v %v", got, err)
	}
	act, _, err = w.Server.DetachFromNetwork(t.Context(), b, hcloud.ServerDetachFromNetworkOpts{Network: n})
	if err != nil {
		t.Fatal(err)
	}
	w.wait(t, act)
	if got := w.get(t, b.ID); len(got.PrivateNet) != 0 {
		t.Errorf("after detaching: %+v", got.PrivateNet)
	}
}

func TestFirewalls(t *testing.T) {
	w := newWorld(t)
	_, anywhere, _ := net.ParseCIDR("0.0.0.0/0")
	rule := func(port string) []hcloud.FirewallRule {
		return []hcloud.FirewallRule{{Direction: hcloud.FirewallRuleDirectionIn, Protocol: hcloud.FirewallRuleProtocolTCP, Port: &port, SourceIPs: []net.IPNet{*anywhere}}}
	}
	r, _, err := w.Firewall.Create(t.Context(), hcloud.FirewallCreateOpts{
		Name: "f", Rules: rule("22"),
		ApplyTo: []hcloud.FirewallResource{{Type: hcloud.FirewallResourceTypeLabelSelector, LabelSelector: &hcloud.FirewallResourceLabelSelector{Selector: "guarded"}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	s := w.server(t, "s", func(o *hcloud.ServerCreateOpts) { o.Labels = map[string]string{"guarded": ""} })
	g, ok := w.fake.guardOf(s.ID)
	if !ok || len(g.In) != 1 || g.In[0].Ports != "22" {
		t.Fatalf("guard of a server found by label: %+v %t", g, ok)
	}
	if len(s.PublicNet.Firewalls) != 1 {
		t.Errorf("the server does not name its firewall: %+v", s.PublicNet.Firewalls)
	}
	acts, _, err := w.Firewall.SetRules(t.Context(), r.Firewall, hcloud.FirewallSetRulesOpts{Rules: rule("80-85")})
	if err != nil {
		t.Fatal(err)
	}
	w.wait(t, acts...)
	if g, _ := w.fake.guardOf(s.ID); len(g.In) != 1 || g.In[0].Ports != "80-85" {
		t.Errorf("after set_rules: %+v", g)
	}
	_, _, err = w.Firewall.SetRules(t.Context(), r.Firewall, hcloud.FirewallSetRulesOpts{Rules: rule("85-80")})
	wantCode(t, err, hcloud.ErrorCodeInvalidInput)
	if _, err := w.Firewall.Delete(t.Context(), r.Firewall); !hcloud.IsError(err, hcloud.ErrorCodeResourceInUse) {
		t.Errorf("deleting a firewall in use: %v", err)
	}
	server := []hcloud.FirewallResource{{Type: hcloud.FirewallResourceTypeServer, Server: &hcloud.FirewallResourceServer{ID: s.ID}}}
	_, _, err = w.Firewall.RemoveResources(t.Context(), r.Firewall, server)
	wantCode(t, err, hcloud.ErrorCodeFirewallManagedByLabelSelector)
	if acts, _, err = w.Firewall.ApplyResources(t.Context(), r.Firewall, server); err != nil {
		t.Fatal(err)
	}
	w.wait(t, acts...)
	_, _, err = w.Firewall.ApplyResources(t.Context(), r.Firewall, server)
	wantCode(t, err, hcloud.ErrorCodeFirewallAlreadyApplied)
	d, _, err := w.Server.DeleteWithResult(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	w.wait(t, d.Action)
	f, _, err := w.Firewall.GetByID(t.Context(), r.Firewall.ID)
	if err != nil || len(f.AppliedTo) != 1 {
		t.Errorf("a deleted server stays at its firewall: %+v %v", f.AppliedTo, err)
	}
}

func TestBalancers(t *testing.T) {
	w := newWorld(t)
	_, all, _ := net.ParseCIDR("10.0.0.0/16")
	n, _, err := w.Network.Create(t.Context(), hcloud.NetworkCreateOpts{Name: "n", IPRange: all, Subnets: []hcloud.NetworkSubnet{
		{Type: hcloud.NetworkSubnetTypeCloud, IPRange: all, NetworkZone: hcloud.NetworkZoneEUCentral},
	}})
	if err != nil {
		t.Fatal(err)
	}
	web := func(o *hcloud.ServerCreateOpts) {
		o.Labels, o.Networks = map[string]string{"web": ""}, []*hcloud.Network{n}
	}
	a := w.server(t, "a", web)
	port, dest := 443, 6443
	r, _, err := w.LoadBalancer.Create(t.Context(), hcloud.LoadBalancerCreateOpts{
		Name: "lb", LoadBalancerType: &hcloud.LoadBalancerType{Name: "lb11"}, Location: &hcloud.Location{Name: "fsn1"}, Network: n,
		Services: []hcloud.LoadBalancerCreateOptsService{{Protocol: hcloud.LoadBalancerServiceProtocolTCP, ListenPort: &port, DestinationPort: &dest}},
		Targets: []hcloud.LoadBalancerCreateOptsTarget{{
			Type: hcloud.LoadBalancerTargetTypeLabelSelector, UsePrivateIP: new(true),
			LabelSelector: hcloud.LoadBalancerCreateOptsTargetLabelSelector{Selector: "web"},
		}},
	})
	if err != nil {
		t.Fatal(err)
	}
	w.wait(t, r.Action)
	b := w.server(t, "b", web)
	lb, _, err := w.LoadBalancer.GetByID(t.Context(), r.LoadBalancer.ID)
	if err != nil {
		t.Fatal(err)
	}
	if len(lb.Targets) != 1 || len(lb.Targets[0].Targets) != 2 {
		t.Fatalf("targets by label: %+v", lb.Targets)
	}
	if h := lb.Targets[0].Targets[0].HealthStatus; len(h) != 1 || h[0].Status != hcloud.LoadBalancerTargetHealthStatusStatusHealthy {
		t.Errorf("health: %+v", h)
	}
	if c := lb.Services[0].HealthCheck; c.Port != dest || c.Interval.Seconds() != 15 || c.Retries != 3 {
		t.Errorf("default health check: %+v", c)
	}
	_, _, err = w.LoadBalancer.AddService(t.Context(), lb, hcloud.LoadBalancerAddServiceOpts{
		Protocol: hcloud.LoadBalancerServiceProtocolTCP, ListenPort: &port, DestinationPort: &dest,
	})
	wantCode(t, err, hcloud.ErrorCodeSourcePortAlreadyUsed)
	other := w.server(t, "other")
	_, _, err = w.LoadBalancer.AddServerTarget(t.Context(), lb, hcloud.LoadBalancerAddServerTargetOpts{Server: other, UsePrivateIP: new(true)})
	wantCode(t, err, hcloud.ErrorCodeServerNotAttachedToNetwork)
	act, _, err := w.LoadBalancer.AddServerTarget(t.Context(), lb, hcloud.LoadBalancerAddServerTargetOpts{Server: other})
	if err != nil {
		t.Fatal(err)
	}
	w.wait(t, act)
	_, _, err = w.LoadBalancer.AddServerTarget(t.Context(), lb, hcloud.LoadBalancerAddServerTargetOpts{Server: other})
	wantCode(t, err, hcloud.ErrorCodeTargetAlreadyDefined)
	if got := w.get(t, other.ID); len(got.LoadBalancers) != 1 {
		t.Errorf("a target does not name its load balancer: %v", got.LoadBalancers)
	}
	for ip, code := range map[string]hcloud.ErrorCode{
		other.PublicNet.IPv4.IP.String(): hcloud.ErrorCodeCloudResourceIPNotAllowed, "192.0.2.1": hcloud.ErrorCodeIPNotOwned,
	} {
		_, _, err = w.LoadBalancer.AddIPTarget(t.Context(), lb, hcloud.LoadBalancerAddIPTargetOpts{IP: net.ParseIP(ip)})
		wantCode(t, err, code)
	}
	if act, _, err = w.LoadBalancer.AddIPTarget(t.Context(), lb, hcloud.LoadBalancerAddIPTargetOpts{IP: net.ParseIP("198.18.0.1")}); err != nil {
		t.Fatal(err)
	}
	w.wait(t, act)
	w.fake.mu.Lock()
	if targets := w.fake.balancer[lb.ID].Targets; len(targets) != 4 || targets[3].Addr.String() != "198.18.0.1" {
		t.Errorf("targets of the proxy: %+v", targets)
	}
	w.fake.mu.Unlock()
	if act, _, err = w.LoadBalancer.RemoveIPTarget(t.Context(), lb, net.ParseIP("198.18.0.1")); err != nil {
		t.Fatal(err)
	}
	w.wait(t, act)
	wantInterval := 3
	_, _, err = w.LoadBalancer.UpdateService(t.Context(), lb, port, hcloud.LoadBalancerUpdateServiceOpts{HealthCheck: &hcloud.LoadBalancerUpdateServiceOptsHealthCheck{
		Protocol: "https",
	}})
	wantCode(t, err, hcloud.ErrorCodeInvalidInput) // TLS is a flag of http
	act, _, err = w.LoadBalancer.UpdateService(t.Context(), lb, port, hcloud.LoadBalancerUpdateServiceOpts{HealthCheck: &hcloud.LoadBalancerUpdateServiceOptsHealthCheck{
		Protocol: "http", Interval: new(seconds(wantInterval)), Timeout: new(seconds(2)), Retries: new(2),
		HTTP: &hcloud.LoadBalancerUpdateServiceOptsHealthCheckHTTP{Path: new("/readyz"), TLS: new(true)},
	}})
	if err != nil {
		t.Fatal(err)
	}
	w.wait(t, act)
	lb, _, err = w.LoadBalancer.GetByID(t.Context(), lb.ID)
	if err != nil || lb.Services[0].HealthCheck.HTTP == nil || !lb.Services[0].HealthCheck.HTTP.TLS || lb.Services[0].HealthCheck.HTTP.Path != "/readyz" {
		t.Errorf("after update: %+v %v", lb.Services[0].HealthCheck, err)
	}
	for _, s := range []*hcloud.Server{a, b, other} {
		d, _, err := w.Server.DeleteWithResult(t.Context(), s)
		if err != nil {
			t.Fatal(err)
		}
		w.wait(t, d.Action)
	}
	lb, _, err = w.LoadBalancer.GetByID(t.Context(), lb.ID)
	if err != nil || len(lb.Targets) != 1 || len(lb.Targets[0].Targets) != 0 {
		t.Errorf("deleted servers stay targets: %+v %v", lb.Targets, err)
	}
	d, _, err := w.LoadBalancer.DeleteWithResult(t.Context(), lb)
	if err != nil {
		t.Fatal(err)
	}
	w.wait(t, d.Action)
	if lb, _, err := w.LoadBalancer.GetByID(t.Context(), lb.ID); err != nil || lb != nil {
		t.Errorf("after deletion: %v %v", lb, err)
	}
}
