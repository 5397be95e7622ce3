//go:build lab

package cli

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	"hk/remote/lab"
)

// rig is one cluster in a lab of its own, driven through the built program as a
// user would: nothing here reaches into hk.
type rig struct {
	t    *testing.T
	dir  string // config, key, HK_HOME
	name string
	lab  string
	info *lab.Info
	env  []string
}

// binDir is where make puts hk and kubectl.
func binDir(t *testing.T) string {
	t.Helper()
	d, err := filepath.Abs(filepath.Join("..", "bin"))
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range []string{"hk", "kubectl"} {
		if _, err := os.Stat(filepath.Join(d, p)); err != nil {
			t.Fatalf("%s is missing: run it through make lab-test", filepath.Join(d, p))
		}
	}
	return d
}

// newRig brings up a lab and writes a config. At the end the cluster is
// destroyed and the lab taken down, and nothing of it may be left.
func newRig(t *testing.T, name, config string) *rig {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("SKIPPED: the lab needs root")
	}
	// HK_LAB_RIG is the folder of an earlier run that was kept (HK_LAB_KEEP=1):
	// the checks then run again on its cluster, and it is kept once more.
	dir, err := os.Getenv("HK_LAB_RIG"), error(nil)
	again := dir != ""
	if !again {
		dir, err = os.MkdirTemp("/var/tmp", "hk-"+name+"-")
	}
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{t: t, dir: dir, name: name, lab: name}
	r.env = append(os.Environ(), "HK_HOME="+filepath.Join(dir, "home"), "HK_LAB_HOME="+filepath.Join(dir, "labs"),
		"KUBECONFIG="+filepath.Join(dir, "kubeconfig"), "HCLOUD_TOKEN=", "HCLOUD_ENDPOINT=", "NO_COLOR=1")
	if !again {
		t.Cleanup(func() { r.end() })
	}
	r.must("lab", "up", r.lab)
	if r.info, err = lab.Lookup(filepath.Join(dir, "labs"), r.lab); err != nil {
		t.Fatal(err)
	}
	if again {
		return r
	}
	r.write(name+".yaml", "name: "+name+"\ncloud: lab\nlab: "+r.lab+"\nimage: hk-snapshot\nssh: {key: "+name+".key}\n"+config)
	if out, err := exec.Command("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", filepath.Join(dir, name+".key")).CombinedOutput(); err != nil {
		t.Fatalf("ssh-keygen: %v: %s", err, out)
	}
	return r
}

// sub runs a part whose failures are its own.
func (r *rig) sub(name string, check func(t *testing.T)) {
	whole := r.t
	whole.Run(name, func(t *testing.T) {
		r.t = t
		defer func() { r.t = whole }()
		check(t)
	})
}

func (r *rig) end() {
	if r.t.Failed() {
		r.t.Logf("the lab stays as it is for a look: %s", r.dir)
		if os.Getenv("HK_LAB_KEEP") != "" {
			return
		}
	}
	r.hk("destroy", r.name, "--confirm", r.name)
	if got := r.hk("lab", "down", r.lab, "--confirm", r.lab); got.code != 0 {
		r.t.Errorf("lab down: exit %d: %s", got.code, got.stderr)
	}
	r.nothingLeft()
	if !r.t.Failed() {
		_ = os.RemoveAll(r.dir)
	}
}

// nothingLeft looks for what a lab leaves in a computer: processes, mounts,
// links, cgroups, network namespaces, firewall tables.
func (r *rig) nothingLeft() {
	r.t.Helper()
	for _, what := range []struct{ name, cmd string }{
		{"process", "pgrep -af " + r.dir},
		{"mount", "grep " + r.dir + " /proc/mounts"},
		{"link", "ip -o link | grep -F ' " + r.info.Bridge + "'"},
		{"cgroup", "find /sys/fs/cgroup -maxdepth 4 -type d -path '*hk-lab/" + r.lab + "-*' -print -quit"},
		{"namespace", "ip netns list | grep -E '^" + r.info.Bridge + "'"},
		{"firewall table", "nft list tables | grep -F " + r.info.Bridge},
	} {
		out, _ := exec.Command("sh", "-c", what.cmd+" | grep -v pgrep || true").Output()
		if s := strings.TrimSpace(string(out)); s != "" {
			r.t.Errorf("lab down left a %s: %s", what.name, s)
		}
	}
}

