package kube

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/yaml"

	"hk/remote"
)

// manager is the name that fields applied by hk belong to.
const manager = "hk"

// Apply applies one manifest server-side as hk, taking fields over from whoever
// had them.
func (k *Client) Apply(ctx context.Context, manifest []byte) error {
	obj := new(unstructured.Unstructured)
	if err := yaml.Unmarshal(manifest, &obj.Object); err != nil {
		return wrap("apply a manifest", fmt.Errorf("bug: it is no YAML: %w", err))
	}
	gvk := obj.GroupVersionKind()
	if gvk.Kind == "" || gvk.Version == "" || obj.GetName() == "" {
		return wrap("apply a manifest", fmt.Errorf("bug: it has no apiVersion, kind or name"))
	}
	op := fmt.Sprintf("apply %s %s", gvk.Kind, obj.GetName())
	return k.try(ctx, op, callTimeout, func(ctx context.Context, e *end) error {
		m, err := k.rest.find(ctx, e, gvk)
		if err != nil {
			return err
		}
		ns := obj.GetNamespace()
		if m.namespaced && ns == "" {
			ns = metav1.NamespaceDefault
		}
		c := in(e, gvk.GroupVersion().WithResource(m.resource), ns)
		_, err = c.Apply(ctx, obj.GetName(), obj, metav1.ApplyOptions{FieldManager: manager, Force: true})
		return err
	})
}

// in is the client of a resource, in a namespace if it has one.
func in(e *end, r schema.GroupVersionResource, namespace string) dynamic.ResourceInterface {
	if namespace == "" {
		return e.dyn.Resource(r)
	}
	return e.dyn.Resource(r).Namespace(namespace)
}

func gvr(r remote.ObjectRef) schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: r.Group, Version: r.Version, Resource: r.Resource}
}

func describe(r remote.ObjectRef) string {
	s := r.Resource
	if r.Namespace != "" {
		s += " " + r.Namespace + "/" + r.Name
	} else if r.Name != "" {
		s += " " + r.Name
	}
	return s
}

// Get returns one object as JSON, or with an empty name a list of them.
func (k *Client) Get(ctx context.Context, r remote.ObjectRef) ([]byte, error) {
	var out []byte
	err := k.try(ctx, "get "+describe(r), callTimeout, func(ctx context.Context, e *end) error {
		c := in(e, gvr(r), r.Namespace)
		if r.Name == "" {
			list, err := c.List(ctx, metav1.ListOptions{})
			if err != nil {
				return err
			}
			out, err = list.MarshalJSON()
			return err
		}
		obj, err := c.Get(ctx, r.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		out, err = obj.MarshalJSON()
		return err
	})
	return out, err
}

// Delete deletes one object, or finds it gone.
func (k *Client) Delete(ctx context.Context, r remote.ObjectRef) error {
	if r.Name == "" {
		return wrap("delete "+describe(r), fmt.Errorf("bug: delete needs a name"))
	}
	return k.try(ctx, "delete "+describe(r), callTimeout, func(ctx context.Context, e *end) error {
		err := in(e, gvr(r), r.Namespace).Delete(ctx, r.Name, metav1.DeleteOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return err
	})
}

// Rollout is how far a Deployment, DaemonSet or StatefulSet is. While its
// controller has not seen the newest version, nothing counts as updated.
func (k *Client) Rollout(ctx context.Context, r remote.ObjectRef) (*remote.Rollout, error) {
	out := new(remote.Rollout)
	err := k.try(ctx, "look at "+describe(r), readTimeout, func(ctx context.Context, e *end) error {
		obj, err := in(e, gvr(r), r.Namespace).Get(ctx, r.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		num := func(path ...string) int {
			n, _, _ := unstructured.NestedInt64(obj.Object, path...)
			return int(n)
		}
		*out = remote.Rollout{}
		if r.Resource == "daemonsets" {
			out.Desired = num("status", "desiredNumberScheduled")
			out.Updated = num("status", "updatedNumberScheduled")
			out.Available = num("status", "numberAvailable")
		} else {
			out.Desired = 1 // the API's default
			if _, ok, _ := unstructured.NestedInt64(obj.Object, "spec", "replicas"); ok {
				out.Desired = num("spec", "replicas")
			}
			out.Updated = num("status", "updatedReplicas")
			out.Available = num("status", "availableReplicas")
		}
		if int64(num("status", "observedGeneration")) < obj.GetGeneration() {
			out.Updated, out.Available = 0, 0
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}
