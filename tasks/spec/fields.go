package spec

// Class says what changing a field of an established cluster means.
type Class string

// Classes of change.
const (
	// Safe: nothing that runs is interrupted.
	Safe Class = "safe"
	// Disruptive: something restarts, moves or goes away.
	Disruptive Class = "disruptive"
	// Immutable: another value is another cluster.
	Immutable Class = "immutable"
	// Client: says how this computer reaches the cluster and is no part of the
	// cluster itself; a change of it is none.
	Client Class = "client"
)

// Field is one key of the config file. List items are written as [].
type Field struct {
	Path    string
	Class   Class // of most changes; Diff looks closer where direction matters
	Doc     string
	Default string   // as in the file; "" if there is none or it depends
	Values  []string // all that are possible, if they are few
	Pattern string   // for the schema
}

const (
	cidrPattern    = `^([0-9]{1,3}\.){3}[0-9]{1,3}/[0-9]{1,2}$`
	versionPattern = `^v1\.[0-9]+\.[0-9]+$`
	urlPattern     = `^(https?://.+)?$`
	typePattern    = `^[a-z0-9-]+$`
)

// Fields is every key of the file, in its order.
func Fields() []Field {
	return []Field{
		{Path: "name", Class: Immutable, Doc: "Name of the cluster; servers are called NAME-HOST.", Pattern: `^[a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?$`},
		{Path: "cloud", Class: Immutable, Doc: "Where the cluster lives.", Default: "lab", Values: Clouds()},
		{Path: "lab", Class: Immutable, Doc: "With cloud: lab, which lab; its endpoint and token come from the lab's own state.", Default: "default"},
		{Path: "sim", Class: Client, Doc: "With cloud: sim, the simulated world."},
		{Path: "sim.world", Class: Client, Doc: "File of the world, relative to this file.", Default: "NAME.sim"},
		{Path: "sim.latency", Class: Client, Doc: "How long simulated things take.", Default: "none", Values: []string{"none", "hetzner"}},
		{Path: "sim.seed", Class: Client, Doc: "Seed of everything random in the world.", Default: "1"},
		{Path: "sim.faults", Class: Client, Doc: "Faults to inject.", Default: "[]"},
		{Path: "location", Class: Safe, Doc: "Location of new servers.", Default: "fsn1"},
		{Path: "image", Class: Safe, Doc: "Image of new servers, by name or snapshot ID (in quotes).", Default: "debian-12"},
		{Path: "ssh", Class: Client, Doc: "How to log in to hosts."},
		{Path: "ssh.key", Class: Client, Doc: "Private key, relative to this file.", Default: "NAME.key"},
		{Path: "ssh.agent", Class: Client, Doc: "Also offer the keys of the SSH agent.", Default: "false"},
		{Path: "ssh.user", Class: Safe, Doc: "User on the hosts; must be root.", Default: "root"},
		{Path: "ssh.port", Class: Safe, Doc: "Port of sshd in the image.", Default: "22"},
		{Path: "ssh.bastion", Class: Client, Doc: "Host to go through."},
		{Path: "ssh.bastion.host", Class: Client, Doc: "Address of the bastion."},
		{Path: "ssh.bastion.port", Class: Client, Doc: "Port of the bastion.", Default: "22"},
		{Path: "ssh.bastion.user", Class: Client, Doc: "User on the bastion.", Default: "root"},
		{Path: "ssh.bastion.key", Class: Client, Doc: "Private key for the bastion, relative to this file; ssh.key if there is none."},
		{Path: "ssh.bastion.host_key", Class: Client, Doc: "The bastion's public host key in authorized_keys form."},
		{Path: "kubernetes", Class: Disruptive, Doc: "Version of Kubernetes and what is passed through to its programs."},
		{Path: "kubernetes.version", Class: Disruptive, Doc: "Version of Kubernetes.", Default: DefaultKubernetes, Pattern: versionPattern},
		{Path: "kubernetes.kubelet", Class: Disruptive, Doc: "Fields of KubeletConfiguration (kubelet.config.k8s.io/v1beta1).", Default: "{}"},
		{Path: "kubernetes.kubeadm", Class: Disruptive, Doc: "Fields of ClusterConfiguration (kubeadm.k8s.io/v1beta4).", Default: "{}"},
		{Path: "network", Class: Immutable, Doc: "Address plan."},
		{Path: "network.mesh", Class: Immutable, Doc: "Addresses of hosts in the WireGuard mesh.", Default: "10.100.0.0/16", Pattern: cidrPattern},
		{Path: "network.private", Class: Immutable, Doc: "The cloud's private network, for load-balancer traffic.", Default: "10.99.0.0/16", Pattern: cidrPattern},
		{Path: "network.pods", Class: Immutable, Doc: "Addresses of pods; each host takes a /24.", Default: "10.128.0.0/10", Pattern: cidrPattern},
		{Path: "network.services", Class: Immutable, Doc: "Addresses of Services.", Default: "10.200.0.0/16", Pattern: cidrPattern},
		{Path: "network.mesh_port", Class: Immutable, Doc: "UDP port of the mesh.", Default: "51820"},
		{Path: "etcd", Class: Disruptive, Doc: "Hosts of etcd's own."},
		{Path: "etcd.count", Class: Disruptive, Doc: "How many, an odd number; 0 puts etcd on the masters.", Default: "0"},
		{Path: "etcd.type", Class: Safe, Doc: "Type of new servers.", Default: "cx23", Pattern: typePattern},
		{Path: "masters", Class: Disruptive, Doc: "The control plane's hosts."},
		{Path: "masters.count", Class: Disruptive, Doc: "How many; an odd number while etcd is on them.", Default: "3"},
		{Path: "masters.type", Class: Safe, Doc: "Type of new servers.", Default: "cx23", Pattern: typePattern},
		{Path: "workers", Class: Disruptive, Doc: "Pools of workers; [] for none."},
		{Path: "workers[].pool", Class: Disruptive, Doc: "Name of the pool; its hosts are POOL-1, POOL-2, …", Default: "worker", Pattern: `^[a-z]([a-z0-9-]{0,18}[a-z0-9])?$`},
		{Path: "workers[].count", Class: Disruptive, Doc: "How many.", Default: "2"},
		{Path: "workers[].type", Class: Safe, Doc: "Type of new servers.", Default: "cx23", Pattern: typePattern},
		{Path: "workers[].labels", Class: Safe, Doc: "Labels of the pool's Nodes.", Default: "{}"},
		{Path: "workers[].taints", Class: Safe, Doc: "Taints of the pool's Nodes.", Default: "[]"},
		{Path: "workers[].taints[].key", Class: Safe, Doc: "Key of the taint."},
		{Path: "workers[].taints[].value", Class: Safe, Doc: "Value of the taint."},
		{Path: "workers[].taints[].effect", Class: Safe, Doc: "Effect of the taint.", Values: Effects()},
		{Path: "workers[].location", Class: Safe, Doc: "Location of the pool's new servers; the cluster's if empty."},
		{Path: "workers[].load_balanced", Class: Safe, Doc: "Attached to the private network, so that load balancers reach it; true up to 90 hosts in all."},
		{Path: "endpoint", Class: Disruptive, Doc: "The API's address for people."},
		{Path: "endpoint.external", Class: Disruptive, Doc: "load-balancer, master, or dns NAME; load-balancer from three masters on, else master.", Pattern: `^(load-balancer|master|dns +[^ ]+)$`},
		{Path: "cni", Class: Immutable, Doc: "Pod network.", Default: "mesh", Values: []string{"mesh", "none"}},
		{Path: "addons", Class: Safe, Doc: "Addons; none are available yet.", Default: "[]"},
		{Path: "mirrors", Class: Safe, Doc: "Where downloads come from instead of upstream."},
		{Path: "mirrors.artifacts", Class: Safe, Doc: "Base URL of programs, upstream's paths below it.", Pattern: urlPattern},
		{Path: "mirrors.registry", Class: Safe, Doc: "Base URL of a registry that mirrors registry.k8s.io.", Pattern: urlPattern},
	}
}

// Clouds are the worlds a cluster can live in.
func Clouds() []string { return []string{"hetzner", "lab", "sim"} }

// Effects are the effects of taints.
func Effects() []string { return []string{"NoSchedule", "PreferNoSchedule", "NoExecute"} }
