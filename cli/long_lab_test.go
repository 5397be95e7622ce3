//go:build lab

package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// TestLongPods looks at the pod network from the inside.
func TestLongPods(t *testing.T) {
	r := newRig(t, "demo", demoConfig)
	r.good(r.build("demo"))
	r.sub("Pods", func(t *testing.T) { pods(t, r) })
}

// TestLongKills kills hk with SIGKILL at four places of a first build and builds
// on each time: one machine a host, one CA, and a kubeadm that was running is
// found and waited for instead of being started again.
func TestLongKills(t *testing.T) {
	r := newRig(t, "kills", demoConfig)
	for _, at := range []string{
		"provision-nodes.server/master-2", "etcd-setup.service/master-1", "install-masters.control-plane/master-1", "install-workers.join/worker-1",
	} {
		unit := r.buildAndKill(at)
		t.Logf("killed hk while %s ran; unit of its job: %s", at, orDash(unit))
		if unit == "" {
			continue
		}
		host := at[strings.Index(at, "/")+1:]
		before := r.on(host, "systemctl show -p InvocationID --value "+unit)
		// Its own phase alone: the next kill wants its task still to be done.
		phase, _, _ := strings.Cut(at, ".")
		b := r.build("kills:" + phase)
		var ended struct {
			Code       int    `json:"code"`
			Invocation string `json:"invocation"`
		}
		if err := json.Unmarshal([]byte(r.on(host, "cat /run/hk/units/"+unit+".rc")), &ended); err != nil {
			t.Fatal(err)
		}
		if before == "" || ended.Invocation != before || ended.Code != 0 {
			t.Errorf("%s: the job's unit ended with %+v, had invocation %q", at, ended, before)
		}
		if b.last.Exit != 0 {
			t.Errorf("the build after the kill at %s: exit %d: %v", at, b.last.Exit, b.failed)
		}
	}
	r.good(r.build("kills"))
	r.eventually(2*time.Minute, "five Nodes", r.allReady(5))
	if n := len(r.servers()); n != 5 {
		t.Errorf("%d servers, want 5", n)
	}
	r.oneCA(3)
	r.nothing()
}

// buildAndKill starts a build and kills it half a second after a task started.
// It returns the unit of the task's job, if one is running then.
func (r *rig) buildAndKill(task string, flags ...string) string {
	r.t.Helper()
	cmd := r.command(context.Background(), append([]string{"build", r.name, "-o", "json"}, flags...)...)
	out, err := cmd.StdoutPipe()
	if err != nil {
		r.t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		r.t.Fatal(err)
	}
	lines := make(chan string, 4096)
	go func() {
		defer close(lines)
		var rest string
		buf := make([]byte, 4096)
		for {
			n, err := out.Read(buf)
			rest += string(buf[:n])
			for {
				i := strings.IndexByte(rest, '\n')
				if i < 0 {
					break
				}
				lines <- rest[:i]
				rest = rest[i+1:]
			}
			if err != nil {
				return
			}
		}
	}()
	deadline := time.After(10 * time.Minute)
	for {
		select {
		case l, ok := <-lines:
			if !ok {
				_ = cmd.Wait()
				r.t.Fatalf("the build ended before %s ran", task)
			}
			if !strings.Contains(l, `"event":"task_started"`) || !strings.Contains(l, `"task":"`+task+`"`) {
				continue
			}
			unit := r.jobOf(task)
			_ = cmd.Process.Kill()
			_ = cmd.Wait() // killed
			return unit
		case <-deadline:
			_ = cmd.Process.Kill()
			r.t.Fatalf("%s did not start", task)
		}
	}
}

