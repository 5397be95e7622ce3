package sim

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"

	"hk/remote"
)

// kubeState is what was done once to a Kubernetes cluster.
type kubeState struct {
	Config, Tokens, Addons bool
	Version                string
}

func kubeKey(uid string) string       { return "kube/" + uid }
func nodeKey(uid, name string) string { return "node/" + uid + "/" + name }

// apiUp reports whether a machine's own API server answers: its manifest is
// there, the kubelet runs it, and etcd has a quorum.
func apiUp(t *tx, id int64) bool {
	v, ok := load[server](t, key("server", id))
	if !ok || v.Status != "running" {
		return false
	}
	if cut, _ := load[bool](t, key("cut", id)); cut {
		return false
	}
	u, _ := load[hostUnit](t, unitKey(id, kubeletUnit))
	if !u.Active || !t.has(fileKey(id, manifest("kube-apiserver"))) {
		return false
	}
	c, ok := etcdOf(t, v.Labels[remote.LabelUID])
	return ok && c.quorum(t)
}

func manifest(name string) string { return "/etc/kubernetes/manifests/" + name + ".yaml" }

// register makes the Node object of a machine.
func register(t *tx, v *server, version string) {
	uid := v.Labels[remote.LabelUID]
	k := nodeKey(uid, v.Name)
	if t.has(k) {
		return
	}
	n := remote.Node{
		Name: v.Name, UID: fmt.Sprintf("node-%d", t.next()), ProviderID: fmt.Sprintf("hcloud://%d", v.ID),
		KubeletVersion: version, Labels: map[string]string{"kubernetes.io/hostname": v.Name},
	}
	if t.has(fileKey(v.ID, manifest("kube-apiserver"))) {
		n.Labels["node-role.kubernetes.io/control-plane"] = ""
		n.Taints = []remote.Taint{{Key: "node-role.kubernetes.io/control-plane", Effect: "NoSchedule"}}
	}
	if wg, ok := wgOf(t, v.ID); ok {
		n.Addresses = []string{wg.address}
	}
	store(t, k, n)
}

// ready says what the Node's kubelet would report now.
func ready(t *tx, uid string, n *remote.Node) {
	n.Ready, n.NotReadyReason, n.NotReadyMessage = false, "NodeStatusUnknown", "Kubelet stopped posting node status."
	for _, k := range t.keys("server/") {
		v, _ := load[server](t, k)
		if v.Name != n.Name || v.Labels[remote.LabelUID] != uid || v.Status != "running" {
			continue
		}
		if u, _ := load[hostUnit](t, unitKey(v.ID, kubeletUnit)); !u.Active {
			continue
		}
		if len(t.keys(fileKey(v.ID, "/etc/cni/net.d/"))) == 0 {
			n.NotReadyReason, n.NotReadyMessage = "KubeletNotReady", "container runtime network not ready: NetworkReady=false reason:NetworkPluginNotReady message:Network plugin returns error: cni plugin not initialized"
			continue
		}
		n.Ready, n.NotReadyReason, n.NotReadyMessage = true, "", ""
	}
}

// Kube is a client of one cluster's API.
type Kube struct {
	w   *World
	eps []remote.Endpoint
}

var _ remote.Kube = (*Kube)(nil)

// NewKube makes a client of the API servers on the endpoints' hosts.
func (w *World) NewKube(c remote.ClientCert, eps []remote.Endpoint) (remote.Kube, error) {
	if len(c.Cert) == 0 || len(c.Key) == 0 || len(c.CA) == 0 {
		return nil, errors.New("the API needs a client certificate")
	}
	return &Kube{w: w, eps: eps}, nil
}

func kubeErr(op, format string, args ...any) error {
	return &remote.WorldError{World: "kube", Op: op, Again: true, Err: fmt.Errorf(format, args...)}
}

func kubeMissing(op string) error {
	return &remote.WorldError{World: "kube", Op: op, Err: remote.ErrNotFound}
}

