package fake

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"

	"hk/remote"
)

// Etcd is an etcd whose state a test sets.
type Etcd struct {
	Down  bool // no quorum: nothing that needs one answers
	List  []remote.Member
	Says  map[string]*remote.EtcdStatus // by host; a host that is not here is silent
	Calls []string
}

// Members implements remote.Etcd.
func (e *Etcd) Members(context.Context) ([]remote.Member, error) {
	if e.Down {
		return nil, fmt.Errorf("no quorum")
	}
	return slices.Clone(e.List), nil
}

// Status implements remote.Etcd.
func (e *Etcd) Status(_ context.Context, host string) (*remote.EtcdStatus, error) {
	if s := e.Says[host]; s != nil {
		return s, nil
	}
	return nil, fmt.Errorf("%s does not answer", host)
}

// Proof implements remote.Etcd.
func (e *Etcd) Proof(_ context.Context, host string) error {
	e.Calls = append(e.Calls, "proof "+host)
	if e.Down {
		return fmt.Errorf("no quorum")
	}
	return nil
}

// AddLearner implements remote.Etcd.
func (e *Etcd) AddLearner(_ context.Context, url string) (uint64, error) {
	e.Calls = append(e.Calls, "add "+url)
	id := uint64(len(e.List) + 100)
	e.List = append(e.List, remote.Member{ID: id, PeerURLs: []string{url}, Learner: true})
	return id, nil
}

// Promote implements remote.Etcd.
func (e *Etcd) Promote(_ context.Context, id uint64) error {
	e.Calls = append(e.Calls, fmt.Sprintf("promote %d", id))
	for _, s := range e.Says {
		if s.Member == id {
			s.Learner = false
		}
	}
	return nil
}

// Remove implements remote.Etcd.
func (e *Etcd) Remove(_ context.Context, id uint64) error {
	e.Calls = append(e.Calls, fmt.Sprintf("remove %d", id))
	e.List = slices.DeleteFunc(e.List, func(m remote.Member) bool { return m.ID == id })
	return nil
}

// Snapshot implements remote.Etcd.
func (e *Etcd) Snapshot(context.Context, string, interface{ Write([]byte) (int, error) }) (int64, error) {
	return 0, io.EOF
}

// Alarms implements remote.Etcd.
func (e *Etcd) Alarms(context.Context) ([]string, error) { return nil, nil }

// Defragment implements remote.Etcd.
func (e *Etcd) Defragment(context.Context, string) error { return nil }

// Close implements remote.Etcd.
func (e *Etcd) Close() error { return nil }

// Kube is a Kubernetes whose Nodes and objects a test sets. Methods that it
// does not have panic: a test that reaches them must say what they answer.
type Kube struct {
	remote.Kube
	NodeMap map[string]*remote.Node
	Objects map[string][]byte       // NAMESPACE/RESOURCE/NAME -> JSON
	NotUp   map[string]bool         // by via
	Pods    map[string][]remote.Pod // by Node
	OnEvict func(p remote.Pod) error
	Calls   []string
}

// ReadyAt implements remote.Kube.
func (k *Kube) ReadyAt(_ context.Context, via string) error {
	k.Calls = append(k.Calls, "readyz "+via)
	if k.NotUp[via] {
		return fmt.Errorf("not ready")
	}
	return nil
}

// Node implements remote.Kube.
func (k *Kube) Node(_ context.Context, name string) (*remote.Node, error) {
	if n := k.NodeMap[name]; n != nil {
		return n, nil
	}
	return nil, fmt.Errorf("node %s: %w", name, remote.ErrNotFound)
}

// PatchNode implements remote.Kube.
func (k *Kube) PatchNode(_ context.Context, name string, p remote.NodePatch) error {
	k.Calls = append(k.Calls, "patch "+name)
	n := k.NodeMap[name]
	maps.Copy(n.Labels, p.Labels)
	for _, key := range p.RemoveLabels {
		delete(n.Labels, key)
	}
	for _, t := range p.RemoveTaints {
		n.Taints = slices.DeleteFunc(n.Taints, func(x remote.Taint) bool { return x == t })
	}
	for _, t := range p.Taints {
		if !slices.Contains(n.Taints, t) {
			n.Taints = append(n.Taints, t)
		}
	}
	maps.Copy(n.Annotations, p.Annotations)
	if n.PodCIDR == "" {
		n.PodCIDR = p.PodCIDR
	}
	return nil
}

// DeleteNode implements remote.Kube.
func (k *Kube) DeleteNode(_ context.Context, name string) error {
	k.Calls = append(k.Calls, "delete node "+name)
	delete(k.NodeMap, name)
	return nil
}

// Cordon implements remote.Kube.
func (k *Kube) Cordon(_ context.Context, name string, on bool) error {
	k.Calls = append(k.Calls, fmt.Sprintf("cordon %s %t", name, on))
	return nil
}

// PodsOn implements remote.Kube.
func (k *Kube) PodsOn(_ context.Context, node string) ([]remote.Pod, error) {
	return slices.Clone(k.Pods[node]), nil
}

// Evict implements remote.Kube: the pod goes at once, unless OnEvict says
// otherwise.
func (k *Kube) Evict(_ context.Context, p remote.Pod) error {
	k.Calls = append(k.Calls, "evict "+p.Namespace+"/"+p.Name)
	if k.OnEvict != nil {
		if err := k.OnEvict(p); err != nil {
			return err
		}
	}
	for node := range k.Pods {
		k.Pods[node] = slices.DeleteFunc(k.Pods[node], func(o remote.Pod) bool { return o.UID == p.UID })
	}
	return nil
}

// Get implements remote.Kube.
func (k *Kube) Get(_ context.Context, r remote.ObjectRef) ([]byte, error) {
	if b, ok := k.Objects[r.Namespace+"/"+r.Resource+"/"+r.Name]; ok {
		return b, nil
	}
	return nil, fmt.Errorf("%s/%s: %w", r.Resource, r.Name, remote.ErrNotFound)
}

// Apply implements remote.Kube.
func (k *Kube) Apply(_ context.Context, manifest []byte) error {
	var o struct {
		Kind     string
		Metadata struct{ Name, Namespace string }
	}
	b, err := yaml.YAMLToJSON(manifest)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(b, &o); err != nil {
		return err
	}
	if k.Objects == nil {
		k.Objects = map[string][]byte{}
	}
	k.Objects[o.Metadata.Namespace+"/"+strings.ToLower(o.Kind)+"s/"+o.Metadata.Name] = b
	return nil
}

// Delete implements remote.Kube.
func (k *Kube) Delete(_ context.Context, r remote.ObjectRef) error {
	k.Calls = append(k.Calls, "delete "+r.Resource+" "+r.Name)
	return nil
}

// Cloud is a cloud that knows servers and their labels.
type Cloud struct {
	remote.Cloud
	Servers map[int64]*remote.Server
}

// Server implements remote.Cloud.
func (c *Cloud) Server(_ context.Context, id int64) (*remote.Server, error) {
	if s := c.Servers[id]; s != nil {
		return s, nil
	}
	return nil, fmt.Errorf("server %d: %w", id, remote.ErrNotFound)
}

// LabelServer implements remote.Cloud.
func (c *Cloud) LabelServer(_ context.Context, id int64, labels map[string]string) error {
	c.Servers[id].Labels = labels
	return nil
}
