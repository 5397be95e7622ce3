//go:build lab

package cli

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

const demoConfig = "masters: {count: 3, type: cx23}\nworkers: [{pool: worker, count: 2, type: cx23}]\n"

// TestLabDemo is one real cluster, 3 + 2, from nothing to nothing, with what an
// operator does to it in between. Figures are logged, not judged: the machine is
// shared.
func TestLabDemo(t *testing.T) {
	r := newRig(t, "demo", demoConfig)
	b := r.good(r.build("demo"))
	if b.last.Ran == 0 && os.Getenv("HK_LAB_RIG") == "" {
		t.Fatal("the first build ran nothing")
	}
	t.Logf("first build: %d tasks in %.1f s, critical path %.1f s, %d API calls", b.last.Ran, float64(b.last.WallMS)/1000, float64(b.last.CriticalMS)/1000, b.last.APICalls)
	r.eventually(time.Minute, "five Nodes", r.allReady(5))
	ca := r.oneCA(3)

	r.sub("NothingToDo", func(t *testing.T) {
		b := r.nothing()
		t.Logf("verified no-op: %d ms, %d API calls", b.last.WallMS, b.last.APICalls)
		if b.last.APICalls > 12 {
			t.Errorf("a build with nothing to do made %d API calls", b.last.APICalls)
		}
	})
	r.sub("Look", func(t *testing.T) { look(t, r) })
	r.sub("ForceEtcd", func(t *testing.T) { forceEtcd(t, r) })
	r.sub("ForceMasters", func(t *testing.T) { forceMasters(t, r, ca) })
	r.sub("Drift", func(t *testing.T) { drift(t, r) })
	r.sub("FirewallDrift", func(t *testing.T) { firewallDrift(t, r) })
	r.sub("Destroy", func(t *testing.T) { destroyed(t, r) })
}

// look runs the commands that only look.
func look(t *testing.T, r *rig) {
	// status answers within 3 s whatever the hosts do, so on a busy computer it
	// may say that it could not wait for them.
	r.eventually(time.Minute, "status of five hosts", func() error {
		if out := r.must("status", "demo"); strings.Count(out, "running") != 5 {
			return fmt.Errorf("%s", out)
		}
		return nil
	})
	if out := r.must("graph", "demo"); !strings.Contains(out, "etcd-setup.health") {
		t.Errorf("graph:\n%s", out)
	}
	if out := r.must("explain", "demo:etcd-setup"); !strings.Contains(out, "etcd-setup.service/master-1") {
		t.Errorf("explain:\n%s", out)
	}
	if out := r.must("certs", "check", "demo"); !strings.Contains(out, "apiserver") {
		t.Errorf("certs check:\n%s", out)
	}
	r.must("etcd", "snapshot", "save", "demo")
	if got := r.on("master-1", "hostname"); got != "demo-master-1" {
		t.Errorf("hostname is %q", got)
	}
}

// forceEtcd re-runs etcd-setup under load: data stays, nothing else runs, and
// writes through all endpoints go on.
func forceEtcd(t *testing.T, r *rig) {
	r.kube("create", "configmap", "before", "--from-literal=k=v")
	p := r.etcdProbe()
	b := r.good(r.build("demo:etcd-setup", "--force", "--keep-data"))
	longest, good, bad := p.end()
	for phase := range b.phases {
		if phase != "etcd-setup" {
			t.Errorf("forcing etcd-setup ran tasks of %s: %v", phase, b.ran)
		}
	}
	if b.last.Ran == 0 || good == 0 {
		t.Errorf("ran %d, %d writes succeeded", b.last.Ran, good)
	}
	t.Logf("etcd write every 200 ms: longest time between two successes %s (%d good, %d bad)", longest.Round(10*time.Millisecond), good, bad)
	if got := r.kube("get", "configmap", "before", "-o", "jsonpath={.data.k}"); got != "v" {
		t.Errorf("the object written before is %q", got)
	}
	r.nothing()
}

// etcdProbe writes through all three endpoints from master-1 with the unit's
// client certificate, each 200 ms, and tells of each success.
func (r *rig) etcdProbe() *prober {
	unit := filepath.Join(r.dir, "home", "clusters", r.name)
	files := "etcd-ca.crt etcd-client.crt etcd-client.key"
	tar := exec.Command("tar", append([]string{"-C", unit, "-cf", "-"}, strings.Fields(files)...)...)
	data, err := tar.Output()
	if err != nil {
		r.t.Fatalf("the unit's etcd client certificate: %v", err)
	}
	put := r.command(context.Background(), "ssh", r.name+"/master-1", "--", "bash", "-c", "mkdir -p /run/probe && tar -C /run/probe -xf -")
	put.Stdin = strings.NewReader(string(data))
	if a := outcome(r.t, put); a.code != 0 {
		r.t.Fatalf("copying the client certificate: %s", a.stderr)
	}
	endpoints := "https://10.100.0.1:2379,https://10.100.0.2:2379,https://10.100.0.3:2379"
	line := "i=0; while i=$((i+1)); do timeout 5 etcdctl --command-timeout=2s --dial-timeout=1s --endpoints=" + endpoints +
		" --cacert=/run/probe/etcd-ca.crt --cert=/run/probe/etcd-client.crt --key=/run/probe/etcd-client.key put /probe $i >/dev/null 2>&1 && echo ok || echo bad; sleep 0.2; done"
	return r.lines("master-1", line)
}

