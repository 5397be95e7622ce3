package spec

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
)

func TestDiff(t *testing.T) {
	const base = "name: demo\nworkers:\n- {pool: worker, count: 2}\n- {pool: gpu, count: 1, labels: {tier: a}}\n"
	cases := map[string]struct {
		old, new string
		want     []string // "field old->new class line"
	}{
		"nothing":              {base, base, nil},
		"order of pools":       {base, "name: demo\nworkers:\n- {pool: gpu, count: 1, labels: {tier: a}}\n- {pool: worker, count: 2}\n", nil},
		"client only":          {base, base + "ssh: {key: other.key, agent: true}\n", nil},
		"default spelt out":    {base, base + "cni: mesh\n", nil},
		"name":                 {base, strings.Replace(base, "demo", "other", 1), []string{"name demo->other immutable 1"}},
		"more workers":         {base, strings.Replace(base, "count: 2", "count: 3", 1), []string{"workers[worker].count 2->3 safe 3"}},
		"fewer workers":        {base, strings.Replace(base, "count: 2", "count: 1", 1), []string{"workers[worker].count 2->1 disruptive 3"}},
		"label":                {base, strings.Replace(base, "tier: a", "tier: b", 1), []string{"workers[gpu].labels.tier a->b safe 4"}},
		"taint evicts":         {strings.Replace(base, "labels: {tier: a}", "taints: []", 1), strings.Replace(base, "labels: {tier: a}", "taints: [{key: k, effect: NoExecute}]", 1), []string{`workers[gpu].taints []->[{"key":"k","value":"","effect":"NoExecute"}] disruptive 4`}},
		"masters grow":         {"name: a\nmasters: {count: 1}\n", "name: a\nmasters: {count: 3}\nendpoint: {external: master}\n", []string{"masters.count 1->3 safe 2"}},
		"masters shrink":       {"name: a\n", "name: a\nmasters: {count: 1}\nendpoint: {external: load-balancer}\n", []string{"masters.count 3->1 disruptive 2"}},
		"endpoint follows":     {"name: a\nmasters: {count: 1}\n", "name: a\nmasters: {count: 3}\n", []string{"masters.count 1->3 safe 2", "endpoint.external master->load-balancer disruptive 0"}},
		"etcd moves":           {"name: a\n", "name: a\netcd: {count: 3}\n", []string{"etcd.count 0->3 immutable 2"}},
		"etcd grows":           {"name: a\netcd: {count: 1}\n", "name: a\netcd: {count: 3}\n", []string{"etcd.count 1->3 safe 2"}},
		"etcd shrinks":         {"name: a\netcd: {count: 3}\n", "name: a\netcd: {count: 1}\n", []string{"etcd.count 3->1 disruptive 2"}},
		"network":              {"name: a\n", "name: a\nnetwork: {mesh: 10.101.0.0/16}\n", []string{"network.mesh 10.100.0.0/16->10.101.0.0/16 immutable 2"}},
		"upgrade":              {"name: a\nkubernetes: {version: v1.36.3}\n", "name: a\n", []string{"kubernetes.version v1.36.3->v1.37.2 disruptive 0"}},
		"patch":                {"name: a\nkubernetes: {version: v1.37.1}\n", "name: a\n", []string{"kubernetes.version v1.37.1->v1.37.2 disruptive 0"}},
		"downgrade":            {"name: a\n", "name: a\nkubernetes: {version: v1.36.3}\n", []string{"kubernetes.version v1.37.2->v1.36.3 immutable 2"}},
		"kubelet":              {"name: a\n", "name: a\nkubernetes: {kubelet: {maxPods: 50}}\n", []string{"kubernetes.kubelet.maxPods ->50 disruptive 2"}},
		"load balanced":        {"name: a\n", "name: a\nworkers: [{pool: worker, count: 2, load_balanced: false}]\n", []string{"workers[worker].load_balanced ->false safe 2"}},
		"types for new":        {"name: a\n", "name: a\nmasters: {count: 3, type: cx33}\nlocation: nbg1\nimage: debian-13\n", []string{"location fsn1->nbg1 safe 3", "image debian-12->debian-13 safe 4", "masters.type cx23->cx33 safe 2"}},
		"cni":                  {"name: a\n", "name: a\ncni: none\n", []string{"cni mesh->none immutable 2"}},
		"cloud":                {"name: a\n", "name: a\ncloud: hetzner\n", []string{"cloud lab->hetzner immutable 2", "lab default-> immutable 0"}},
		"mirrors":              {"name: a\n", "name: a\nmirrors: {registry: \"http://x\"}\n", []string{"mirrors.registry ->http://x safe 2"}},
		"sim world moves away": {"name: a\ncloud: sim\n", "name: a\ncloud: sim\nsim: {world: b.sim, seed: 5}\n", nil},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			older, _ := parse(t, c.old)
			newer, src := parse(t, c.new)
			var got []string
			for _, ch := range Diff(older, newer, src) {
				got = append(got, fmt.Sprintf("%s %s->%s %s %d", ch.Field, ch.Old, ch.New, ch.Class, ch.Line))
			}
			if !reflect.DeepEqual(got, c.want) {
				t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(c.want, "\n"))
			}
		})
	}
}

func TestDiffOfPools(t *testing.T) {
	older, _ := parse(t, "name: a\nworkers: [{pool: x, count: 1}]\n")
	newer, src := parse(t, "name: a\nworkers: [{pool: y, count: 2}]\n")
	var removed, added bool
	for _, ch := range Diff(older, newer, src) {
		switch ch.Field {
		case "workers[x].count":
			removed = ch.Class == Disruptive && ch.Why == "the pool's hosts are removed"
		case "workers[y].count":
			added = ch.Class == Safe && ch.New == "2" && ch.Line == 2
		}
	}
	if !removed || !added {
		t.Errorf("removed %t, added %t: %+v", removed, added, Diff(older, newer, src))
	}
}

// TestFieldsAreTheTypes: the table, from which classes and schema come, knows
// every field of the types and no others.
func TestFieldsAreTheTypes(t *testing.T) {
	want := map[string]bool{}
	var walk func(t reflect.Type, path string)
	walk = func(ty reflect.Type, path string) {
		switch ty.Kind() {
		case reflect.Struct:
			for f := range ty.Fields() {
				p := join(path, yamlName(f))
				want[p] = true
				walk(f.Type, p)
			}
		case reflect.Slice:
			walk(ty.Elem(), path+"[]")
		default:
		}
	}
	walk(reflect.TypeFor[Cluster](), "")
	for _, f := range Fields() {
		if !want[f.Path] {
			t.Errorf("the table has %s twice, or the types do not know it", f.Path)
		}
		delete(want, f.Path)
		if f.Doc == "" || f.Class == "" {
			t.Errorf("%s has no words or no class", f.Path)
		}
	}
	for p := range want {
		t.Errorf("the table does not know %s", p)
	}
}
