package kubenode

import (
	_ "embed"
	"fmt"
	"maps"
	"strings"

	"sigs.k8s.io/yaml"

	"hk/remote"
	"hk/tasks/host"
	"hk/tasks/spec"
)

//go:embed files/kubelet.yaml
var kubeletText string

// Memory kept free for what does not run in pods: on masters that is etcd, too.
const (
	masterReserve = "600Mi"
	workerReserve = "250Mi"
)

// Kubelet is what a host's kubelet is told beyond kubeadm's config: hk's
// settings, the host's own, and what the cluster's config passes through.
type Kubelet struct {
	ProviderID string
	CgroupV2   bool
	Master     bool
	Extra      map[string]any // KubeletConfiguration fields of the config
}

// CgroupDriver is systemd's only where systemd can have it: with cgroup v2.
func CgroupDriver(v2 bool) string {
	if v2 {
		return "systemd"
	}
	return "cgroupfs"
}

// Render is the drop-in. The machine image's own drop-ins sort after it and
// win: what a kind of machine cannot do no config can ask of it.
func (k Kubelet) Render() ([]byte, error) {
	system := workerReserve
	if k.Master {
		system = masterReserve
	}
	text := host.Fill(kubeletText, "PROVIDER", k.ProviderID, "CGROUP", CgroupDriver(k.CgroupV2), "SYSTEM", system)
	if len(k.Extra) == 0 {
		return []byte(text), nil
	}
	var base map[string]any
	if err := yaml.Unmarshal([]byte(text), &base); err != nil {
		return nil, fmt.Errorf("bug: kubelet's drop-in: %w", err)
	}
	merged, err := Merge(base, k.Extra, "kubernetes.kubelet", "apiVersion", "kind", "providerID", "tlsCertFile", "tlsPrivateKeyFile", "rotateCertificates")
	if err != nil {
		return nil, err
	}
	out, err := yaml.Marshal(merged)
	if err != nil {
		return nil, fmt.Errorf("writing kubelet's drop-in: %w", err)
	}
	head, _, _ := strings.Cut(text, "\n")
	return append([]byte(head+"\n"), out...), nil
}

// File is the drop-in as the file that the config kinds own.
func (k Kubelet) File() (remote.File, error) {
	b, err := k.Render()
	return remote.File{Path: host.KubeletHKConfig, Mode: 0o644, Content: b}, err
}

// Unit is kubelet as whoever starts it declares it.
func Unit() remote.Unit {
	return remote.Unit{Name: host.KubeletUnit, Enabled: true, Active: true, Files: host.KubeletFiles()}
}

// Merge lays what the config passes through over hk's own fields: maps deeply,
// named lists (extraArgs, extraVolumes) by name, sets (certSANs) as a union,
// everything else by replacing it. A field that hk must own is refused by name.
func Merge(base, over map[string]any, path string, owned ...string) (map[string]any, error) {
	for _, o := range owned {
		if _, ok := over[o]; ok {
			return nil, fmt.Errorf("%s.%s is set by hk and cannot be passed through", path, o)
		}
	}
	return mergeMaps(base, over), nil
}

func mergeMaps(base, over map[string]any) map[string]any {
	out := make(map[string]any, len(base)+len(over))
	maps.Copy(out, base)
	for k, v := range over {
		b, isMap := out[k].(map[string]any)
		o, overMap := v.(map[string]any)
		list, overList := v.([]any)
		switch {
		case isMap && overMap:
			out[k] = mergeMaps(b, o)
		case overList && (k == "extraArgs" || k == "extraVolumes" || k == "extraEnvs" || k == "certSANs"):
			have, _ := out[k].([]any)
			out[k] = mergeLists(have, list)
		default:
			out[k] = v
		}
	}
	return out
}

// mergeLists keeps the order: hk's entries, each replaced by the config's of
// the same name, then the config's new ones.
func mergeLists(base, over []any) []any {
	out := append([]any(nil), base...)
	for _, o := range over {
		i := indexOf(out, o)
		if i < 0 {
			out = append(out, o)
			continue
		}
		out[i] = o
	}
	return out
}

func indexOf(list []any, want any) int {
	for i, v := range list {
		if entryName(v) == entryName(want) {
			return i
		}
	}
	return -1
}

// entryName is what makes an entry of a named list unique.
func entryName(v any) string {
	if m, ok := v.(map[string]any); ok {
		return fmt.Sprint(m["name"])
	}
	return fmt.Sprint(v)
}

// CgroupV2 reads first contact's output.
func CgroupV2(out map[string]string) bool { return out["cgroup"] == "v2" }

// Restricted reads first contact's output: a container-like machine without
// CAP_SYS_RESOURCE.
func Restricted(out map[string]string) bool { return out["restricted"] == "true" }

// RegisterTaints are the taints a pool's Nodes register with.
func RegisterTaints(taints []spec.Taint) []map[string]any {
	out := []map[string]any{}
	for _, t := range taints {
		m := map[string]any{"key": t.Key, "effect": t.Effect}
		if t.Value != "" {
			m["value"] = t.Value
		}
		out = append(out, m)
	}
	return out
}
