package kube

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"hk/remote"
)

func nodes(e *end) dynamic.ResourceInterface {
	return e.dyn.Resource(schema.GroupVersionResource{Version: "v1", Resource: "nodes"})
}

// nodeObject is what hk reads of a Node.
type nodeObject struct {
	Metadata struct {
		Name            string            `json:"name"`
		UID             string            `json:"uid"`
		ResourceVersion string            `json:"resourceVersion"`
		Labels          map[string]string `json:"labels"`
		Annotations     map[string]string `json:"annotations"`
	} `json:"metadata"`
	Spec struct {
		ProviderID    string            `json:"providerID"`
		PodCIDR       string            `json:"podCIDR"`
		Unschedulable bool              `json:"unschedulable"`
		Taints        []json.RawMessage `json:"taints"` // whole: timeAdded must survive a patch
	} `json:"spec"`
	Status struct {
		Addresses []struct {
			Address string `json:"address"`
		} `json:"addresses"`
		Conditions []struct {
			Type, Status, Reason, Message string
		} `json:"conditions"`
		NodeInfo struct {
			KubeletVersion string `json:"kubeletVersion"`
		} `json:"nodeInfo"`
	} `json:"status"`
}

func parseNode(u *unstructured.Unstructured) (*nodeObject, error) {
	b, err := u.MarshalJSON()
	if err != nil {
		return nil, err
	}
	n := new(nodeObject)
	return n, json.Unmarshal(b, n)
}

func (n *nodeObject) taints() ([]remote.Taint, error) {
	var out []remote.Taint
	for _, raw := range n.Spec.Taints {
		var t remote.Taint
		if err := json.Unmarshal(raw, &t); err != nil {
			return nil, err
		}
		out = append(out, t)
	}
	return out, nil
}

func (n *nodeObject) node() (*remote.Node, error) {
	taints, err := n.taints()
	if err != nil {
		return nil, err
	}
	out := &remote.Node{
		Name: n.Metadata.Name, UID: n.Metadata.UID, ProviderID: n.Spec.ProviderID, PodCIDR: n.Spec.PodCIDR,
		KubeletVersion: n.Status.NodeInfo.KubeletVersion, Labels: n.Metadata.Labels, Annotations: n.Metadata.Annotations,
		Taints: taints, NotReadyReason: "NoStatus", NotReadyMessage: "the kubelet has not reported yet",
	}
	for _, a := range n.Status.Addresses {
		out.Addresses = append(out.Addresses, a.Address)
	}
	for _, c := range n.Status.Conditions {
		switch {
		case c.Type == "Ready":
			out.Ready = c.Status == "True"
			out.NotReadyReason, out.NotReadyMessage = c.Reason, c.Message
			if out.Ready {
				out.NotReadyReason, out.NotReadyMessage = "", ""
			}
		case c.Status == "True":
			out.Pressure = append(out.Pressure, c.Type)
		}
	}
	return out, nil
}

// Nodes lists all Nodes in name order.
func (k *Client) Nodes(ctx context.Context) ([]remote.Node, error) {
	var out []remote.Node
	err := k.try(ctx, "list nodes", callTimeout, func(ctx context.Context, e *end) error {
		list, err := nodes(e).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		out = nil
		for i := range list.Items {
			n, err := parseNode(&list.Items[i])
			if err != nil {
				return err
			}
			node, err := n.node()
			if err != nil {
				return err
			}
			out = append(out, *node)
		}
		return nil
	})
	return out, err
}

// Node returns one Node; ErrNotFound.
func (k *Client) Node(ctx context.Context, name string) (*remote.Node, error) {
	var out *remote.Node
	err := k.try(ctx, "get node "+name, readTimeout, func(ctx context.Context, e *end) error {
		n, err := getNode(ctx, e, name)
		if err == nil {
			out, err = n.node()
		}
		return err
	})
	return out, err
}

func getNode(ctx context.Context, e *end, name string) (*nodeObject, error) {
	u, err := nodes(e).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	return parseNode(u)
}

// conflicts is how often a patch is made anew because the Node changed
// meanwhile; a starting kubelet writes its Node many times.
const conflicts = 10