// jobOf waits a moment for the task's job to run on its host and names its unit.
func (r *rig) jobOf(task string) string {
	phase, host, _ := strings.Cut(task, "/")
	if !strings.Contains(phase, "control-plane") && !strings.Contains(phase, "join") {
		time.Sleep(300 * time.Millisecond) //nolint:forbidigo // in the middle of the task, not at its start
		return ""
	}
	for range 100 {
		a := r.hk("ssh", r.name+"/"+host, "--", "bash", "-c", "systemctl list-units --state=active --no-legend --plain 'hk-*.service' | awk '{print $1}' | grep -E '^hk-[0-9a-f]{20}'")
		if u := strings.TrimSpace(a.stdout); u != "" {
			return strings.TrimSuffix(strings.Fields(u)[0], ".service")
		}
		time.Sleep(200 * time.Millisecond) //nolint:forbidigo // the poll of an outside observer
	}
	return ""
}

// TestLongPower turns machines off and on again, one master after the other,
// then all at once, and grows the cluster while a machine is off.
func TestLongPower(t *testing.T) {
	r := newRig(t, "power", demoConfig)
	r.good(r.build("power"))
	r.eventually(2*time.Minute, "five Nodes", r.allReady(5))
	for i := 1; i <= 3; i++ {
		r.sub(fmt.Sprintf("Master%d", i), func(t *testing.T) { oneOff(t, r, fmt.Sprintf("master-%d", i)) })
	}
	r.sub("AllOff", func(t *testing.T) { allOff(t, r) })
	r.sub("GrowWithoutWorker", func(t *testing.T) {
		growWithout(t, r, "worker-2", "count: 2", "count: 3", "worker-3")
	})
	r.sub("GrowWithoutMaster", func(t *testing.T) {
		growWithout(t, r, "master-3", "count: 3, type: cx23}]", "count: 4, type: cx23}]", "worker-4")
	})
}

// oneOff: one master off for a minute; the API answers through the same
// kubeconfig, and no worker turns NotReady.
func oneOff(t *testing.T, r *rig, host string) {
	kubectl, conf := filepath.Join(binDir(t), "kubectl"), r.kubeconfig()
	p := repeatedly(time.Second, func(ctx context.Context) error {
		return exec.CommandContext(ctx, kubectl, "--kubeconfig", conf, "--request-timeout=3s", "get", "--raw", "/readyz").Run()
	})
	r.power(host, "poweroff")
	until := time.Now().Add(time.Minute)
	for time.Now().Before(until) {
		a := r.kubectl("get", "nodes", "--no-headers", "--request-timeout=3s", "-l", "!node-role.kubernetes.io/control-plane")
		if a.code == 0 && strings.Contains(a.stdout, "NotReady") {
			t.Errorf("a worker turned NotReady:\n%s", a.stdout)
		}
		time.Sleep(5 * time.Second) //nolint:forbidigo // the machine is off for a minute, as the check says
	}
	r.power(host, "poweron")
	on := time.Now()
	// Its Node may never have turned NotReady; its kubelet's lease tells that it is back.
	r.eventually(3*time.Minute, host+"'s kubelet", func() error {
		a := r.kubectl("-n", "kube-node-lease", "get", "lease", r.name+"-"+host, "-o", "jsonpath={.spec.renewTime}", "--request-timeout=3s")
		renewed, err := time.Parse(time.RFC3339Nano, strings.TrimSpace(a.stdout))
		if err != nil || renewed.Before(on) {
			return fmt.Errorf("lease of %s: %s%s", host, a.stdout, a.stderr)
		}
		return nil
	})
	r.eventually(3*time.Minute, "five Nodes again", r.allReady(5))
	back := time.Since(on)
	longest, good, bad := p.end()
	t.Logf("%s off for 60 s: longest time between two successes %s (%d good, %d bad); Ready %s after power on", host, longest.Round(100*time.Millisecond), good, bad, back.Round(time.Second))
	r.nothing()
}

