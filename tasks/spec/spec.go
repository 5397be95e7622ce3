package spec

import (
	"slices"
	"time"
)

// Cluster is the config file, defaults filled in. The yaml names are the
// contract of DESIGN §7.
type Cluster struct {
	Name       string       `yaml:"name" json:"name"`
	Cloud      string       `yaml:"cloud" json:"cloud"`
	Lab        string       `yaml:"lab,omitempty" json:"lab,omitempty"`
	Sim        Sim          `yaml:"sim,omitempty" json:"sim,omitzero"`
	Location   string       `yaml:"location" json:"location"`
	Image      string       `yaml:"image" json:"image"`
	SSH        SSH          `yaml:"ssh" json:"ssh"`
	Kubernetes Kubernetes   `yaml:"kubernetes" json:"kubernetes"`
	Network    Network      `yaml:"network" json:"network"`
	Etcd       EtcdPool     `yaml:"etcd" json:"etcd"`
	Masters    MasterPool   `yaml:"masters" json:"masters"`
	Workers    []WorkerPool `yaml:"workers" json:"workers"`
	Endpoint   Endpoint     `yaml:"endpoint" json:"endpoint"`
	CNI        string       `yaml:"cni" json:"cni"`
	Addons     []string     `yaml:"addons" json:"addons"`
	Mirrors    Mirrors      `yaml:"mirrors" json:"mirrors"`
}

// Sim is the simulated world's own settings.
type Sim struct {
	World   string   `yaml:"world,omitempty" json:"world,omitempty"` // file, relative to the config
	Latency string   `yaml:"latency,omitempty" json:"latency,omitempty"`
	Seed    int64    `yaml:"seed,omitempty" json:"seed,omitempty"`
	Faults  []string `yaml:"faults,omitempty" json:"faults,omitempty"`
}

// SSH is how to log in.
type SSH struct {
	Key     string  `yaml:"key" json:"key"` // path, relative to the config
	Agent   bool    `yaml:"agent" json:"agent"`
	User    string  `yaml:"user" json:"user"`
	Port    int     `yaml:"port" json:"port"`
	Bastion Bastion `yaml:"bastion,omitempty" json:"bastion,omitzero"`
}

// Bastion is a host to go through.
type Bastion struct {
	Host    string `yaml:"host,omitempty" json:"host,omitempty"`
	Port    int    `yaml:"port,omitempty" json:"port,omitempty"`
	User    string `yaml:"user,omitempty" json:"user,omitempty"`
	Key     string `yaml:"key,omitempty" json:"key,omitempty"`
	HostKey string `yaml:"host_key,omitempty" json:"host_key,omitempty"`
}

// Kubernetes is the version and what is passed through to its programs.
type Kubernetes struct {
	Version string         `yaml:"version" json:"version"`
	Kubelet map[string]any `yaml:"kubelet" json:"kubelet"` // KubeletConfiguration fields
	Kubeadm map[string]any `yaml:"kubeadm" json:"kubeadm"` // ClusterConfiguration fields
}

// Network is the address plan; immutable.
type Network struct {
	Mesh     string `yaml:"mesh" json:"mesh"`
	Private  string `yaml:"private" json:"private"`
	Pods     string `yaml:"pods" json:"pods"`
	Services string `yaml:"services" json:"services"`
	MeshPort int    `yaml:"mesh_port" json:"mesh_port"`
}

// EtcdPool is etcd's own hosts; Count 0 puts etcd on the masters.
type EtcdPool struct {
	Count int    `yaml:"count" json:"count"`
	Type  string `yaml:"type" json:"type"`
}

// MasterPool is the masters.
type MasterPool struct {
	Count int    `yaml:"count" json:"count"`
	Type  string `yaml:"type" json:"type"`
}

// WorkerPool is one pool of workers.
type WorkerPool struct {
	Pool         string            `yaml:"pool" json:"pool"`
	Count        int               `yaml:"count" json:"count"`
	Type         string            `yaml:"type" json:"type"`
	Labels       map[string]string `yaml:"labels" json:"labels"`
	Taints       []Taint           `yaml:"taints" json:"taints"`
	Location     string            `yaml:"location" json:"location"`
	LoadBalanced *bool             `yaml:"load_balanced,omitempty" json:"load_balanced,omitempty"`
}

// Taint of a worker pool's Nodes.
type Taint struct {
	Key    string `yaml:"key" json:"key"`
	Value  string `yaml:"value" json:"value"`
	Effect string `yaml:"effect" json:"effect"`
}

// Endpoint is the address for people: load-balancer, master or dns NAME.
type Endpoint struct {
	External string `yaml:"external" json:"external"`
}

// Mirrors are where artifacts and images come from instead of upstream.
type Mirrors struct {
	Artifacts string `yaml:"artifacts" json:"artifacts"`
	Registry  string `yaml:"registry" json:"registry"`
}

// Roles of hosts.
const (
	Master = "master"
	Etcd   = "etcd"
	Worker = "worker"
)

// Host is one desired machine with what was allocated to it.
type Host struct {
	Name     string   // master-1
	Node     string   // demo-master-1: server, host and Node name
	Role     string   // master, etcd, worker: what it was made as
	Roles    []string // all it carries: a master may carry etcd too
	Pool     string   // worker pool, "master", "etcd"
	Number   int      // N of POOL-N
	Type     string
	Location string
	Index    int    // allocated once, kept for life
	MeshIP   string // mesh base + index
	PodCIDR  string // "" for hosts that run no pods (etcd-N)
	Private  bool   // attached to the private network
	Labels   map[string]string
	Taints   []Taint
}

// Has reports whether the host carries the role.
func (h *Host) Has(role string) bool {
	return slices.Contains(h.Roles, role)
}

// LockFile pins what a cluster downloads, beside the config as
// NAME.lock.yaml (DESIGN §5): resolved once, from the mirror or upstream.
type LockFile struct {
	Kubernetes string              `yaml:"kubernetes"`
	Resolved   time.Time           `yaml:"resolved"`
	Artifacts  map[string]Artifact `yaml:"artifacts"` // kubeadm, kubelet, kubectl, etcd, containerd, runc, cni-plugins, crictl
	Images     map[string]string   `yaml:"images"`    // name -> reference: pause, coredns, kube-proxy, kube-apiserver, ...
}

// Artifact is one pinned download.
type Artifact struct {
	Version string            `yaml:"version"`
	Path    string            `yaml:"path"` // below the mirror; upstream's layout
	SHA256  string            `yaml:"sha256"`
	Files   map[string]string `yaml:"files,omitempty"` // member -> SHA-256 of the extracted file
}