// lines runs a loop on a host; each line "ok" is a success.
func (r *rig) lines(host, loop string) *prober {
	ctx, cancel := context.WithCancel(context.Background())
	cmd := r.command(ctx, "ssh", r.name+"/"+host, "--", "bash", "-c", loop)
	out, err := cmd.StdoutPipe()
	if err != nil {
		r.t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		r.t.Fatal(err)
	}
	p := &prober{last: time.Now(), stop: cancel, done: make(chan struct{})}
	go func() {
		defer close(p.done)
		buf := make([]byte, 256)
		for {
			n, err := out.Read(buf)
			for w := range strings.FieldsSeq(string(buf[:n])) {
				if w == "ok" {
					p.seen(nil)
				} else {
					p.seen(fmt.Errorf("%s", w))
				}
			}
			if err != nil {
				_ = cmd.Wait() // ended by the context
				return
			}
		}
	}()
	return p
}

// forceMasters re-runs install-masters under an API write each 200 ms.
func forceMasters(t *testing.T, r *rig, ca string) {
	p := repeatedly(200*time.Millisecond, r.apiWriter(r.kubeconfig(), "configmaps/before"))
	b := r.good(r.build("demo:install-masters", "--force"))
	longest, good, bad := p.end()
	for phase := range b.phases {
		if phase != "install-masters" {
			t.Errorf("forcing install-masters ran tasks of %s: %v", phase, b.ran)
		}
	}
	if good == 0 {
		t.Error("no API write succeeded")
	}
	t.Logf("API write every 200 ms: longest time between two successes %s (%d good, %d bad)", longest.Round(10*time.Millisecond), good, bad)
	if now := r.oneCA(3); now != ca {
		t.Errorf("the CA changed: %s, was %s", now, ca)
	}
	r.nothing()
}

// drift: two things changed behind hk's back are two tasks.
func drift(t *testing.T, r *rig) {
	r.on("worker-1", "systemctl stop kubelet")
	r.on("master-2", "echo '# by hand' >> /etc/sysctl.d/90-hk.conf")
	b := r.good(r.build("demo"))
	if len(b.ran) != 2 {
		t.Errorf("ran %v, want two tasks", b.ran)
	}
	var kubelet, file bool
	for task, reason := range b.ran {
		kubelet = kubelet || strings.HasPrefix(reason, "drift: ") && strings.Contains(reason, "kubelet.service") && strings.HasSuffix(task, "/worker-1")
		file = file || strings.HasPrefix(reason, "drift: ") && strings.Contains(reason, "/etc/sysctl.d/90-hk.conf") && strings.HasSuffix(task, "/master-2")
	}
	if !kubelet || !file {
		t.Errorf("reasons: %v", b.ran)
	}
	r.eventually(time.Minute, "five Nodes again", r.allReady(5))
	r.nothing()
}

// firewallDrift: a rule removed through the API is the firewall task's drift,
// and nothing else runs.
func firewallDrift(t *testing.T, r *rig) {
	list := outcome(t, exec.Command("sh", "-c", "curl -fsS -H 'Authorization: Bearer "+r.info.Token+"' '"+r.info.Endpoint+"/firewalls?name=demo' | jq -r '.firewalls[0].id'"))
	id := strings.TrimSpace(list.stdout)
	if id == "" || id == "null" {
		t.Fatalf("no firewall demo: %s", list.stderr)
	}
	set := outcome(t, exec.Command("curl", "-fsS", "-X", "POST", "-H", "Authorization: Bearer "+r.info.Token, "-H", "Content-Type: application/json",
		"-d", `{"rules":[{"direction":"in","protocol":"tcp","port":"22","source_ips":["0.0.0.0/0","::/0"]}]}`,
		r.info.Endpoint+"/firewalls/"+id+"/actions/set_rules"))
	if set.code != 0 {
		t.Fatalf("set_rules: %s%s", set.stdout, set.stderr)
	}
	b := r.good(r.build("demo"))
	reason, ok := b.ran["provision-nodes.firewall"]
	if !ok || len(b.ran) != 1 || !strings.HasPrefix(reason, "drift: ") {
		t.Errorf("ran %v, want the firewall's task alone", b.ran)
	}
	r.nothing()
}

// destroyed: no machine, object or unit is left.
func destroyed(t *testing.T, r *rig) {
	r.must("kubeconfig", "demo")
	r.must("destroy", "demo", "--confirm", "demo")
	if left := r.servers(); len(left) != 0 {
		t.Errorf("servers are left: %v", left)
	}
	for _, kind := range []string{"networks", "firewalls", "placement_groups", "load_balancers", "ssh_keys"} {
		a := outcome(t, exec.Command("sh", "-c", "curl -fsS -H 'Authorization: Bearer "+r.info.Token+"' '"+r.info.Endpoint+"/"+kind+"' | jq '."+kind+"|length'"))
		if strings.TrimSpace(a.stdout) != "0" {
			t.Errorf("%s are left: %s%s", kind, a.stdout, a.stderr)
		}
	}
	units, _ := filepath.Glob(filepath.Join(r.dir, "home", "destroyed", "demo-*"))
	live, _ := filepath.Glob(filepath.Join(r.dir, "home", "clusters", "*"))
	if len(units) != 1 || len(live) != 0 {
		t.Errorf("the credential unit: destroyed %v, live %v", units, live)
	}
	contexts := outcome(t, exec.Command(filepath.Join(binDir(t), "kubectl"), "--kubeconfig", filepath.Join(r.dir, "kubeconfig"), "config", "get-contexts", "-o", "name"))
	if slices.Contains(strings.Fields(contexts.stdout), "demo") {
		t.Error("the kubeconfig still has a context demo")
	}
}