// through finds an API server that is up and returns the cluster's UID.
func (k *Kube) through(t *tx, op, via string) (string, *server, error) {
	for _, ep := range k.eps {
		if via != "" && via != ep.Host {
			continue
		}
		h, ok := ep.Via.(*Host)
		if !ok {
			if uid, v := lbTarget(t, ep.Addr); v != nil {
				return uid, v, nil
			}
			continue
		}
		v, err := h.machine(t, op)
		if err == nil && apiUp(t, v.ID) {
			return v.Labels[remote.LabelUID], v, nil
		}
	}
	return "", nil, kubeErr(op, "no API server answers")
}

// lbTarget is a healthy master behind a load balancer's address.
func lbTarget(t *tx, addr string) (string, *server) {
	for _, lb := range all[remote.LoadBalancer](t, "lb/") {
		if !strings.HasPrefix(addr, lb.IPv4+":") || len(lb.Services) == 0 {
			continue
		}
		for _, tg := range lb.Targets {
			if v, ok := load[server](t, key("server", tg.Server)); ok && apiUp(t, v.ID) {
				return v.Labels[remote.LabelUID], &v
			}
		}
	}
	return "", nil
}

func (k *Kube) read(ctx context.Context, op, via string, fn func(t *tx, uid string, v *server) error) error {
	return k.w.view(ctx, "kube "+op, func(t *tx) error {
		uid, v, err := k.through(t, op, via)
		if err != nil {
			return err
		}
		return fn(t, uid, v)
	})
}

func (k *Kube) write(ctx context.Context, op string, fn func(t *tx, uid string) error) error {
	return k.w.update(ctx, "kube "+op, func(t *tx) error {
		uid, _, err := k.through(t, op, "")
		if err != nil {
			return err
		}
		return fn(t, uid)
	})
}

// ReadyAt asks one master.
func (k *Kube) ReadyAt(ctx context.Context, via string) error {
	return k.read(ctx, "readyz", via, func(*tx, string, *server) error { return nil })
}

// ServedCA is the fingerprint of the CA on the master's disk.
func (k *Kube) ServedCA(ctx context.Context, via string) (string, error) {
	var out string
	err := k.read(ctx, "served CA", via, func(t *tx, _ string, v *server) error {
		f, ok := load[hostFile](t, fileKey(v.ID, "/etc/kubernetes/pki/ca.crt"))
		block, _ := pem.Decode(f.Content)
		if !ok || block == nil {
			return kubeErr("served CA", "the server has no CA")
		}
		s := sha256.Sum256(block.Bytes)
		out = hex.EncodeToString(s[:])
		return nil
	})
	return out, err
}

// Version is the API server's.
func (k *Kube) Version(ctx context.Context) (string, error) {
	var out string
	err := k.read(ctx, "version", "", func(t *tx, uid string, _ *server) error {
		s, _ := load[kubeState](t, kubeKey(uid))
		out = s.Version
		return nil
	})
	return out, err
}

// Nodes lists the Nodes.
func (k *Kube) Nodes(ctx context.Context) ([]remote.Node, error) {
	var out []remote.Node
	err := k.read(ctx, "nodes", "", func(t *tx, uid string, _ *server) error {
		out = all[remote.Node](t, "node/"+uid+"/")
		for i := range out {
			ready(t, uid, &out[i])
		}
		return nil
	})
	return out, err
}

// Node returns one.
func (k *Kube) Node(ctx context.Context, name string) (*remote.Node, error) {
	var out *remote.Node
	err := k.read(ctx, "node", "", func(t *tx, uid string, _ *server) error {
		n, ok := load[remote.Node](t, nodeKey(uid, name))
		if !ok {
			return kubeMissing("node " + name)
		}
		ready(t, uid, &n)
		out = &n
		return nil
	})
	return out, err
}

