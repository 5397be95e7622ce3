package spec

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// parse is a config that must be good.
func parse(t *testing.T, text string) (*Cluster, *Source) {
	t.Helper()
	c, src, err := Parse([]byte(text), "/configs/demo.yaml")
	if err != nil {
		t.Fatal(err)
	}
	return c, src
}

// designExample is DESIGN §7's example without its comments: the default set.
const designExample = `name: demo
cloud: lab
lab: default
sim: {world: demo.sim, latency: none, seed: 1, faults: []}
location: fsn1
image: debian-12
ssh: {key: demo.key, agent: false, user: root, port: 22, bastion: {}}
kubernetes: {version: v1.37.2, kubelet: {}, kubeadm: {}}
network: {mesh: 10.100.0.0/16, private: 10.99.0.0/16, pods: 10.128.0.0/10, services: 10.200.0.0/16, mesh_port: 51820}
etcd: {count: 0, type: cx23}
masters: {count: 3, type: cx23}
workers: [{pool: worker, count: 2, type: cx23, labels: {}, taints: [], location: ""}]
endpoint: {external: load-balancer}
cni: mesh
addons: []
mirrors: {artifacts: "", registry: ""}
`

func TestDefaultsAreTheExample(t *testing.T) {
	bare, _ := parse(t, "name: demo\n")
	full, _ := parse(t, designExample)
	full.Sim = Sim{} // the example shows every world's fields; a lab cluster has no sim
	if d := cmp.Diff(full, bare); d != "" {
		t.Errorf("defaults differ from the example (-example +defaults):\n%s", d)
	}
	sim, _ := parse(t, "name: demo\ncloud: sim\n")
	if want := (Sim{World: "/configs/demo.sim", Latency: "none", Seed: 1}); cmp.Diff(want, sim.Sim) != "" {
		t.Errorf("sim defaults: %+v", sim.Sim)
	}
	if sim.Lab != "" {
		t.Errorf("a sim cluster names lab %q", sim.Lab)
	}
}

func TestEndpointDefaultFollowsMasters(t *testing.T) {
	for masters, want := range map[int]string{1: EndpointMaster, 3: EndpointLoadBalancer, 5: EndpointLoadBalancer} {
		c, _ := parse(t, fmt.Sprintf("name: demo\nmasters: {count: %d}\n", masters))
		if c.Endpoint.External != want {
			t.Errorf("%d masters: endpoint %q, want %q", masters, c.Endpoint.External, want)
		}
	}
	c, _ := parse(t, "name: demo\nendpoint: {external: dns api.example.com}\n")
	if c.Endpoint.Kind() != EndpointDNS || c.Endpoint.DNSName() != "api.example.com" {
		t.Errorf("dns endpoint: %q %q", c.Endpoint.Kind(), c.Endpoint.DNSName())
	}
}

func TestZeroIsNotReplaced(t *testing.T) {
	c, _ := parse(t, "name: demo\nworkers: [{pool: a, count: 0}]\n")
	if c.Workers[0].Count != 0 {
		t.Errorf("an empty pool became %d workers", c.Workers[0].Count)
	}
	c, _ = parse(t, "name: demo\nworkers: []\n")
	if len(c.Workers) != 0 {
		t.Errorf("no pools became %d", len(c.Workers))
	}
}

func TestPathsAreRelativeToTheFile(t *testing.T) {
	t.Setenv("HOME", "/home/op")
	c, _ := parse(t, "name: demo\nssh: {key: ~/.ssh/id, bastion: {host: b, key: keys/b, host_key: ssh-ed25519 AAAA}}\n")
	if c.SSH.Key != "/home/op/.ssh/id" || c.SSH.Bastion.Key != "/configs/keys/b" {
		t.Errorf("keys %q %q", c.SSH.Key, c.SSH.Bastion.Key)
	}
	c, _, err := Parse([]byte("name: demo\n"), "demo.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if !filepath.IsAbs(c.SSH.Key) || filepath.Base(c.SSH.Key) != "demo.key" {
		t.Errorf("key %q", c.SSH.Key)
	}
}

