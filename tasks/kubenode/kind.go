package kubenode

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"hk/cache/fp"
	"hk/graph"
	"hk/remote"
	"hk/tasks"
	"hk/tasks/spec"
)

// Annotations that remember what the config asked for, so that what it no
// longer asks for is taken away again, and nothing that others set.
const (
	labelsAnnotation = "hk-labels"
	taintsAnnotation = "hk-taints"
)

// controlPlaneTaint is kubeadm's.
const controlPlaneTaint = "node-role.kubernetes.io/control-plane"

// NodeIn is what hk sets on a Node.
type NodeIn struct {
	Host        string            `part:"alloc:host"`
	Node        string            `part:"alloc:node"`
	Index       int               `part:"alloc:index"`
	Pool        string            `part:"alloc:pool"`
	PodCIDR     string            `part:"alloc:pod-cidr"`
	ProviderID  string            `part:"out:server.id"`
	Location    string            `part:"config:location"`
	Type        string            `part:"config:type"`
	Labels      map[string]string `part:"config:workers.labels"`
	Taints      []spec.Taint      `part:"config:workers.taints"`
	Master      bool              `part:"alloc:master"`
	Unscheduled bool              `part:"alloc:unscheduled"` // masters keep pods away
}

// NodeKind is the kind `node` of masters and of workers.
func NodeKind(phase, role, after string) tasks.Kind {
	return tasks.Define(graph.Kind{
		Phase: phase, Part: "node", Scope: graph.OnHost, Roles: []string{role}, Recipe: 1,
		Needs: OnHost(Same(after)),
		Title: "labels, taints and pod CIDR of the Node",
	}, tasks.Def[NodeIn]{
		Inputs: func(v *tasks.View) (NodeIn, error) {
			h := v.Host
			in := NodeIn{
				Host: h.Name, Node: h.Node, Index: h.Index, Pool: h.Pool, PodCIDR: h.PodCIDR,
				ProviderID: ProviderID(v.Out(ServerKind)["id"]), Location: h.Location, Type: h.Type,
				Labels: h.Labels, Taints: h.Taints, Master: role == spec.Master,
			}
			in.Unscheduled = in.Master && len(v.With(spec.Worker)) > 0
			return in, nil
		},
		Run:    runNode,
		Verify: verifyNode,
	})
}

// labels are hk's own and the config's; the config's win nowhere, as hk's have
// reserved names.
func (in NodeIn) labels(uid string) map[string]string {
	out := maps.Clone(in.Labels)
	if out == nil {
		out = map[string]string{}
	}
	maps.Copy(out, map[string]string{
		remote.LabelUID:                    uid,
		remote.LabelHost:                   in.Host,
		remote.LabelPool:                   in.Pool,
		remote.LabelIndex:                  strconv.Itoa(in.Index),
		"topology.kubernetes.io/region":    in.Location,
		"topology.kubernetes.io/zone":      in.Location,
		"node.kubernetes.io/instance-type": in.Type,
	})
	if !in.Master {
		out["node-role.kubernetes.io/worker"] = ""
	}
	return out
}

func (in NodeIn) taints() []remote.Taint {
	var out []remote.Taint
	for _, t := range in.Taints {
		out = append(out, remote.Taint{Key: t.Key, Value: t.Value, Effect: t.Effect})
	}
	if in.Unscheduled {
		out = append(out, remote.Taint{Key: controlPlaneTaint, Effect: "NoSchedule"})
	}
	return out
}

// patch is what to change on a Node as it is now.
func (in NodeIn) patch(uid string, n *remote.Node) remote.NodePatch {
	p := remote.NodePatch{Labels: in.labels(uid), Taints: in.taints(), PodCIDR: in.PodCIDR}
	for k := range strings.FieldsSeq(n.Annotations[labelsAnnotation]) {
		if _, ok := p.Labels[k]; !ok {
			p.RemoveLabels = append(p.RemoveLabels, k)
		}
	}
	for text := range strings.FieldsSeq(n.Annotations[taintsAnnotation]) {
		if t := parseTaint(text); !hasTaint(p.Taints, t) {
			p.RemoveTaints = append(p.RemoveTaints, t)
		}
	}
	if in.Master && !in.Unscheduled {
		t := remote.Taint{Key: controlPlaneTaint, Effect: "NoSchedule"}
		if !hasTaint(p.RemoveTaints, t) {
			p.RemoveTaints = append(p.RemoveTaints, t)
		}
	}
	var taints []string
	for _, t := range in.taints() {
		taints = append(taints, formatTaint(t))
	}
	p.Annotations = map[string]string{
		labelsAnnotation: strings.Join(slices.Sorted(maps.Keys(in.Labels)), " "),
		taintsAnnotation: strings.Join(taints, " "),
	}
	return p
}

// formatTaint is kubectl's form, KEY=VALUE:EFFECT.
func formatTaint(t remote.Taint) string {
	if t.Value == "" {
		return t.Key + ":" + t.Effect
	}
	return t.Key + "=" + t.Value + ":" + t.Effect
}

func parseTaint(s string) remote.Taint {
	rest, effect, _ := strings.Cut(s, ":")
	key, value, _ := strings.Cut(rest, "=")
	return remote.Taint{Key: key, Value: value, Effect: effect}
}

func runNode(ctx context.Context, in NodeIn, e *tasks.Env) error {
	return tasks.Poll(ctx, 30*time.Second, "setting labels and taints of Node "+in.Node, func(ctx context.Context) error {
		k, err := e.Kube()
		if err != nil {
			return err
		}
		n, err := k.Node(ctx, in.Node)
		if err != nil {
			return err
		}
		if err := sameServer(n, in.ProviderID); err != nil {
			return err
		}
		if in.PodCIDR != "" && n.PodCIDR != "" && n.PodCIDR != in.PodCIDR {
			return tasks.Final{Err: fmt.Errorf("the Node %s has pod CIDR %s, allocated is %s: it cannot be changed; delete the Node object and restart its kubelet", in.Node, n.PodCIDR, in.PodCIDR)}
		}
		return k.PatchNode(ctx, in.Node, in.patch(e.UID, n))
	})
}

func verifyNode(ctx context.Context, in NodeIn, e *tasks.Env) (fp.Output, error) {
	k, err := e.Kube()
	if err != nil {
		return nil, err
	}
	n, err := k.Node(ctx, in.Node)
	if err != nil {
		return nil, err
	}
	if err := sameServer(n, in.ProviderID); err != nil {
		return nil, fmt.Errorf("the Node %s: %w", in.Node, err)
	}
	for key, want := range in.labels(e.UID) {
		if got, ok := n.Labels[key]; !ok || got != want {
			return nil, tasks.Again("Node %s has label %s=%q, not %q", in.Node, key, got, want)
		}
	}
	for _, t := range in.taints() {
		if !hasTaint(n.Taints, t) {
			return nil, tasks.Again("Node %s has no taint %s", in.Node, formatTaint(t))
		}
	}
	if in.PodCIDR != "" && n.PodCIDR != in.PodCIDR {
		return nil, tasks.Again("Node %s has pod CIDR %q, not %s", in.Node, n.PodCIDR, in.PodCIDR)
	}
	return nil, nil
}