// allOff: the cluster comes back without hk.
func allOff(t *testing.T, r *rig) {
	hosts := []string{"master-1", "master-2", "master-3", "worker-1", "worker-2"}
	for _, h := range hosts {
		r.power(h, "poweroff")
	}
	for _, h := range hosts {
		r.power(h, "poweron")
	}
	took := r.eventually(3*time.Minute, "five Nodes after all were off", r.allReady(5))
	r.eventually(3*time.Minute, "CoreDNS", func() error {
		a := r.kubectl("-n", "kube-system", "rollout", "status", "deployment/coredns", "--timeout=5s")
		if a.code != 0 {
			return fmt.Errorf("%s%s", a.stdout, a.stderr)
		}
		return nil
	})
	r.on("worker-1", "ping -c 1 -W 5 10.100.0.1")
	t.Logf("all five off and on: Ready after %s", took.Round(time.Second))
	r.nothing()
}

// growWithout adds a worker while a host is off: the new one is Ready, every
// other host has the new peer, exit 1 with the host as the only root cause; when
// it is back, only its own tasks run.
func growWithout(t *testing.T, r *rig, off, old, text, added string) {
	r.power(off, "poweroff")
	r.edit(old, text)
	b := r.build("power", "--update")
	if b.last.Exit != 1 {
		t.Errorf("exit %d, want 1: %v", b.last.Exit, b.failed)
	}
	for task := range b.failed {
		if !strings.HasSuffix(task, "/"+off) {
			t.Errorf("%s failed too: %s", task, b.failed[task])
		}
	}
	r.eventually(time.Minute, added+" Ready", func() error {
		a := r.kubectl("get", "node", "power-"+added, "--no-headers", "--request-timeout=3s")
		if f := strings.Fields(a.stdout); len(f) < 2 || f[1] != "Ready" {
			return fmt.Errorf("%s%s", a.stdout, a.stderr)
		}
		return nil
	})
	key := strings.TrimSpace(r.on(added, "wg show hk0 public-key"))
	for _, h := range []string{"master-1", "master-2", "worker-1"} {
		if peers := r.on(h, "wg show hk0 peers"); !strings.Contains(peers, key) {
			t.Errorf("%s does not have %s as a peer", h, added)
		}
	}
	r.power(off, "poweron")
	r.eventually(3*time.Minute, off+" answers SSH", func() error {
		if a := r.hk("ssh", "power/"+off, "--", "true"); a.code != 0 {
			return fmt.Errorf("%s", a.stderr)
		}
		return nil
	})
	r.eventually(3*time.Minute, "kubelet of "+off, func() error {
		a := r.kubectl("get", "node", "power-"+off, "--no-headers", "--request-timeout=3s")
		if f := strings.Fields(a.stdout); len(f) < 2 || f[1] != "Ready" {
			return fmt.Errorf("%s%s", a.stdout, a.stderr)
		}
		return nil
	})
	after := r.good(r.build("power"))
	for task := range after.ran {
		if !strings.HasSuffix(task, "/"+off) {
			t.Errorf("with %s back, %s ran: %s", off, task, after.ran[task])
		}
	}
	r.nothing()
}

// TestLongShrink takes hosts away: a worker with pods on it, by an hk that is
// killed in the middle, then two masters of three, one of whose servers somebody
// deleted before.
func TestLongShrink(t *testing.T) {
	r := newRig(t, "shrink", demoConfig)
	r.good(r.build("shrink"))
	r.eventually(2*time.Minute, "five Nodes", r.allReady(5))
	r.sub("Worker", func(t *testing.T) { shrinkWorker(t, r) })
	r.sub("Masters", func(t *testing.T) { shrinkMasters(t, r) })
}