func (r *rig) write(name, text string) {
	r.t.Helper()
	if err := os.WriteFile(filepath.Join(r.dir, name), []byte(text), 0o644); err != nil {
		r.t.Fatal(err)
	}
}

// edit changes the config; the old text must be in it.
func (r *rig) edit(old, text string) {
	r.t.Helper()
	p := filepath.Join(r.dir, r.name+".yaml")
	b, err := os.ReadFile(p)
	if err != nil {
		r.t.Fatal(err)
	}
	if !strings.Contains(string(b), old) {
		r.t.Fatalf("the config holds no %q", old)
	}
	r.write(r.name+".yaml", strings.Replace(string(b), old, text, 1))
}

type answer struct {
	stdout, stderr string
	code           int
}

func (r *rig) command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, filepath.Join(binDir(r.t), "hk"), args...)
	cmd.Dir, cmd.Env = r.dir, r.env
	return cmd
}

func (r *rig) hk(args ...string) answer {
	r.t.Helper()
	return outcome(r.t, r.command(context.Background(), args...))
}

func outcome(t *testing.T, cmd *exec.Cmd) answer {
	t.Helper()
	var out, errOut bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errOut
	err := cmd.Run()
	var ee *exec.ExitError
	if err != nil && !errors.As(err, &ee) {
		t.Fatalf("%s: %v", strings.Join(cmd.Args, " "), err)
	}
	return answer{out.String(), errOut.String(), cmd.ProcessState.ExitCode()}
}

// must runs hk and wants exit 0.
func (r *rig) must(args ...string) string {
	r.t.Helper()
	a := r.hk(args...)
	if a.code != 0 {
		r.t.Fatalf("hk %s: exit %d\n%s\n%s", strings.Join(args, " "), a.code, a.stdout, a.stderr)
	}
	return a.stdout
}

// built is a build as its events tell it.
type built struct {
	last struct {
		Ran, Fresh, Failed, Blocked, Unverified, Spared int
		WallMS                                          int64 `json:"wall_ms"`
		CriticalMS                                      int64 `json:"critical_path_ms"`
		APICalls                                        int64 `json:"api_calls"`
		Exit                                            int
		Error                                           *struct{ Class, Message, Hint string }
	}
	ran    map[string]string // task -> reason
	phases map[string]bool   // of what ran
	failed map[string]string // task -> message
	raw    string
}

func (r *rig) build(args ...string) built {
	r.t.Helper()
	a := r.hk(append([]string{"build", "-o", "json"}, args...)...)
	b, err := parseBuild(a.stdout)
	if err != nil {
		r.t.Fatalf("hk build %s: %v\n%s\n%s", strings.Join(args, " "), err, a.stdout, a.stderr)
	}
	if a.code != b.last.Exit {
		r.t.Errorf("build_finished says exit %d, the process ended with %d", b.last.Exit, a.code)
	}
	return b
}

func parseBuild(out string) (built, error) {
	b := built{ran: map[string]string{}, failed: map[string]string{}, phases: map[string]bool{}, raw: out}
	lines := strings.Split(strings.TrimSpace(out), "\n")
	for _, l := range lines {
		var e struct {
			Event, Task, Phase, Status, Reason string
			Error                              *struct{ Message string }
		}
		if err := json.Unmarshal([]byte(l), &e); err != nil {
			return b, fmt.Errorf("not an event: %q", l)
		}
		if e.Event != "task_finished" {
			continue
		}
		switch e.Status {
		case "ran":
			b.ran[e.Task], b.phases[e.Phase] = e.Reason, true
		case "failed":
			b.failed[e.Task] = e.Error.Message
		}
	}
	return b, json.Unmarshal([]byte(lines[len(lines)-1]), &b.last)
}

// good wants a build that ended well.
func (r *rig) good(b built) built {
	r.t.Helper()
	if b.last.Exit != 0 {
		r.t.Fatalf("build: exit %d, %+v, failed: %v", b.last.Exit, b.last.Error, b.failed)
	}
	return b
}

// nothing wants a build that ran nothing.
func (r *rig) nothing(args ...string) built {
	r.t.Helper()
	b := r.good(r.build(append([]string{r.name}, args...)...))
	if b.last.Ran != 0 {
		r.t.Fatalf("a build with nothing to do ran %d: %v", b.last.Ran, b.ran)
	}
	return b
}