// PatchNode sets what is given.
func (k *Kube) PatchNode(ctx context.Context, name string, p remote.NodePatch) error {
	return k.write(ctx, "patch node", func(t *tx, uid string) error {
		n, ok := load[remote.Node](t, nodeKey(uid, name))
		if !ok {
			return kubeMissing("node " + name)
		}
		if n.Labels == nil {
			n.Labels = map[string]string{}
		}
		maps.Copy(n.Labels, p.Labels)
		for _, l := range p.RemoveLabels {
			delete(n.Labels, l)
		}
		if n.Annotations == nil {
			n.Annotations = map[string]string{}
		}
		maps.Copy(n.Annotations, p.Annotations)
		same := func(a, b remote.Taint) bool { return a.Key == b.Key && a.Effect == b.Effect }
		n.Taints = slices.DeleteFunc(n.Taints, func(a remote.Taint) bool {
			return slices.ContainsFunc(slices.Concat(p.Taints, p.RemoveTaints), func(b remote.Taint) bool { return same(a, b) })
		})
		n.Taints = append(n.Taints, p.Taints...)
		if p.PodCIDR != "" && n.PodCIDR == "" {
			n.PodCIDR = p.PodCIDR
		}
		store(t, nodeKey(uid, name), n)
		return nil
	})
}

// DeleteNode removes one.
func (k *Kube) DeleteNode(ctx context.Context, name string) error {
	return k.write(ctx, "delete node", func(t *tx, uid string) error {
		t.del(nodeKey(uid, name))
		return nil
	})
}

// Cordon marks a Node as not schedulable, or back.
func (k *Kube) Cordon(ctx context.Context, name string, on bool) error {
	taint := remote.Taint{Key: "node.kubernetes.io/unschedulable", Effect: "NoSchedule"}
	if on {
		return k.PatchNode(ctx, name, remote.NodePatch{Taints: []remote.Taint{taint}})
	}
	return k.PatchNode(ctx, name, remote.NodePatch{RemoveTaints: []remote.Taint{taint}})
}

// simPod is what is kept of a pod: there are those that were applied.
type simPod struct {
	Metadata struct {
		Namespace, Name, UID string
		OwnerReferences      []struct{ Kind string }
		Labels               map[string]string
	}
	Spec struct{ NodeName string }
}

// PodsOn lists the pods of one Node.
func (k *Kube) PodsOn(ctx context.Context, node string) ([]remote.Pod, error) {
	var out []remote.Pod
	err := k.read(ctx, "pods", "", func(t *tx, uid string, _ *server) error {
		for _, p := range all[simPod](t, "object/"+uid+"/pods/") {
			if p.Spec.NodeName == node {
				bound := slices.ContainsFunc(p.Metadata.OwnerReferences, func(o struct{ Kind string }) bool { return o.Kind == "DaemonSet" })
				out = append(out, remote.Pod{Namespace: p.Metadata.Namespace, Name: p.Metadata.Name, UID: p.Metadata.UID, Bound: bound})
			}
		}
		return nil
	})
	return out, err
}

// Evict removes a pod at once, unless a budget that names it allows none to go.
func (k *Kube) Evict(ctx context.Context, p remote.Pod) error {
	return k.write(ctx, "evict", func(t *tx, uid string) error {
		at := objectKey(uid, "pods", p.Namespace, p.Name)
		have, ok := load[simPod](t, at)
		if !ok {
			return nil
		}
		for _, b := range all[simBudget](t, "object/"+uid+"/poddisruptionbudgets/"+p.Namespace+"/") {
			if b.Spec.MaxUnavailable == 0 && covers(b.Spec.Selector.MatchLabels, have.Metadata.Labels) {
				return &remote.WorldError{World: "kube", Op: "evict", Err: remote.ErrBudget}
			}
		}
		t.del(at)
		return nil
	})
}