func shrinkWorker(t *testing.T, r *rig) {
	// One of two must stay up, and both are put where one is to go.
	r.kube("-n", "kube-system", "create", "pdb", "dns", "--selector=k8s-app=kube-dns", "--min-available=1")
	r.kube("cordon", "shrink-worker-1")
	r.kube("-n", "kube-system", "rollout", "restart", "deployment/coredns")
	r.kube("-n", "kube-system", "rollout", "status", "deployment/coredns", "--timeout=90s")
	r.kube("uncordon", "shrink-worker-1")
	where := func() string {
		return r.kube("-n", "kube-system", "get", "pods", "-l", "k8s-app=kube-dns", "-o", "jsonpath={.items[*].spec.nodeName}")
	}
	if got := where(); strings.Contains(got, "worker-1") {
		t.Fatalf("CoreDNS is on %s", got)
	}
	key := strings.TrimSpace(r.on("worker-2", "wg show hk0 public-key"))
	r.edit("count: 2, type: cx23}]", "count: 1, type: cx23}]")
	if b := r.build("shrink"); b.last.Exit != ExitConsent || len(r.servers()) != 5 {
		t.Fatalf("without consent: exit %d, %d servers", b.last.Exit, len(r.servers()))
	}
	kubectl, conf := filepath.Join(binDir(t), "kubectl"), r.kubeconfig()
	var none atomic.Int32
	dns := repeatedly(500*time.Millisecond, func(ctx context.Context) error {
		up := exec.CommandContext(ctx, kubectl, "--kubeconfig", conf, "--request-timeout=3s",
			"-n", "kube-system", "get", "deployment", "coredns", "-o", "jsonpath=up:{.status.availableReplicas}")
		out, err := up.Output()
		if s := string(out); err == nil && (s == "up:" || s == "up:0") {
			none.Add(1)
		}
		return err
	})
	r.buildAndKill("install-workers.remove/worker-2", "--update")
	b := r.good(r.build("shrink")) // no flags: it was agreed to
	longest, good, bad := dns.end()
	for _, task := range []string{"install-workers.remove/worker-2", "network-setup.peers", "network-setup.mesh/master-1", "provision-nodes.remove/worker-2"} {
		if _, ok := b.ran[task]; !ok {
			t.Errorf("%s did not run", task)
		}
	}
	for task := range b.ran {
		if !strings.HasSuffix(task, "/worker-2") && !strings.HasPrefix(task, "network-setup.peers") && !strings.HasPrefix(task, "network-setup.mesh/") {
			t.Errorf("%s ran too: %s", task, b.ran[task])
		}
	}
	t.Logf("worker-2 removed in %d ms; CoreDNS looked at %d times (%d without an answer, longest gap %s)", b.last.WallMS, good, bad, longest.Round(100*time.Millisecond))
	if none.Load() > 0 {
		t.Errorf("no CoreDNS was available %d times: its disruption budget was not kept", none.Load())
	}
	if got := where(); strings.Contains(got, "worker-2") {
		t.Errorf("CoreDNS is on %s", got)
	}
	r.gone("worker-2", key, "master-1", "master-2", "master-3", "worker-1")
	r.eventually(time.Minute, "four Nodes", r.allReady(4))
	r.nothing()
}

// gone wants nothing left of a host: no server, no Node, no peer, no entry.
func (r *rig) gone(host, key string, others ...string) {
	r.t.Helper()
	for _, s := range r.servers() {
		if s.Name == r.name+"-"+host {
			r.t.Errorf("%s still has server %d", host, s.ID)
		}
	}
	if a := r.kubectl("get", "node", r.name+"-"+host); a.code == 0 {
		r.t.Errorf("the Node of %s is still there", host)
	}
	for _, o := range others {
		if peers := r.on(o, "wg show hk0 peers"); strings.Contains(peers, key) {
			r.t.Errorf("%s still has %s as a peer", o, host)
		}
	}
	unit, err := os.ReadFile(filepath.Join(r.dir, "home", "clusters", r.name, "hosts.json"))
	if err != nil || strings.Contains(string(unit), `"`+host+`"`) {
		r.t.Errorf("the credential unit still knows %s (%v)", host, err)
	}
}