func TestMarshalReadsBackEqual(t *testing.T) {
	for name, text := range valid {
		t.Run(name, func(t *testing.T) {
			c, _ := parse(t, text)
			data, err := Marshal(c)
			if err != nil {
				t.Fatal(err)
			}
			back, _, err := Parse(data, "/elsewhere/x.yaml")
			if err != nil {
				t.Fatalf("%v\n%s", err, data)
			}
			if d := cmp.Diff(c, back, cmpopts.EquateEmpty()); d != "" {
				t.Errorf("%s\n%s", d, data)
			}
		})
	}
}

// valid are configs that must be taken, by the loader and by the schema.
var valid = map[string]string{
	"bare":         "name: demo\n",
	"example":      designExample,
	"one master":   "name: a\nmasters: {count: 1}\nworkers: []\n",
	"etcd pool":    "name: a\nmasters: {count: 2}\netcd: {count: 3, type: cax11}\n",
	"empty pool":   "name: a\nworkers: [{pool: worker, count: 0}, {pool: gpu, count: 1}]\n",
	"dns":          "name: a\nendpoint: {external: dns api.example.com}\n",
	"no cni":       "name: a\ncni: none\n",
	"mirrors":      "name: a\nmirrors: {artifacts: \"http://198.18.0.1:8080/\", registry: \"http://198.18.0.1:5000\"}\n",
	"sim":          "name: a\ncloud: sim\nsim: {seed: 42, latency: hetzner, faults: [\"create 3 lost\"]}\n",
	"bastion":      "name: a\nssh: {agent: true, bastion: {host: b.example.com, host_key: ssh-ed25519 AAAA}}\n",
	"older":        "name: a\nkubernetes: {version: v1.36.3}\n",
	"pass through": "name: a\nkubernetes: {kubelet: {maxPods: 200, evictionHard: {memory.available: 1Gi}, x: [1, 2.5, true]}, kubeadm: {apiServer: {extraArgs: [{name: v, value: \"2\"}]}}}\n",
	"pools": `name: a
workers:
  - {pool: small, count: 1, location: nbg1, load_balanced: false}
  - pool: gpu
    count: 2
    type: ccx13
    labels: {tier: "1", example.com/gpu: "yes"}
    taints: [{key: dedicated, value: gpu, effect: NoSchedule}, {key: dedicated, value: gpu, effect: NoExecute}]
`,
	"anchors":     "name: a\nmasters: {count: 3, type: &t cx33}\nworkers: [{pool: w, count: 1, type: *t}]\n",
	"large":       "name: a\nworkers: [{pool: w, count: 497}]\n",
	"snapshot id": "name: a\nimage: \"161547269\"\n",
}

func TestValid(t *testing.T) {
	for name, text := range valid {
		t.Run(name, func(t *testing.T) { parse(t, text) })
	}
}

