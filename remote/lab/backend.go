package lab

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"hk/remote/lab/api"
	"hk/remote/lab/fabric"
	"hk/remote/lab/image"
	"hk/remote/lab/lb"
	"hk/remote/lab/machine"
	"hk/remote/lab/names"
)

// backend is the real world: it implements api.Backend.
type backend struct {
	dir    string
	exe    string
	fabric *fabric.Fabric
	host   *machine.Host
	names  *names.Server
	images *images
	log    func(string)
}

// images is the set of base roots, looked at again when one is missing: a lab can
// be up while the cache is still being filled.
type images struct {
	cache string
	mu    sync.Mutex
	set   *image.Set
}

func (i *images) load(ctx context.Context, want string) (*image.Set, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.set != nil && (want == "" || i.set.Roots[want] != "") {
		return i.set, nil
	}
	set, err := image.Load(ctx, image.Options{CacheDir: i.cache})
	if err != nil {
		return nil, fmt.Errorf("loading images: %w", err)
	}
	i.set = set
	if want != "" && set.Roots[want] == "" {
		return nil, fmt.Errorf("image %s is not prepared; `hk lab up` prepares it", want)
	}
	return set, nil
}

func (b *backend) endpoint(id int64, ns string, slot int) fabric.Endpoint {
	return fabric.Endpoint{ID: id, NS: ns, Addr: b.fabric.At(slot), MAC: b.fabric.ServerMAC(id)}
}

func (b *backend) spec(ctx context.Context, m api.Machine) (machine.Spec, error) {
	s := machine.Spec{
		ID: m.ID, Hostname: m.Name, Image: m.Image, NS: b.fabric.ServerNS(m.ID),
		Gateway: fabric.PublicGateway, Resolver: b.fabric.Host().String(), UserData: m.UserData, SSHKeys: m.Keys,
		Packages: fmt.Sprintf("http://%s:%d", b.fabric.Host(), packagesPort),
		Memory:   int64(m.MemoryGB * (1 << 30)), Cores: m.Cores,
	}
	if m.Slot != 0 {
		s.Address = b.fabric.At(m.Slot).String()
	}
	if b.host.Built(m.ID) {
		return s, nil // its disk remembers the root it was made over
	}
	set, err := b.images.load(ctx, m.Image)
	if err != nil {
		return s, err
	}
	s.Root = set.Roots[m.Image]
	return s, nil
}

// Build implements api.Backend.
func (b *backend) Build(ctx context.Context, m api.Machine) error {
	s, err := b.spec(ctx, m)
	if err != nil {
		return err
	}
	if err := b.plug(m); err != nil {
		return err
	}
	return b.host.Build(ctx, s)
}

// plug makes the machine's namespace and public interface.
func (b *backend) plug(m api.Machine) error {
	ns := b.fabric.ServerNS(m.ID)
	if m.Slot == 0 {
		return b.fabric.Namespace(ns)
	}
	return b.fabric.Attach(b.endpoint(m.ID, ns, m.Slot))
}

// Start implements api.Backend.
func (b *backend) Start(ctx context.Context, m api.Machine) error {
	s, err := b.spec(ctx, m)
	if err != nil {
		return err
	}
	if !b.host.Running(m.ID) {
		if err := b.replug(ctx, m); err != nil {
			return err
		}
	}
	return b.host.Start(ctx, s)
}

// replug gives the machine a network as after a loss of power: interfaces, rules,
// routes and settings it made in its namespace while it ran are gone.
func (b *backend) replug(ctx context.Context, m api.Machine) error {
	if b.host.Started(m.ID) {
		for _, n := range m.NICs {
			if err := b.fabric.Leave(n.Network.ID, m.ID); err != nil {
				return err
			}
		}
		if err := b.fabric.Detach(m.ID, b.fabric.ServerNS(m.ID)); err != nil {
			return err
		}
	}
	if err := b.plug(m); err != nil {
		return err
	}
	for _, n := range m.NICs {
		if err := b.Join(ctx, m.ID, n); err != nil {
			return err
		}
	}
	return nil
}

// Cut implements api.Backend.
func (b *backend) Cut(ctx context.Context, id int64) error { return b.host.PowerOff(ctx, id) }

// Shutdown implements api.Backend.
func (b *backend) Shutdown(id int64) error { return b.host.Shutdown(id) }