// PutPod runs a pod on a machine's Node. With kept, a disruption budget of its
// name lets it not go; without, there is none.
func (w *World) PutPod(ctx context.Context, machine, pod string, kept bool) error {
	return w.byName(ctx, machine, func(t *tx, v *server) error {
		uid := v.Labels[remote.LabelUID]
		if !t.has(nodeKey(uid, machine)) {
			return fmt.Errorf("sim: %s has no Node", machine)
		}
		p := simPod{}
		p.Metadata.Namespace, p.Metadata.Name, p.Metadata.UID = "default", pod, fmt.Sprintf("pod-%d", t.next())
		p.Metadata.Labels, p.Spec.NodeName = map[string]string{"name": pod}, machine
		store(t, objectKey(uid, "pods", "default", pod), p)
		budget := simBudget{}
		budget.Spec.Selector.MatchLabels = p.Metadata.Labels
		at := objectKey(uid, "poddisruptionbudgets", "default", pod)
		if kept {
			store(t, at, budget)
		} else {
			t.del(at)
		}
		return nil
	})
}

// simBudget is a disruption budget.
type simBudget struct {
	Spec struct {
		MaxUnavailable int
		Selector       struct{ MatchLabels map[string]string }
	}
}

func covers(selector, labels map[string]string) bool {
	for k, v := range selector {
		if labels[k] != v {
			return false
		}
	}
	return true
}

type object struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Metadata   struct {
		Name      string `json:"name"`
		Namespace string `json:"namespace"`
	} `json:"metadata"`
}

// Apply keeps one object.
func (k *Kube) Apply(ctx context.Context, m []byte) error {
	j, err := yaml.YAMLToJSON(m)
	if err != nil {
		return &remote.WorldError{World: "kube", Op: "apply", Err: err}
	}
	var o object
	if err := json.Unmarshal(j, &o); err != nil || o.Kind == "" || o.Metadata.Name == "" {
		return &remote.WorldError{World: "kube", Op: "apply", Err: errors.New("not an object")}
	}
	return k.write(ctx, "apply", func(t *tx, uid string) error {
		store(t, objectKey(uid, strings.ToLower(o.Kind)+"s", o.Metadata.Namespace, o.Metadata.Name), json.RawMessage(j))
		return nil
	})
}

func objectKey(uid, resource, ns, name string) string {
	return strings.Join([]string{"object", uid, resource, ns, name}, "/")
}

// Get returns an object.
func (k *Kube) Get(ctx context.Context, r remote.ObjectRef) ([]byte, error) {
	var out []byte
	err := k.read(ctx, "get "+r.Resource, "", func(t *tx, uid string, _ *server) error {
		raw, ok := t.raw(objectKey(uid, r.Resource, r.Namespace, r.Name))
		if !ok {
			return kubeMissing("get " + r.Resource + "/" + r.Name)
		}
		out = raw
		return nil
	})
	return out, err
}

// Delete removes an object.
func (k *Kube) Delete(ctx context.Context, r remote.ObjectRef) error {
	return k.write(ctx, "delete "+r.Resource, func(t *tx, uid string) error {
		t.del(objectKey(uid, r.Resource, r.Namespace, r.Name))
		return nil
	})
}

// Rollout knows what kubeadm's addon phase brings: CoreDNS and kube-proxy.
func (k *Kube) Rollout(ctx context.Context, r remote.ObjectRef) (*remote.Rollout, error) {
	var out *remote.Rollout
	err := k.read(ctx, "rollout", "", func(t *tx, uid string, _ *server) error {
		s, _ := load[kubeState](t, kubeKey(uid))
		if !s.Addons || r.Name != "coredns" && r.Name != "kube-proxy" {
			return kubeMissing("rollout " + r.Name)
		}
		nodes := all[remote.Node](t, "node/"+uid+"/")
		up := 0
		for i := range nodes {
			if ready(t, uid, &nodes[i]); nodes[i].Ready {
				up++
			}
		}
		want := len(nodes)
		if r.Name == "coredns" {
			want, up = 2, min(2, up*2)
		}
		out = &remote.Rollout{Desired: want, Updated: want, Available: up}
		return nil
	})
	return out, err
}