// wrong is one file and all that must be said about it: "line:col path: message
// | hint", a part of each being enough.
var wrong = map[string]struct {
	text string
	want []string
}{
	"empty":            {"", []string{`0:0 : the file is empty | hk init`}},
	"only comments":    {"# nothing\n", []string{`0:0 : the file is empty`}},
	"no name":          {"cloud: lab\n", []string{`0:0 name: a cluster needs a name | name: demo`}},
	"not a mapping":    {"- a\n", []string{`1:1 : must be a block of keys, not a list`}},
	"syntax":           {"name: demo\nmasters: {count: 3\n", []string{`: not valid YAML`}},
	"two documents":    {"name: a\n---\nname: b\n", []string{`2:1 : holds more than one document`}},
	"unknown key":      {"name: a\nmasters:\n  cuont: 3\n", []string{`3:3 masters.cuont: unknown key | did you mean count?`}},
	"unknown far away": {"name: a\nmesh_port: 1\n", []string{`2:1 mesh_port: unknown key | mesh_port belongs under network`}},
	"unknown at all":   {"name: a\nquux: 1\n", []string{`2:1 quux: unknown key | known here: name, cloud`}},
	"twice":            {"name: a\ncni: mesh\ncni: none\n", []string{`3:1 cni: is given twice, first on line 2`}},
	"twice in a map":   {"name: a\nworkers: [{pool: w, count: 1, labels: {x: a, x: b}}]\n", []string{`workers[0].labels.x: is given twice`}},
	"wrong types": {"name: 5\nmasters: {count: three}\nssh: {agent: maybe}\nworkers: 3\n", []string{
		`1:7 name: must be text, not the number 5 | write it in quotes: "5"`,
		`2:18 masters.count: must be a whole number, not the text "three"`,
		`3:14 ssh.agent: must be true or false, not the text "maybe"`,
		`4:10 workers: must be a list, not the number 3`,
	}},
	"octal":           {"name: a\nmasters: {count: 03}\n", []string{`2:18 masters.count: must be a whole number`}},
	"version number":  {"name: a\nkubernetes: {version: 1.37}\n", []string{`2:23 kubernetes.version: must be text, not the number 1.37`}},
	"no value":        {"name: a\nworkers:\ncni: mesh\n", []string{`2:9 workers: has no value | write [] for none`}},
	"own tag":         {"name: !x a\n", []string{`1:7 name: must be text, not a value with tag !x`}},
	"merge key":       {"name: a\nx: &x {count: 3}\nmasters: {<<: *x}\n", []string{`2:1 x: unknown key`, `3:11 masters: a key must be plain text`}},
	"alias to itself": {"name: a\nkubernetes: {kubelet: &k {a: *k}}\n", []string{``}},
	"name":            {"name: Demo_1\n", []string{`1:7 name: "Demo_1" is no name of a cluster`}},
	"long name":       {"name: " + strings.Repeat("a", 41) + "\n", []string{`1:7 name: has 41 characters, 40 are possible`}},
	"cloud":           {"name: a\ncloud: hetzer\n", []string{`2:8 cloud: "hetzer" is not known | did you mean hetzner?`}},
	"even masters":    {"name: a\nmasters: {count: 2}\n", []string{`2:18 masters.count: 2 masters carry etcd, an even number`}},
	"even etcd":       {"name: a\netcd: {count: 4}\n", []string{`2:15 etcd.count: 4 members of etcd, an even number survives no more losses than 3 | 3 or 5`}},
	"no masters":      {"name: a\nmasters: {count: 0}\n", []string{`2:18 masters.count: 0 masters make no cluster`}},
	"networks": {"name: a\nnetwork: {mesh: 10.100.0.0/16, private: 10.100.4.0/24, pods: 10.128.0.1/10, services: 8.8.0.0/16}\n", []string{
		`2:41 network.private: 10.100.4.0/24 overlaps network.mesh 10.100.0.0/16`,
		`2:62 network.pods: 10.128.0.1/10 is an address inside a network | the network is 10.128.0.0/10`,
		`2:87 network.services: 8.8.0.0/16 holds public addresses`,
	}},
	"ipv6":          {"name: a\nnetwork: {mesh: \"fd00::/64\"}\n", []string{`2:17 network.mesh: fd00::/64 is not an IPv4 network`}},
	"small pods":    {"name: a\nnetwork: {pods: 10.128.0.0/22}\n", []string{`network.pods: 10.128.0.0/22 has room for 3 hosts; 5 and 16 spare are needed`}},
	"mesh too long": {"name: a\nnetwork: {mesh: 10.100.0.0/30}\n", []string{`network.mesh: 10.100.0.0/30 has a size that does not fit | from /8 to /28`}},
	"mesh port":     {"name: a\nnetwork: {mesh_port: 30001}\n", []string{`network.mesh_port: 30001 is one of Kubernetes' NodePorts`}},
	"version":       {"name: a\nkubernetes: {version: v1.35.0}\n", []string{`kubernetes.version: v1.35.0 is not supported | v1.36 and v1.37 are`}},
	"version no v":  {"name: a\nkubernetes: {version: 1.37.2}\n", []string{`kubernetes.version: "1.37.2" is no version | such as v1.37.2, with the v`}},
	"version short": {"name: a\nkubernetes: {version: v1.37}\n", []string{`kubernetes.version: "v1.37" is no version | such as v1.37.2, all three`}},
	"owned fields":  {"name: a\nkubernetes: {kubelet: {providerID: x}, kubeadm: {etcd: {}}}\n", []string{`kubernetes.kubelet.providerID: is set by hk itself`, `kubernetes.kubeadm.etcd: is set by hk itself`}},
	"not json":      {"name: a\nkubernetes: {kubelet: {x: .inf}}\n", []string{`2:27 kubernetes.kubelet.x: cannot be passed on`}},
	"pools": {"name: a\nworkers:\n- {pool: master, count: 1}\n- {pool: w, count: -1}\n- {pool: w, count: 1}\n- {pool: Up, count: 1}\n", []string{
		`3:10 workers[0].pool: the name "master" is taken by hk's own hosts`,
		`4:20 workers[1].count: -1 is no number of workers`,
		`5:10 workers[2].pool: pool "w" is there twice, first as workers[1]`,
		`6:10 workers[3].pool: "Up" is no name of a pool`,
	}},
	"labels": {"name: a\nworkers: [{pool: w, count: 1, labels: {\"a b\": x, ok: \"-\", kubernetes.io/arch: arm64, n: 1}}]\n", []string{
		`workers[0].labels.a b: "a b" is no label key`,
		`workers[0].labels.ok: "-" is no label value`,
		`workers[0].labels.kubernetes.io/arch: is set by hk itself`,
		`workers[0].labels.n: must be text, not the number 1`,
	}},
	"taints": {"name: a\nworkers: [{pool: w, count: 1, taints: [{key: k, effect: Noschedule}, {key: /x, effect: NoExecute}, {key: /x, effect: NoExecute}]}]\n", []string{
		`workers[0].taints[0].effect: "Noschedule" is not known | did you mean NoSchedule?`,
		`workers[0].taints[1].key: "/x" is no taint key`,
		`workers[0].taints[2].key: "/x" is no taint key`,
		`workers[0].taints[2]: the same key and effect are there twice`,
	}},
	"endpoint":    {"name: a\nendpoint: {external: loadbalancer}\n", []string{`endpoint.external: "loadbalancer" is not known | did you mean load-balancer?`}},
	"dns":         {"name: a\nendpoint: {external: dns api}\n", []string{`endpoint.external: "api" is no DNS name`}},
	"flannel":     {"name: a\ncni: flannel\n", []string{`2:6 cni: flannel is not available yet | use mesh or none`}},
	"addons":      {"name: a\naddons: [ccm, nginx]\n", []string{`addons[0]: addon ccm is not available yet`, `addons[1]: addon "nginx" is not known`}},
	"mirrors":     {"name: a\nmirrors: {artifacts: mirror.local, registry: \"http://u:p@x/\"}\n", []string{`mirrors.artifacts: "mirror.local" is no address of a mirror`, `mirrors.registry: holds more than scheme, host and path`}},
	"ssh user":    {"name: a\nssh: {user: admin, port: 0}\n", []string{`ssh.user: "admin" cannot be used, only root can`, `ssh.port: 0 is no port`}},
	"bastion":     {"name: a\nssh: {bastion: {user: x}}\n", []string{`ssh.bastion: has no host`}},
	"bastion key": {"name: a\nssh: {bastion: {host: b}}\n", []string{`ssh.bastion.host_key: the bastion's public host key is needed`}},
	"attached":    {"name: a\nworkers: [{pool: w, count: 97, load_balanced: true}]\n", []string{`workers[0]: 100 servers in the private network, it holds 99`}},
}