// Reboot implements api.Backend.
func (b *backend) Reboot(id int64) error { return b.host.Reboot(id) }

// Wipe implements api.Backend.
func (b *backend) Wipe(ctx context.Context, id int64) error { return b.host.Remove(ctx, id) }

// Remove implements api.Backend.
func (b *backend) Remove(ctx context.Context, id int64) error {
	if err := b.host.Remove(ctx, id); err != nil {
		return err
	}
	return b.fabric.Detach(id, b.fabric.ServerNS(id))
}

// Power implements api.Backend.
func (b *backend) Power(id int64) api.Power {
	if b.host.Running(id) {
		b.host.Watch(id)
		return api.PowerOn
	}
	switch b.host.End(id) {
	case machine.WentOff:
		return api.PowerOff
	case machine.Rebooted:
		return api.PowerReboot
	}
	return api.PowerLost
}

func fabricNetwork(n api.Network) fabric.Network {
	f := fabric.Network{ID: n.ID, Range: n.Range, Subnets: n.Subnets}
	for _, r := range n.Routes {
		f.Routes = append(f.Routes, fabric.Route{Destination: r.Destination, Gateway: r.Gateway})
	}
	return f
}

// SyncNetwork implements api.Backend.
func (b *backend) SyncNetwork(_ context.Context, n api.Network) error {
	return b.fabric.SyncNetwork(fabricNetwork(n))
}

// RemoveNetwork implements api.Backend.
func (b *backend) RemoveNetwork(_ context.Context, id int64) error { return b.fabric.RemoveNetwork(id) }

func (b *backend) join(member int64, ns string, n api.NIC) error {
	mac, err := net.ParseMAC(n.MAC)
	if err != nil {
		return fmt.Errorf("bug: MAC address %q: %w", n.MAC, err)
	}
	return b.fabric.Join(fabric.NIC{
		Network: fabricNetwork(n.Network), Member: member, NS: ns, Name: n.Name, Addr: n.Addr, MAC: mac,
	})
}

// Join implements api.Backend.
func (b *backend) Join(_ context.Context, server int64, n api.NIC) error {
	return b.join(server, b.fabric.ServerNS(server), n)
}

// Leave implements api.Backend.
func (b *backend) Leave(_ context.Context, member, network int64) error {
	return b.fabric.Leave(network, member)
}

// SyncRules implements api.Backend.
func (b *backend) SyncRules(ctx context.Context, guards []api.Guard) error {
	rules := func(in []api.GuardRule) []fabric.Rule {
		var out []fabric.Rule
		for _, r := range in {
			out = append(out, fabric.Rule(r))
		}
		return out
	}
	var gs []fabric.Guard
	for _, g := range guards {
		gs = append(gs, fabric.Guard{Server: g.Server, Addr: g.Addr, In: rules(g.In), Out: rules(g.Out)})
	}
	return b.fabric.SyncRules(ctx, gs)
}

// SyncNames implements api.Backend.
func (b *backend) SyncNames(n map[string]netip.Addr) { b.names.Set(n) }

// Address implements api.Backend.
func (b *backend) Address(slot int) netip.Addr { return b.fabric.At(slot) }

// Slots implements api.Backend.
func (b *backend) Slots() (first, last int) { return fabric.FirstServer, fabric.LastServer }

// MAC implements api.Backend.
func (b *backend) MAC(network, member int64, n int) string {
	return b.fabric.NICMAC(network, member, n).String()
}

func (b *backend) balancerDir(id int64) string {
	return filepath.Join(b.dir, "lb", strconv.FormatInt(id, 10))
}