// on runs a shell line on a host over hk ssh.
func (r *rig) on(host, line string) string {
	r.t.Helper()
	a := r.hk("ssh", r.name+"/"+host, "--", "bash", "-c", line)
	if a.code != 0 {
		r.t.Fatalf("on %s: %s: exit %d\n%s\n%s", host, line, a.code, a.stdout, a.stderr)
	}
	return strings.TrimSpace(a.stdout)
}

// kubectl runs the prepared kubectl with the kubeconfig people get.
func (r *rig) kubectl(args ...string) answer {
	r.t.Helper()
	cmd := exec.Command(filepath.Join(binDir(r.t), "kubectl"), append([]string{"--kubeconfig", r.kubeconfig()}, args...)...)
	cmd.Dir = r.dir
	return outcome(r.t, cmd)
}

func (r *rig) kube(args ...string) string {
	r.t.Helper()
	a := r.kubectl(args...)
	if a.code != 0 {
		r.t.Fatalf("kubectl %s: %s%s", strings.Join(args, " "), a.stdout, a.stderr)
	}
	return strings.TrimSpace(a.stdout)
}

func (r *rig) kubeconfig() string {
	r.t.Helper()
	p := filepath.Join(r.dir, "admin.conf")
	if _, err := os.Stat(p); err != nil {
		r.write("admin.conf", r.must("kubeconfig", r.name, "--print"))
	}
	return p
}

// eventually polls until ok or the deadline; the last reason is told.
func (r *rig) eventually(limit time.Duration, what string, ok func() error) time.Duration {
	r.t.Helper()
	start := time.Now()
	for {
		err := ok()
		if err == nil {
			return time.Since(start)
		}
		if time.Since(start) > limit {
			r.t.Fatalf("%s: not within %s: %v", what, limit, err)
		}
		time.Sleep(500 * time.Millisecond) //nolint:forbidigo // the poll of an outside observer
	}
}

// allReady wants so many Nodes, all Ready.
func (r *rig) allReady(n int) func() error {
	return func() error {
		a := r.kubectl("get", "nodes", "--no-headers", "--request-timeout=3s")
		ready := 0
		for l := range strings.SplitSeq(a.stdout, "\n") {
			if f := strings.Fields(l); len(f) > 1 && f[1] == "Ready" {
				ready++
			}
		}
		if a.code != 0 || ready != n {
			return fmt.Errorf("%d of %d Nodes are Ready: %s%s", ready, n, a.stdout, a.stderr)
		}
		return nil
	}
}

// prober does something again and again and keeps the longest time between two
// successes.
type prober struct {
	mu      sync.Mutex
	last    time.Time
	longest time.Duration
	good    int
	bad     int
	stop    context.CancelFunc
	done    chan struct{}
}

// repeatedly calls try each period until stopped.
func repeatedly(period time.Duration, try func(context.Context) error) *prober {
	ctx, cancel := context.WithCancel(context.Background())
	p := &prober{last: time.Now(), stop: cancel, done: make(chan struct{})}
	go func() {
		defer close(p.done)
		for ctx.Err() == nil {
			begin := time.Now()
			p.seen(try(ctx))
			select {
			case <-ctx.Done():
			case <-time.After(time.Until(begin.Add(period))):
			}
		}
	}()
	return p
}