func TestWrong(t *testing.T) {
	for name, c := range wrong {
		t.Run(name, func(t *testing.T) {
			_, _, err := Parse([]byte(c.text), "demo.yaml")
			var got Problems
			if !errors.As(err, &got) {
				t.Fatalf("error %v, want problems", err)
			}
			var lines []string
			for _, e := range got {
				lines = append(lines, fmt.Sprintf("%d:%d %s: %s | %s", e.Line, e.Col, e.Path, e.Msg, e.Hint))
			}
			all := strings.Join(lines, "\n")
			if len(got) != len(c.want) {
				t.Errorf("%d problems, want %d:\n%s", len(got), len(c.want), all)
			}
			for _, w := range c.want {
				if !strings.Contains(all, w) {
					t.Errorf("nobody says %q:\n%s", w, all)
				}
			}
			var one *ConfigError
			if !errors.As(err, &one) || one.Class() != "config" {
				t.Errorf("no ConfigError to be found in %v", err)
			}
		})
	}
}

func TestSnippetPointsAtThePlace(t *testing.T) {
	_, _, err := Parse([]byte("name: a\nmasters:\n\tcuont: 3\n"), "x.yaml")
	if err == nil {
		t.Fatal("a tab as indentation was taken")
	}
	_, _, err = Parse([]byte("name: a\nmasters: {cuont: 3}\n"), "x.yaml")
	var one *ConfigError
	if !errors.As(err, &one) {
		t.Fatal(err)
	}
	if want := "   2 | masters: {cuont: 3}\n     |           ^"; one.Snippet != want {
		t.Errorf("snippet\n%s\nwant\n%s", one.Snippet, want)
	}
	if want := "x.yaml:2:11: masters.cuont: unknown key (did you mean count?)"; one.Error() != want {
		t.Errorf("text %q, want %q", one.Error(), want)
	}
}