func shrinkMasters(t *testing.T, r *rig) {
	keys := map[string]string{}
	for _, h := range []string{"master-2", "master-3"} {
		keys[h] = strings.TrimSpace(r.on(h, "wg show hk0 public-key"))
	}
	id := r.serverID("master-3")
	a := outcome(t, exec.Command("curl", "-fsS", "-X", "DELETE", "-H", "Authorization: Bearer "+r.info.Token, fmt.Sprintf("%s/servers/%d", r.info.Endpoint, id)))
	if a.code != 0 {
		t.Fatalf("deleting master-3: %s%s", a.stdout, a.stderr)
	}
	r.edit("masters: {count: 3", "endpoint: {external: load-balancer}\nmasters: {count: 1")
	if b := r.build("shrink", "--update"); b.last.Exit != ExitConsent {
		t.Fatalf("without the name: exit %d", b.last.Exit)
	}
	conf := r.kubeconfig()
	api := repeatedly(time.Second, func(ctx context.Context) error {
		return exec.CommandContext(ctx, filepath.Join(binDir(t), "kubectl"), "--kubeconfig", conf, "--request-timeout=3s", "get", "--raw", "/readyz").Run()
	})
	b := r.good(r.build("shrink", "--update", "--confirm", "shrink"))
	longest, good, bad := api.end()
	t.Logf("two masters removed in %d ms; API through the load balancer answered %d times, not %d times, longest gap %s", b.last.WallMS, good, bad, longest)
	for _, h := range []string{"master-2", "master-3"} {
		r.gone(h, keys[h], "master-1", "worker-1")
	}
	if members := r.must("etcd", "members", "shrink"); strings.Contains(members, "master-2") || strings.Contains(members, "master-3") {
		t.Errorf("members:\n%s", members)
	}
	r.eventually(2*time.Minute, "two Nodes", r.allReady(2))
	r.nothing()
	r.oneCA(1)
}

// TestLongTopologies builds the other shapes and takes them down again.
func TestLongTopologies(t *testing.T) {
	for name, config := range map[string]string{
		"single": "masters: {count: 1, type: cx23}\nworkers: []\n",
		"pair":   "masters: {count: 1, type: cx23}\nworkers: [{pool: worker, count: 1, type: cx23}]\n",
		"pool":   "etcd: {count: 3, type: cx23}\nmasters: {count: 1, type: cx23}\nworkers: [{pool: worker, count: 1, type: cx23}, {pool: empty, count: 0, type: cx23}]\n",
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, name, config)
			b := r.good(r.build(name))
			t.Logf("%s: %d tasks in %.1f s", name, b.last.Ran, float64(b.last.WallMS)/1000)
			r.nothing()
		})
	}
}

// TestLongStock builds one machine from the stock image: everything it needs is
// brought by hk.
func TestLongStock(t *testing.T) {
	r := newRig(t, "stock", "masters: {count: 1, type: cx23}\nworkers: []\n")
	r.edit("image: hk-snapshot", "image: debian-12")
	b := r.good(r.build("stock"))
	t.Logf("stock image, one master: %d tasks in %.1f s", b.last.Ran, float64(b.last.WallMS)/1000)
	r.nothing()
}

// TestLongInterrupt stops a build with Ctrl-C: running tasks end, nothing new
// starts, and the next build goes on.
func TestLongInterrupt(t *testing.T) {
	r := newRig(t, "stop", "masters: {count: 1, type: cx23}\nworkers: [{pool: worker, count: 1, type: cx23}]\n")
	cmd := r.command(context.Background(), "build", "stop", "-o", "json")
	var out strings.Builder
	cmd.Stdout = &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	r.eventually(time.Minute, "the servers", func() error {
		if len(r.servers()) < 2 {
			return fmt.Errorf("%d servers", len(r.servers()))
		}
		return nil
	})
	_ = cmd.Process.Signal(syscall.SIGINT)
	_ = cmd.Wait() // the exit code is asked below
	if cmd.ProcessState.ExitCode() != ExitInterrupted {
		t.Errorf("exit %d after Ctrl-C, want %d", cmd.ProcessState.ExitCode(), ExitInterrupted)
	}
	if _, err := parseBuild(out.String()); err != nil {
		t.Error(err)
	}
	r.good(r.build("stop"))
	r.nothing()
	_ = os.Stdout.Sync()
}