// PatchNode sets what is asked for and leaves what others set. A Node that is
// so already is not written.
func (k *Client) PatchNode(ctx context.Context, name string, p remote.NodePatch) error {
	return k.try(ctx, "patch node "+name, callTimeout, func(ctx context.Context, e *end) error {
		for n := 0; ; n++ {
			now, err := getNode(ctx, e, name)
			if err != nil {
				return err
			}
			patch, err := patchOf(now, &p)
			if err != nil || patch == nil {
				return err
			}
			_, err = nodes(e).Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{FieldManager: manager})
			if !apierrors.IsConflict(err) || n >= conflicts {
				return err
			}
		}
	})
}

// patchOf is the merge patch that takes now to p; nil if nothing differs. Taints
// are one list to a merge patch, so it carries the version it was made from and
// is refused if that is not the newest.
func patchOf(now *nodeObject, p *remote.NodePatch) ([]byte, error) {
	meta, spec := map[string]any{}, map[string]any{}
	labels := differing(now.Metadata.Labels, p.Labels)
	for _, l := range p.RemoveLabels {
		if _, ok := now.Metadata.Labels[l]; ok {
			labels[l] = nil
		}
	}
	if len(labels) > 0 {
		meta["labels"] = labels
	}
	if a := differing(now.Metadata.Annotations, p.Annotations); len(a) > 0 {
		meta["annotations"] = a
	}
	taints, changed, err := patchTaints(now, p)
	if err != nil {
		return nil, err
	}
	if changed {
		spec["taints"] = taints
		meta["resourceVersion"] = now.Metadata.ResourceVersion
	}
	switch {
	case p.PodCIDR == "" || p.PodCIDR == now.Spec.PodCIDR:
	case now.Spec.PodCIDR != "":
		// Others may have set it, and the API lets nobody change it.
		return nil, &remote.WorldError{
			World: "kube", Op: "patch node " + now.Metadata.Name,
			Err: fmt.Errorf("it has pod CIDR %s, not %s", now.Spec.PodCIDR, p.PodCIDR),
		}
	default:
		spec["podCIDR"], spec["podCIDRs"] = p.PodCIDR, []string{p.PodCIDR}
	}
	patch := map[string]any{}
	if len(meta) > 0 {
		patch["metadata"] = meta
	}
	if len(spec) > 0 {
		patch["spec"] = spec
	}
	if len(patch) == 0 {
		return nil, nil
	}
	return json.Marshal(patch)
}

func differing(now, want map[string]string) map[string]any {
	out := map[string]any{}
	for k, v := range want {
		if got, ok := now[k]; !ok || got != v {
			out[k] = v
		}
	}
	return out
}

func patchTaints(now *nodeObject, p *remote.NodePatch) (out []any, changed bool, err error) {
	have, err := now.taints()
	if err != nil {
		return nil, false, err
	}
	same := func(a remote.Taint) func(remote.Taint) bool {
		return func(b remote.Taint) bool { return a.Key == b.Key && a.Effect == b.Effect }
	}
	out = []any{}
	for i, t := range have {
		want := slices.IndexFunc(p.Taints, same(t))
		switch {
		case slices.ContainsFunc(p.RemoveTaints, same(t)):
			changed = true
		case want >= 0 && p.Taints[want].Value != t.Value:
			changed = true
			out = append(out, p.Taints[want])
		default:
			out = append(out, now.Spec.Taints[i])
		}
	}
	for _, t := range p.Taints {
		if !slices.ContainsFunc(have, same(t)) {
			changed = true
			out = append(out, t)
		}
	}
	return out, changed, nil
}

// DeleteNode deletes a Node, or finds it gone.
func (k *Client) DeleteNode(ctx context.Context, name string) error {
	return k.Delete(ctx, remote.ObjectRef{Version: "v1", Resource: "nodes", Name: name})
}

// Cordon keeps new pods off a Node, or lets them on again.
func (k *Client) Cordon(ctx context.Context, name string, on bool) error {
	return k.try(ctx, "cordon node "+name, callTimeout, func(ctx context.Context, e *end) error {
		now, err := getNode(ctx, e, name)
		if err != nil || now.Spec.Unschedulable == on {
			return err
		}
		patch := []byte(`{"spec":{"unschedulable":null}}`)
		if on {
			patch = []byte(`{"spec":{"unschedulable":true}}`)
		}
		_, err = nodes(e).Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{FieldManager: manager})
		return err
	})
}
