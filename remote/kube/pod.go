package kube

import (
	"context"
	"encoding/json"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"hk/remote"
)

var pods = schema.GroupVersionResource{Version: "v1", Resource: "pods"}

// mirrorAnnotation is on the API's images of static pods.
const mirrorAnnotation = "kubernetes.io/config.mirror"

// podObject is what hk reads of a pod.
type podObject struct {
	Metadata struct {
		Namespace         string            `json:"namespace"`
		Name              string            `json:"name"`
		UID               string            `json:"uid"`
		Annotations       map[string]string `json:"annotations"`
		DeletionTimestamp *metav1.Time      `json:"deletionTimestamp"`
		OwnerReferences   []struct {
			Kind       string `json:"kind"`
			Controller bool   `json:"controller"`
		} `json:"ownerReferences"`
	} `json:"metadata"`
	Status struct {
		Phase string `json:"phase"`
	} `json:"status"`
}

func (p *podObject) pod() remote.Pod {
	m := &p.Metadata
	out := remote.Pod{
		Namespace: m.Namespace, Name: m.Name, UID: m.UID, Leaving: m.DeletionTimestamp != nil,
		Finished: p.Status.Phase == "Succeeded" || p.Status.Phase == "Failed",
	}
	_, out.Bound = m.Annotations[mirrorAnnotation]
	for _, o := range m.OwnerReferences {
		out.Bound = out.Bound || o.Controller && o.Kind == "DaemonSet"
	}
	return out
}

// PodsOn lists the pods of one Node.
func (k *Client) PodsOn(ctx context.Context, node string) ([]remote.Pod, error) {
	var out []remote.Pod
	err := k.try(ctx, "list pods of "+node, callTimeout, func(ctx context.Context, e *end) error {
		list, err := e.dyn.Resource(pods).List(ctx, metav1.ListOptions{FieldSelector: "spec.nodeName=" + node})
		if err != nil {
			return err
		}
		out = nil
		for i := range list.Items {
			b, err := list.Items[i].MarshalJSON()
			if err != nil {
				return err
			}
			var p podObject
			if err := json.Unmarshal(b, &p); err != nil {
				return err
			}
			out = append(out, p.pod())
		}
		return nil
	})
	return out, err
}

// Evict asks for a pod to be stopped. A pod of the same name that was made since
// is another one, and stays: a StatefulSet's comes back under its name elsewhere.
func (k *Client) Evict(ctx context.Context, p remote.Pod) error {
	eviction := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "policy/v1", "kind": "Eviction",
		"metadata":      map[string]any{"namespace": p.Namespace, "name": p.Name},
		"deleteOptions": map[string]any{"preconditions": map[string]any{"uid": p.UID}},
	}}
	return k.try(ctx, "evict pod "+p.Namespace+"/"+p.Name, callTimeout, func(ctx context.Context, e *end) error {
		_, err := e.dyn.Resource(pods).Namespace(p.Namespace).Create(ctx, eviction, metav1.CreateOptions{FieldManager: manager}, "eviction")
		switch {
		case apierrors.IsNotFound(err), apierrors.IsConflict(err):
			return nil
		case apierrors.IsTooManyRequests(err):
			return fmt.Errorf("%w: %w", remote.ErrBudget, err)
		}
		return err
	})
}