// apiWriter returns a write of one annotation through a kubeconfig's server with
// its credential, each on a connection of its own, as a client that starts anew.
func (r *rig) apiWriter(file, object string) func(context.Context) error {
	r.t.Helper()
	var conf struct {
		Clusters []struct {
			Cluster struct {
				Server string `json:"server"`
				CA     []byte `json:"certificate-authority-data"`
			} `json:"cluster"`
		} `json:"clusters"`
		Users []struct {
			User struct {
				Cert []byte `json:"client-certificate-data"`
				Key  []byte `json:"client-key-data"`
			} `json:"user"`
		} `json:"users"`
	}
	b, err := os.ReadFile(file)
	if err == nil {
		err = yaml.Unmarshal(b, &conf)
	}
	if err != nil || len(conf.Clusters) != 1 || len(conf.Users) != 1 {
		r.t.Fatalf("kubeconfig %s: %v", file, err)
	}
	pair, err := tls.X509KeyPair(conf.Users[0].User.Cert, conf.Users[0].User.Key)
	if err != nil {
		r.t.Fatal(err)
	}
	ca := x509.NewCertPool()
	ca.AppendCertsFromPEM(conf.Clusters[0].Cluster.CA)
	client := &http.Client{Timeout: 3 * time.Second, Transport: &http.Transport{
		TLSClientConfig: &tls.Config{RootCAs: ca, Certificates: []tls.Certificate{pair}}, DisableKeepAlives: true,
	}}
	n := 0
	return func(ctx context.Context) error {
		n++
		body := fmt.Sprintf(`{"metadata":{"annotations":{"probe":"%d"}}}`, n)
		req, err := http.NewRequestWithContext(ctx, http.MethodPatch, conf.Clusters[0].Cluster.Server+"/api/v1/namespaces/default/"+object, strings.NewReader(body))
		if err != nil {
			return err
		}
		req.Header.Set("Content-Type", "application/merge-patch+json")
		resp, err := client.Do(req)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		_, err = io.Copy(io.Discard, resp.Body)
		if resp.StatusCode != http.StatusOK {
			return fmt.Errorf("%s", resp.Status)
		}
		return err
	}
}

func (p *prober) seen(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	if d := now.Sub(p.last); p.good > 0 && d > p.longest {
		p.longest = d
	}
	if err != nil {
		p.bad++
		return
	}
	p.good++
	p.last = now
}

// end stops the probe and returns the longest gap.
func (p *prober) end() (longest time.Duration, good, bad int) {
	p.stop()
	<-p.done
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.longest, p.good, p.bad
}

// power asks the lab's API for a server action, as the cloud's console would.
func (r *rig) power(host, action string) {
	r.t.Helper()
	id := r.serverID(host)
	cmd := exec.Command("curl", "-fsS", "-X", "POST", "-H", "Authorization: Bearer "+r.info.Token, fmt.Sprintf("%s/servers/%d/actions/%s", r.info.Endpoint, id, action))
	if a := outcome(r.t, cmd); a.code != 0 {
		r.t.Fatalf("%s %s: %s%s", action, host, a.stdout, a.stderr)
	}
}

type apiServer struct {
	ID     int64
	Name   string
	Status string
	Public struct {
		IPv4 struct{ IP string } `json:"ipv4"`
	} `json:"public_net"`
}

func (r *rig) servers() []apiServer {
	r.t.Helper()
	a := outcome(r.t, exec.Command("curl", "-fsS", "-H", "Authorization: Bearer "+r.info.Token, r.info.Endpoint+"/servers?per_page=50"))
	var list struct{ Servers []apiServer }
	if err := json.Unmarshal([]byte(a.stdout), &list); err != nil {
		r.t.Fatalf("the lab's servers: %v: %s%s", err, a.stdout, a.stderr)
	}
	return list.Servers
}

func (r *rig) serverID(host string) int64 {
	r.t.Helper()
	for _, s := range r.servers() {
		if s.Name == r.name+"-"+host {
			return s.ID
		}
	}
	r.t.Fatalf("no server of %s", host)
	return 0
}

// oneCA wants one cluster CA on all masters, in the unit and as served.
func (r *rig) oneCA(masters int) string {
	r.t.Helper()
	want := ""
	for i := 1; i <= masters; i++ {
		got := r.on(fmt.Sprintf("master-%d", i), "openssl x509 -in /etc/kubernetes/pki/ca.crt -noout -fingerprint -sha256")
		if want != "" && got != want {
			r.t.Fatalf("master-%d has CA %s, master-1 %s", i, got, want)
		}
		want = got
	}
	unit, err := exec.Command("openssl", "x509", "-in", filepath.Join(r.dir, "home", "clusters", r.name, "ca.crt"), "-noout", "-fingerprint", "-sha256").Output()
	if err != nil || strings.TrimSpace(string(unit)) != want {
		r.t.Fatalf("the credential unit has CA %s (%v), the masters %s", unit, err, want)
	}
	if a := r.kubectl("get", "--raw", "/readyz"); a.code != 0 {
		r.t.Fatalf("the served certificate is not of this CA: %s", a.stderr)
	}
	return want
}