func TestPosition(t *testing.T) {
	_, src := parse(t, valid["pools"])
	for path, line := range map[string]int{
		"name": 1, "workers[1].count": 5, "workers[1].taints[1].effect": 8, "workers[0].type": 3, "masters.count": 0,
	} {
		if got, _, _ := src.Position(path); got != line {
			t.Errorf("%s is on line %d, want %d", path, got, line)
		}
	}
}

func TestLoadReadsAFileOnce(t *testing.T) {
	_, _, err := Load(filepath.Join(t.TempDir(), "none.yaml"))
	if err == nil || !strings.Contains(err.Error(), "reading the config") {
		t.Errorf("a missing file: %v", err)
	}
}

func FuzzParse(f *testing.F) {
	for _, text := range valid {
		f.Add(text)
	}
	for _, c := range wrong {
		f.Add(c.text)
	}
	f.Add("name: a\nkubernetes: {kubelet: {a: &a [x], b: &b [*a, *a], c: [*b, *b]}}\n")
	f.Fuzz(func(t *testing.T, text string) {
		c, _, err := Parse([]byte(text), "/configs/x.yaml")
		if err != nil {
			var p Problems
			if !errors.As(err, &p) || len(p) == 0 {
				t.Fatalf("an error that is no list of problems: %v", err)
			}
			return
		}
		Expand(c, Allocate(nil, Names(c)))
		data, err := Marshal(c)
		if err != nil {
			t.Fatal(err)
		}
		back, _, err := Parse(data, "/configs/x.yaml")
		if err != nil {
			t.Fatalf("what was written is not read back: %v\n%s", err, data)
		}
		if d := Diff(c, back, nil); len(d) > 0 {
			t.Fatalf("what was written reads back as another config: %v\n%s", d, data)
		}
	})
}
