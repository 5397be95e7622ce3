//go:build lab

package lab_test

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/pem"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
	"golang.org/x/crypto/ssh"

	"hk/remote/lab"
	"hk/remote/lab/image"
)

// The test binary is also the daemon and the load balancers: lab.Up runs it again
// with these words.
func TestMain(m *testing.M) {
	if len(os.Args) > 3 && os.Args[1] == "lab" {
		ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
		defer stop()
		var err error
		if os.Args[2] == "lb" {
			err = lab.ServeLB(ctx, os.Args[3])
		} else {
			err = lab.Serve(ctx, lab.Options{Name: os.Args[3], Log: func(l string) { fmt.Fprintln(os.Stderr, l) }})
		}
		if err != nil && ctx.Err() == nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// client is a running lab and a client of its API.
type client struct {
	*hcloud.Client
	opts lab.Options
	info *lab.Info
	key  ssh.Signer
	keys []*hcloud.SSHKey
}

// up brings a lab of the test's own up, or skips where there can be none.
func up(t *testing.T) *client {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("SKIPPED: a lab needs root")
	}
	set, err := image.Load(t.Context(), image.Options{})
	if err != nil || set.Roots[image.Snapshot] == "" {
		t.Skipf("SKIPPED: no prepared images (%v); `hk lab up` prepares them", err)
	}
	// Not t.TempDir: should Down fail, nothing may delete below its mounts.
	home, err := os.MkdirTemp("", "hk-lab-test-") //nolint:usetesting // see above
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("HK_LAB_HOME", home)
	c := &client{opts: lab.Options{Name: "test", HomeDir: home, SkipPrepare: true, Log: func(l string) { t.Log(l) }}}
	t.Cleanup(func() {
		if t.Failed() {
			text, _ := os.ReadFile(filepath.Join(home, "test", "daemon.log"))
			t.Logf("daemon: %s", text)
		}
		if err := lab.Down(context.Background(), c.opts); err != nil {
			t.Errorf("down: %v", err)
			return
		}
		nothingLeft(t, home)
	})
	c.start(t)
	_, priv, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	if c.key, err = ssh.NewSignerFromKey(priv); err != nil {
		t.Fatal(err)
	}
	k, _, err := c.SSHKey.Create(t.Context(), hcloud.SSHKeyCreateOpts{Name: "k", PublicKey: string(ssh.MarshalAuthorizedKey(c.key.PublicKey()))})
	if err != nil {
		t.Fatal(err)
	}
	c.keys = []*hcloud.SSHKey{k}
	return c
}

func (c *client) start(t *testing.T) {
	t.Helper()
	in, err := lab.Up(t.Context(), c.opts)
	if err != nil {
		t.Fatal(err)
	}
	c.info = in
	c.Client = hcloud.NewClient(hcloud.WithEndpoint(in.Endpoint), hcloud.WithToken(in.Token),
		hcloud.WithPollOpts(hcloud.PollOpts{BackoffFunc: hcloud.ConstantBackoff(20 * time.Millisecond)}))
}

// nothingLeft looks for whatever a lab of this home could have left.
func nothingLeft(t *testing.T, home string) {
	t.Helper()
	if _, err := os.Stat(home); err == nil {
		t.Errorf("%s is still there", home)
	}
	for what, pattern := range map[string]string{
		"namespaces": "/run/netns/hk-test-*", "cgroups": "/sys/fs/cgroup/*/hk-lab/test-*", "cgroup": "/sys/fs/cgroup/hk-lab/test-*",
	} {
		if m, _ := filepath.Glob(pattern); len(m) > 0 {
			t.Errorf("%s are left: %v", what, m)
		}
	}
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil || strings.Contains(string(mounts), home) {
		t.Errorf("a mount is left below %s (%v)", home, err)
	}
	procs, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, p := range procs {
		if b, err := os.ReadFile(p); err == nil && strings.Contains(string(b), home) {
			t.Errorf("process left: %s", strings.ReplaceAll(string(b), "\x00", " "))
		}
	}
}

func (c *client) wait(t *testing.T, actions ...*hcloud.Action) {
	t.Helper()
	if err := c.Action.WaitFor(t.Context(), actions...); err != nil {
		t.Fatal(err)
	}
}

func (c *client) create(t *testing.T, o hcloud.ServerCreateOpts) hcloud.ServerCreateResult {
	t.Helper()
	o.ServerType, o.Image, o.Location, o.SSHKeys = &hcloud.ServerType{Name: "cx23"}, &hcloud.Image{Name: image.Snapshot}, &hcloud.Location{Name: "fsn1"}, c.keys
	r, _, err := c.Server.Create(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func (c *client) server(t *testing.T, o hcloud.ServerCreateOpts) *hcloud.Server {
	t.Helper()
	r := c.create(t, o)
	c.wait(t, append(r.NextActions, r.Action)...)
	s, _, err := c.Server.GetByID(t.Context(), r.Server.ID)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// dial connects by SSH as soon as the machine answers; want is its host key, nil
// for any.
func (c *client) dial(t *testing.T, s *hcloud.Server, want ssh.PublicKey) *ssh.Client {
	t.Helper()
	check := ssh.InsecureIgnoreHostKey()
	if want != nil {
		check = ssh.FixedHostKey(want)
	}
	conf := &ssh.ClientConfig{User: "root", Auth: []ssh.AuthMethod{ssh.PublicKeys(c.key)}, HostKeyCallback: check, Timeout: 5 * time.Second}
	if want != nil {
		conf.HostKeyAlgorithms = []string{want.Type()}
	}
	var err error
	for deadline := time.Now().Add(5 * time.Minute); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		var conn *ssh.Client
		if conn, err = ssh.Dial("tcp", net.JoinHostPort(s.PublicNet.IPv4.IP.String(), "22"), conf); err == nil {
			t.Cleanup(func() { conn.Close() })
			return conn
		}
		if strings.Contains(err.Error(), "host key mismatch") {
			break
		}
	}
	t.Fatalf("ssh to %s: %v", s.Name, err)
	return nil
}

func run(t *testing.T, conn *ssh.Client, cmd string) string {
	t.Helper()
	sess, err := conn.NewSession()
	if err != nil {
		t.Fatal(err)
	}
	defer sess.Close()
	out, err := sess.CombinedOutput(cmd)
	if err != nil {
		return strings.TrimSpace(string(out)) + " (" + err.Error() + ")"
	}
	return strings.TrimSpace(string(out))
}

func noFindings(t *testing.T, c *client) {
	t.Helper()
	found, err := lab.Doctor(t.Context(), c.opts)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range found {
		t.Errorf("doctor: %s %s: %s", f.Kind, f.Object, f.Detail)
	}
}

// hostKey makes a host key and the cloud-config that installs it.
func hostKey(t *testing.T) (ssh.PublicKey, string) {
	t.Helper()
	pub, priv, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	block, err := ssh.MarshalPrivateKey(priv, "")
	if err != nil {
		t.Fatal(err)
	}
	key, err := ssh.NewPublicKey(pub)
	if err != nil {
		t.Fatal(err)
	}
	text := "    " + strings.ReplaceAll(strings.TrimSpace(string(pem.EncodeToMemory(block))), "\n", "\n    ")
	return key, fmt.Sprintf("#cloud-config\nssh_keys:\n  ed25519_private: |\n%s\n  ed25519_public: %s\nruncmd: [touch /root/done]\n",
		text, strings.TrimSpace(string(ssh.MarshalAuthorizedKey(key))))
}

func TestMachines(t *testing.T) {
	c := up(t)
	_, ipRange, _ := net.ParseCIDR("10.99.0.0/16")
	n, _, err := c.Network.Create(t.Context(), hcloud.NetworkCreateOpts{Name: "n", IPRange: ipRange, Subnets: []hcloud.NetworkSubnet{
		{Type: hcloud.NetworkSubnetTypeCloud, IPRange: ipRange, NetworkZone: hcloud.NetworkZoneEUCentral},
	}})
	if err != nil {
		t.Fatal(err)
	}
	key, userData := hostKey(t)
	a := c.server(t, hcloud.ServerCreateOpts{Name: "a", UserData: userData, Networks: []*hcloud.Network{n}, Labels: map[string]string{"web": ""}})
	b := c.server(t, hcloud.ServerCreateOpts{Name: "b", Networks: []*hcloud.Network{n}, Labels: map[string]string{"web": ""}})
	toA, toB := c.dial(t, a, key), c.dial(t, b, nil)

	if got := run(t, toA, "until [ -e /root/done ]; do sleep 0.1; done; hostname"); got != "a" {
		t.Errorf("hostname: %s", got)
	}
	private := b.PrivateNet[0].IP
	for cmd, want := range map[string]string{
		"ping -c1 -W2 -q b >/dev/null; echo $?":                                           "0",
		fmt.Sprintf("ping -c1 -W2 -q -M do -s 1422 %s >/dev/null; echo $?", private):      "0", // 1450 bytes
		fmt.Sprintf("ping -c1 -W2 -q -M do -s 1423 %s >/dev/null 2>&1; echo $?", private): "1",
		"getent hosts no.such.name.example; echo $?":                                      "2",
		"timeout 2 bash -c ': >/dev/tcp/1.1.1.1/80' 2>/dev/null; echo $?":                 "1",              // no route out, at once
		"ls /sys/class/net | tr '\\n' ' '":                                                "enp7s0 eth0 lo", // its own, not this computer's
		"systemctl is-system-running":                                                     "running",
	} {
		if got := run(t, toA, cmd); got != want {
			t.Errorf("%s: %s, want %s", cmd, got, want)
		}
	}
	checkFirewall(t, c, a, b, toA, toB)
	checkBalancer(t, c, n, b, toB)
	noFindings(t, c)
	checkPower(t, c, b, toB)
	noFindings(t, c)
}

// checkFirewall: what no rule lets in stays out, what is open stays open.
func checkFirewall(t *testing.T, c *client, a, b *hcloud.Server, toA, toB *ssh.Client) {
	t.Helper()
	run(t, toB, "systemd-run -q --unit=web python3 -m http.server 8000")
	run(t, toB, "until ss -ltn | grep -q :8000; do sleep 0.1; done")
	open := fmt.Sprintf("timeout 2 bash -c ': >/dev/tcp/%s/8000'; echo $?", b.PublicNet.IPv4.IP)
	if got := run(t, toA, open); got != "0" {
		t.Errorf("without a firewall: %s", got)
	}
	r, _, err := c.Firewall.Create(t.Context(), hcloud.FirewallCreateOpts{Name: "f", ApplyTo: []hcloud.FirewallResource{
		{Type: hcloud.FirewallResourceTypeServer, Server: &hcloud.FirewallResourceServer{ID: b.ID}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	c.wait(t, r.Actions...)
	if got := run(t, toA, open); got != "124" {
		t.Errorf("with a firewall and no rule: %s", got)
	}
	if got := run(t, toB, "echo still here"); got != "still here" {
		t.Errorf("an open connection did not survive: %s", got)
	}
	if got := run(t, toB, "ping -c1 -W2 -q a >/dev/null; echo $?"); got != "0" {
		t.Errorf("replies to what goes out do not come in: %s", got)
	}
	port := "8000"
	acts, _, err := c.Firewall.SetRules(t.Context(), r.Firewall, hcloud.FirewallSetRulesOpts{Rules: []hcloud.FirewallRule{{
		Direction: hcloud.FirewallRuleDirectionIn, Protocol: hcloud.FirewallRuleProtocolTCP, Port: &port,
		SourceIPs: []net.IPNet{{IP: a.PublicNet.IPv4.IP, Mask: net.CIDRMask(32, 32)}},
	}}})
	if err != nil {
		t.Fatal(err)
	}
	c.wait(t, acts...)
	if got := run(t, toA, open); got != "0" {
		t.Errorf("with a rule: %s", got)
	}
	if conn, err := net.DialTimeout("tcp", net.JoinHostPort(b.PublicNet.IPv4.IP.String(), "22"), time.Second); err == nil {
		conn.Close()
		t.Error("a new SSH connection comes in without a rule")
	}
	acts, _, err = c.Firewall.RemoveResources(t.Context(), r.Firewall, []hcloud.FirewallResource{
		{Type: hcloud.FirewallResourceTypeServer, Server: &hcloud.FirewallResourceServer{ID: b.ID}},
	})
	if err != nil {
		t.Fatal(err)
	}
	c.wait(t, acts...)
}

// checkBalancer: it answers while a target is healthy, also while no daemon runs.
func checkBalancer(t *testing.T, c *client, n *hcloud.Network, b *hcloud.Server, toB *ssh.Client) {
	t.Helper()
	port, dest, three, two := 80, 8000, 3*time.Second, 2*time.Second
	r, _, err := c.LoadBalancer.Create(t.Context(), hcloud.LoadBalancerCreateOpts{
		Name: "lb", LoadBalancerType: &hcloud.LoadBalancerType{Name: "lb11"}, Location: &hcloud.Location{Name: "fsn1"}, Network: n,
		Services: []hcloud.LoadBalancerCreateOptsService{{
			Protocol: hcloud.LoadBalancerServiceProtocolTCP, ListenPort: &port, DestinationPort: &dest,
			HealthCheck: &hcloud.LoadBalancerCreateOptsServiceHealthCheck{Protocol: "http", Interval: &three, Timeout: &two, HTTP: &hcloud.LoadBalancerCreateOptsServiceHealthCheckHTTP{Path: new("/")}},
		}},
		Targets: []hcloud.LoadBalancerCreateOptsTarget{{
			Type: hcloud.LoadBalancerTargetTypeLabelSelector, UsePrivateIP: new(true),
			LabelSelector: hcloud.LoadBalancerCreateOptsTargetLabelSelector{Selector: "web"},
		}},
	})
	if err != nil {
		t.Fatal(err)
	}
	c.wait(t, r.Action)
	url := fmt.Sprintf("http://%s/", r.LoadBalancer.PublicNet.IPv4.IP)
	answers := func() bool {
		hc := &http.Client{Timeout: 2 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
		resp, err := hc.Get(url)
		if err != nil {
			return false
		}
		resp.Body.Close()
		return resp.StatusCode == http.StatusOK
	}
	within(t, 30*time.Second, "the load balancer answers", answers)
	if got := run(t, toB, "curl -s -m 2 -o /dev/null -w '%{http_code}' "+url); got != "200" {
		t.Errorf("from a machine: %s", got)
	}
	_ = syscall.Kill(c.info.PID, syscall.SIGKILL)
	if !answers() {
		t.Error("the load balancer ends with the daemon")
	}
	c.start(t)
	lb, _, err := c.LoadBalancer.GetByName(t.Context(), "lb")
	if err != nil || lb == nil || len(lb.Targets) != 1 || len(lb.Targets[0].Targets) != 2 {
		t.Fatalf("after a restart: %+v %v", lb, err)
	}
	for _, target := range lb.Targets[0].Targets {
		want := hcloud.LoadBalancerTargetHealthStatusStatusUnhealthy
		if target.Server.Server.ID == b.ID {
			want = hcloud.LoadBalancerTargetHealthStatusStatusHealthy
		}
		if h := target.HealthStatus; len(h) != 1 || h[0].Status != want {
			t.Errorf("server %d: %+v, want %s", target.Server.Server.ID, h, want)
		}
	}
}

func within(t *testing.T, d time.Duration, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(d); !ok(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within %s: %s", d, what)
		}
	}
}

// checkPower: what each action does to a running machine and its disk.
func checkPower(t *testing.T, c *client, s *hcloud.Server, conn *ssh.Client) {
	t.Helper()
	run(t, conn, "touch /root/mark && sync")
	do := func(a *hcloud.Action, _ *hcloud.Response, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		c.wait(t, a)
	}
	status := func(want hcloud.ServerStatus) func() bool {
		return func() bool {
			got, _, err := c.Server.GetByID(t.Context(), s.ID)
			return err == nil && got.Status == want
		}
	}
	do(c.Server.Poweroff(t.Context(), s))
	within(t, time.Second, "off after poweroff", status(hcloud.ServerStatusOff))
	do(c.Server.Poweron(t.Context(), s))
	conn = c.dial(t, s, nil)
	if got := run(t, conn, "ls /root/mark"); got != "/root/mark" {
		t.Errorf("the disk did not survive: %s", got)
	}
	// What it made in its network goes with a reboot. Uptime is the computer's: a
	// machine's own boot shows in its first process.
	run(t, conn, "ip link add made type dummy; sysctl -w net.ipv4.ip_forward=1; nft add table inet made")
	boot := "stat -c %Y /proc/1"
	before := run(t, conn, boot)
	do(c.Server.Reboot(t.Context(), s))
	within(t, 2*time.Minute, "a new boot", func() bool {
		conn = c.dial(t, s, nil)
		return run(t, conn, boot) != before
	})
	left := "ip -br link | grep -c made; sysctl -n net.ipv4.ip_forward; nft list tables | grep -c made; ip -br addr show enp7s0 | grep -c 10.99"
	if got := strings.Fields(run(t, conn, left)); fmt.Sprint(got) != "[0 0 0 1]" {
		t.Errorf("after a reboot: made links, forwarding, made tables, private address: %v", got)
	}
	do(c.Server.Reset(t.Context(), s))
	c.dial(t, s, nil)
	do(c.Server.Shutdown(t.Context(), s))
	within(t, time.Minute, "off after shutdown", status(hcloud.ServerStatusOff))
	r, _, err := c.Server.RebuildWithResult(t.Context(), s, hcloud.ServerRebuildOpts{Image: &hcloud.Image{Name: image.Snapshot}})
	do(r.Action, nil, err)
	conn = c.dial(t, s, nil)
	if got := run(t, conn, "ls /root/mark"); !strings.Contains(got, "No such file") {
		t.Errorf("the disk is not fresh: %s", got)
	}
	_ = run(t, conn, "systemctl poweroff")
	within(t, time.Minute, "off after its own poweroff", status(hcloud.ServerStatusOff))
	d, _, err := c.Server.DeleteWithResult(t.Context(), s)
	do(d.Action, nil, err)
}

// The daemon is killed again and again while servers come and go; what was
// acknowledged is there once, what was deleted is gone, and nothing else is left.
func TestCrash(t *testing.T) {
	c := up(t)
	var made []*hcloud.Server
	for i := range 4 {
		r := c.create(t, hcloud.ServerCreateOpts{Name: fmt.Sprintf("s%d", i)})
		made = append(made, r.Server)
		time.Sleep(time.Duration(i) * 70 * time.Millisecond) // another point of the work each time
		_ = syscall.Kill(c.info.PID, syscall.SIGKILL)
		c.start(t)
	}
	for _, s := range made {
		within(t, time.Minute, s.Name+" runs", func() bool {
			got, _, err := c.Server.GetByID(t.Context(), s.ID)
			return err == nil && got != nil && got.Status == hcloud.ServerStatusRunning
		})
	}
	c.dial(t, made[0], nil)
	noFindings(t, c)
	for _, s := range made[1:] {
		if _, _, err := c.Server.DeleteWithResult(t.Context(), s); err != nil {
			t.Fatal(err)
		}
	}
	_ = syscall.Kill(c.info.PID, syscall.SIGKILL)
	c.start(t)
	within(t, time.Minute, "the deleted are gone", func() bool {
		all, err := c.Server.All(t.Context())
		return err == nil && len(all) == 1 && all[0].ID == made[0].ID
	})
	c.dial(t, made[0], nil)
	noFindings(t, c)
	// Down after a crash, with a machine running: up's cleanup checks what is left.
	_ = syscall.Kill(c.info.PID, syscall.SIGKILL)
}
