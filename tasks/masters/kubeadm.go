package masters

import (
	"bytes"
	_ "embed"
	"fmt"
	"strings"

	"sigs.k8s.io/yaml"

	"hk/tasks/host"
	"hk/tasks/kubenode"
)

//go:embed files/kubeadm.yaml
var kubeadmText string

// object is a YAML document as sigs.k8s.io/yaml reads it; written again its
// keys are sorted, so equal objects are equal bytes.
type object = map[string]any

// separator parts the documents of a kubeadm.yaml.
const separator = "\n---\n"

// kubeadmYAML is /etc/kubernetes/kubeadm.yaml. Only a cluster that passes
// fields through pays for reading YAML.
func (in configIn) kubeadmYAML() ([]byte, error) {
	sans := []string{"127.0.0.1"}
	if in.External != "" {
		sans = append(sans, in.External)
	}
	text := []byte(host.Fill(kubeadmText,
		"MESH", in.MeshIP, "NODE", in.Node, "CRI", host.CRISocket, "CLUSTER", in.Cluster, "VERSION", in.Version,
		"LOCAL", kubenode.LocalEndpoint, "PODS", in.Pods, "SERVICES", in.Services,
		"ETCD", items("    ", in.Etcd), "SANS", items("  ", sans)))
	if len(in.Kubeadm) == 0 {
		return text, nil
	}
	return change(text, "ClusterConfiguration", func(o object) (object, error) {
		return kubenode.Merge(o, in.Kubeadm, "kubernetes.kubeadm",
			"apiVersion", "kind", "clusterName", "kubernetesVersion", "controlPlaneEndpoint", "certificatesDir", "networking", "etcd")
	})
}

// items is a YAML list of plain words.
func items(indent string, list []string) string {
	return indent + "- " + strings.Join(list, "\n"+indent+"- ")
}

// withInit returns a kubeadm.yaml whose InitConfiguration is changed for one
// run.
func withInit(text []byte, edit func(object)) ([]byte, error) {
	return change(text, "InitConfiguration", func(o object) (object, error) { edit(o); return o, nil })
}

// change rewrites the document of one kind; the others keep their bytes.
func change(text []byte, kind string, edit func(object) (object, error)) ([]byte, error) {
	docs := bytes.Split(text, []byte(separator))
	for i, d := range docs {
		var o object
		if err := yaml.Unmarshal(d, &o); err != nil {
			return nil, fmt.Errorf("reading %s: %w", kubenode.KubeadmConfig, err)
		}
		if o["kind"] != kind {
			continue
		}
		o, err := edit(o)
		if err != nil {
			return nil, err
		}
		b, err := yaml.Marshal(o)
		if err != nil {
			return nil, fmt.Errorf("writing a %s: %w", kind, err)
		}
		docs[i] = bytes.TrimSuffix(b, []byte("\n"))
		return bytes.Join(docs, []byte(separator)), nil
	}
	return nil, fmt.Errorf("%s holds no %s", kubenode.KubeadmConfig, kind)
}
