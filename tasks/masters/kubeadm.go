package masters

import (
	"bytes"
	"fmt"

	"sigs.k8s.io/yaml"

	"hk/tasks/host"
	"hk/tasks/kubenode"
)

const kubeadmAPI = "kubeadm.k8s.io/v1beta4"

// object is a YAML document before it is written. sigs.k8s.io/yaml sorts keys,
// so equal objects are equal bytes.
type object = map[string]any

func arg(name, value string) any { return object{"name": name, "value": value} }

// initConfiguration is the master's own document.
func (in configIn) initConfiguration() object {
	return object{
		"apiVersion": kubeadmAPI, "kind": "InitConfiguration",
		// A busy machine's first API server needs longer than kubeadm's minute.
		"timeouts":         object{"kubernetesAPICall": "4m0s"},
		"localAPIEndpoint": object{"advertiseAddress": in.MeshIP, "bindPort": kubenode.APIPort},
		"nodeRegistration": object{
			"name": in.Node, "criSocket": host.CRISocket,
			"imagePullPolicy": "IfNotPresent", "imagePullSerial": false,
			"kubeletExtraArgs": []any{arg("node-ip", in.MeshIP)},
			"taints":           []any{object{"key": "node-role.kubernetes.io/control-plane", "effect": "NoSchedule"}},
		},
	}
}

// clusterConfiguration is the same, byte for byte, on every master. Nothing in
// it may belong to one of them.
func (in configIn) clusterConfiguration() (object, error) {
	sans := []any{"127.0.0.1"}
	if in.External != "" {
		sans = append(sans, in.External)
	}
	endpoints := make([]any, len(in.Etcd))
	for i, e := range in.Etcd {
		endpoints[i] = e
	}
	base := object{
		"apiVersion": kubeadmAPI, "kind": "ClusterConfiguration",
		"clusterName":          in.Cluster,
		"kubernetesVersion":    in.Version,
		"controlPlaneEndpoint": kubenode.LocalEndpoint,
		"certificatesDir":      kubenode.PKIDir,
		"encryptionAlgorithm":  "ECDSA-P256",
		"networking":           object{"podSubnet": in.Pods, "serviceSubnet": in.Services, "dnsDomain": clusterDomain},
		"etcd": object{"external": object{
			"endpoints": endpoints, "caFile": etcdCAFile + ".crt",
			"certFile": etcdClientFile + ".crt", "keyFile": etcdClientFile + ".key",
		}},
		"apiServer": object{
			"certSANs": sans,
			"extraArgs": []any{
				arg("bind-address", "0.0.0.0"),
				arg("encryption-provider-config", encryptionFile),
				arg("kubelet-certificate-authority", kubenode.ClusterCA),
				// The local proxies see a leaving API server before it is gone.
				arg("shutdown-delay-duration", "3s"),
				// Long-lived connections find back to a master that was away.
				arg("goaway-chance", "0.001"),
			},
		},
		"controllerManager": object{"extraArgs": []any{
			// hk sets each Node's pod CIDR from its host's index.
			arg("allocate-node-cidrs", "false"),
		}},
	}
	return kubenode.Merge(base, in.Kubeadm, "kubernetes.kubeadm",
		"apiVersion", "kind", "clusterName", "kubernetesVersion", "controlPlaneEndpoint", "certificatesDir", "networking", "etcd")
}

// kubeProxyConfiguration: the default serves NodePorts on the primary node
// address only, the mesh one, so a load balancer would never get an answer; the
// cloud's firewall keeps them closed to the world. conntrack's size belongs to
// the host's own settings.
func kubeProxyConfiguration() object {
	return object{
		"apiVersion": "kubeproxy.config.k8s.io/v1alpha1", "kind": "KubeProxyConfiguration",
		"mode": "nftables", "nodePortAddresses": []any{"0.0.0.0/0"},
		"conntrack": object{"maxPerCore": 0, "min": 0},
	}
}

// kubeletConfiguration is what joining nodes get from the cluster. hk's own
// settings are in the drop-in beside it, where each host can have its own.
func kubeletConfiguration() object {
	return object{
		"apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration",
		"rotateCertificates": true,
	}
}

// kubeadmYAML is /etc/kubernetes/kubeadm.yaml.
func (in configIn) kubeadmYAML() ([]byte, error) {
	cc, err := in.clusterConfiguration()
	if err != nil {
		return nil, err
	}
	out := []byte("# Written by hk; changes are undone by the next build.\n")
	b, err := documents(in.initConfiguration(), cc, kubeletConfiguration(), kubeProxyConfiguration())
	return append(out, b...), err
}

const separator = "---\n"

func documents(list ...object) ([]byte, error) {
	var parts [][]byte
	for _, o := range list {
		b, err := yaml.Marshal(o)
		if err != nil {
			return nil, fmt.Errorf("writing a %v: %w", o["kind"], err)
		}
		parts = append(parts, b)
	}
	return bytes.Join(parts, []byte(separator)), nil
}

// withInit returns a kubeadm.yaml whose InitConfiguration is changed for one
// run; the other documents stay as they are.
func withInit(text []byte, change func(object)) ([]byte, error) {
	docs := bytes.Split(text, []byte("\n"+separator))
	for i, d := range docs {
		var o object
		if err := yaml.Unmarshal(d, &o); err != nil {
			return nil, fmt.Errorf("reading %s: %w", kubenode.KubeadmConfig, err)
		}
		if o["kind"] != "InitConfiguration" {
			continue
		}
		change(o)
		b, err := yaml.Marshal(o)
		if err != nil {
			return nil, fmt.Errorf("writing an InitConfiguration: %w", err)
		}
		docs[i] = bytes.TrimSuffix(b, []byte("\n"))
		return bytes.Join(docs, []byte("\n"+separator)), nil
	}
	return nil, fmt.Errorf("%s holds no InitConfiguration", kubenode.KubeadmConfig)
}
