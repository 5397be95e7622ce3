package kube

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// restMap finds the resource of a kind. hk applies few kinds, and asking the
// API for its list of all resources takes as long as applying them: the known
// ones are a table, the rest is asked for one group at a time.
type restMap struct {
	mu    sync.Mutex
	asked map[schema.GroupVersion]map[string]mapping
}

type mapping struct {
	resource   string
	namespaced bool
}

// known are the kinds of the groups that Kubernetes itself serves.
func known(gk schema.GroupKind) (mapping, bool) {
	const core, apps, rbac = "", "apps", "rbac.authorization.k8s.io"
	m, ok := map[schema.GroupKind]mapping{
		{Group: core, Kind: "Namespace"}:             {"namespaces", false},
		{Group: core, Kind: "Node"}:                  {"nodes", false},
		{Group: core, Kind: "Pod"}:                   {"pods", true},
		{Group: core, Kind: "Service"}:               {"services", true},
		{Group: core, Kind: "ServiceAccount"}:        {"serviceaccounts", true},
		{Group: core, Kind: "ConfigMap"}:             {"configmaps", true},
		{Group: core, Kind: "Secret"}:                {"secrets", true},
		{Group: core, Kind: "PersistentVolume"}:      {"persistentvolumes", false},
		{Group: core, Kind: "PersistentVolumeClaim"}: {"persistentvolumeclaims", true},

		{Group: apps, Kind: "Deployment"}:  {"deployments", true},
		{Group: apps, Kind: "DaemonSet"}:   {"daemonsets", true},
		{Group: apps, Kind: "StatefulSet"}: {"statefulsets", true},
		{Group: apps, Kind: "ReplicaSet"}:  {"replicasets", true},

		{Group: rbac, Kind: "Role"}:               {"roles", true},
		{Group: rbac, Kind: "RoleBinding"}:        {"rolebindings", true},
		{Group: rbac, Kind: "ClusterRole"}:        {"clusterroles", false},
		{Group: rbac, Kind: "ClusterRoleBinding"}: {"clusterrolebindings", false},

		{Group: "batch", Kind: "Job"}:                                              {"jobs", true},
		{Group: "batch", Kind: "CronJob"}:                                          {"cronjobs", true},
		{Group: "policy", Kind: "PodDisruptionBudget"}:                             {"poddisruptionbudgets", true},
		{Group: "storage.k8s.io", Kind: "StorageClass"}:                            {"storageclasses", false},
		{Group: "storage.k8s.io", Kind: "CSIDriver"}:                               {"csidrivers", false},
		{Group: "scheduling.k8s.io", Kind: "PriorityClass"}:                        {"priorityclasses", false},
		{Group: "networking.k8s.io", Kind: "NetworkPolicy"}:                        {"networkpolicies", true},
		{Group: "apiregistration.k8s.io", Kind: "APIService"}:                      {"apiservices", false},
		{Group: "apiextensions.k8s.io", Kind: "CustomResourceDefinition"}:          {"customresourcedefinitions", false},
		{Group: "certificates.k8s.io", Kind: "CertificateSigningRequest"}:          {"certificatesigningrequests", false},
		{Group: "coordination.k8s.io", Kind: "Lease"}:                              {"leases", true},
		{Group: "admissionregistration.k8s.io", Kind: "ValidatingAdmissionPolicy"}: {"validatingadmissionpolicies", false},
	}[gk]
	return m, ok
}

// find returns the mapping of a kind, asking e for what is not known.
func (r *restMap) find(ctx context.Context, e *end, gvk schema.GroupVersionKind) (mapping, error) {
	if m, ok := known(gvk.GroupKind()); ok {
		return m, nil
	}
	gv := gvk.GroupVersion()
	r.mu.Lock()
	defer r.mu.Unlock()
	if m, ok := r.asked[gv][gvk.Kind]; ok {
		return m, nil
	}
	path := "/apis/" + gv.String()
	if gv.Group == "" {
		path = "/api/" + gv.Version
	}
	body, err := e.get(ctx, path)
	if err != nil {
		return mapping{}, fmt.Errorf("asking for the kinds of %s: %w", gv, err)
	}
	var list struct {
		Resources []struct {
			Name       string `json:"name"`
			Kind       string `json:"kind"`
			Namespaced bool   `json:"namespaced"`
		} `json:"resources"`
	}
	if err := json.Unmarshal(body, &list); err != nil {
		return mapping{}, fmt.Errorf("the kinds of %s: %w", gv, err)
	}
	found := map[string]mapping{}
	for _, x := range list.Resources {
		if _, ok := found[x.Kind]; !ok { // subresources such as pods/eviction come later
			found[x.Kind] = mapping{x.Name, x.Namespaced}
		}
	}
	if r.asked == nil {
		r.asked = map[schema.GroupVersion]map[string]mapping{}
	}
	r.asked[gv] = found
	m, ok := found[gvk.Kind]
	if !ok {
		return mapping{}, fmt.Errorf("the API has no kind %s in %s", gvk.Kind, gv)
	}
	return m, nil
}