// SyncBalancer implements api.Backend.
func (b *backend) SyncBalancer(ctx context.Context, x api.Balancer) error {
	ns := b.fabric.BalancerNS(x.ID)
	c := lb.Config{Algorithm: x.Algorithm}
	if x.Slot != 0 {
		if err := b.fabric.Attach(b.endpoint(x.ID, ns, x.Slot)); err != nil {
			return err
		}
		c.Listen = append(c.Listen, b.fabric.At(x.Slot).String())
	} else if err := errors.Join(b.fabric.Namespace(ns), b.fabric.Unplug(x.ID)); err != nil {
		return err
	}
	if x.NIC != nil {
		if err := b.join(x.ID, ns, *x.NIC); err != nil {
			return err
		}
		c.Listen = append(c.Listen, x.NIC.Addr.String())
	}
	for _, s := range x.Services {
		c.Services = append(c.Services, lb.Service{Listen: s.Listen, Dest: s.Dest, ProxyProtocol: s.ProxyProtocol, Check: lb.Check(s.Check)})
	}
	for _, t := range x.Targets {
		c.Targets = append(c.Targets, lb.Target(t))
	}
	dir := b.balancerDir(x.ID)
	if err := lb.Write(dir, c); err != nil {
		return err
	}
	if len(balancerPIDs(dir)) > 0 {
		return b.reload(ctx, dir)
	}
	return b.startBalancer(ctx, ns, dir)
}

// reload tells a proxy of its new config; one that has just been started may not
// listen yet.
func (b *backend) reload(ctx context.Context, dir string) error {
	for deadline := time.Now().Add(5 * time.Second); ; {
		err := lb.Reload(ctx, dir)
		if err == nil || time.Now().After(deadline) || ctx.Err() != nil || len(balancerPIDs(dir)) == 0 {
			return err
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// startBalancer starts the proxy inside its namespace, in a session of its own.
func (b *backend) startBalancer(ctx context.Context, ns, dir string) error {
	logf, err := os.OpenFile(filepath.Join(dir, "lb.log"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer func() { _ = logf.Close() }()
	_ = os.Remove(filepath.Join(dir, "ctl.sock"))
	cmd := exec.Command(b.exe, "lab", "lb", dir) //nolint:noctx // outlives us on purpose
	cmd.Dir = "/"
	cmd.Stdout, cmd.Stderr = logf, logf
	// Small: it holds sockets, not data.
	cmd.Env = append(os.Environ(), "GOMAXPROCS=1", "GOMEMLIMIT=64MiB")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := fabric.Do(ns, cmd.Start); err != nil {
		return fmt.Errorf("starting load balancer: %w", err)
	}
	exited := make(chan struct{})
	go func() {
		_ = cmd.Wait()
		close(exited)
	}()
	for {
		if _, err := lb.Report(ctx, dir); err == nil {
			return nil
		}
		select {
		case <-exited:
			text, _ := os.ReadFile(filepath.Join(dir, "lb.log"))
			return fmt.Errorf("load balancer ended: %s", lastLine(string(text)))
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func lastLine(s string) string {
	lines := strings.Split(strings.TrimSpace(s), "\n")
	return lines[len(lines)-1]
}

// balancerPIDs finds the processes `lab lb DIR` by their command line, which names
// the folder: no note of a pid can be stale or missing.
func balancerPIDs(dir string) []int {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	var pids []int
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		b, err := os.ReadFile(filepath.Join("/proc", e.Name(), "cmdline"))
		if err == nil && strings.HasSuffix(string(b), "\x00lab\x00lb\x00"+dir+"\x00") {
			pids = append(pids, pid)
		}
	}
	return pids
}

func stopBalancer(dir string) error {
	for deadline := time.Now().Add(5 * time.Second); ; {
		pids := balancerPIDs(dir)
		if len(pids) == 0 {
			return nil
		}
		for _, pid := range pids {
			_ = unix.Kill(pid, unix.SIGKILL)
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("load balancer process %d does not end", pids[0])
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// RemoveBalancer implements api.Backend.
func (b *backend) RemoveBalancer(_ context.Context, id int64) error {
	dir := b.balancerDir(id)
	if err := stopBalancer(dir); err != nil {
		return err
	}
	if err := b.fabric.Detach(id, b.fabric.BalancerNS(id)); err != nil {
		return err
	}
	return os.RemoveAll(dir)
}

// Health implements api.Backend.
func (b *backend) Health(ctx context.Context, id int64) (map[api.TargetPort]api.Health, error) {
	ctx, cancel := context.WithTimeout(ctx, 500*time.Millisecond)
	defer cancel()
	report, err := lb.Report(ctx, b.balancerDir(id))
	if err != nil {
		return nil, err
	}
	out := map[api.TargetPort]api.Health{}
	for _, h := range report {
		out[api.TargetPort{Key: h.Key, Listen: h.Listen}] = api.Health{Status: h.Status, Detail: h.Detail, Code: h.Code}
	}
	return out, nil
}
