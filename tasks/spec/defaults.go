package spec

import "fmt"

// DefaultKubernetes is the version a new cluster gets.
const DefaultKubernetes = "v1.37.2"

// Other defaults of DESIGN §7.
const (
	defaultType     = "cx23"
	defaultLocation = "fsn1"
	defaultImage    = "debian-12"
	defaultPool     = "worker"
	defaultMeshPort = 51820
)

// setDefaults fills in what the file did not give. A value that was given is
// never replaced, also not a zero.
func setDefaults(c *Cluster, given map[string]bool) {
	def := func(path string, p *string, v string) {
		if !given[path] {
			*p = v
		}
	}
	num := func(path string, p *int, v int) {
		if !given[path] {
			*p = v
		}
	}
	def("cloud", &c.Cloud, "lab")
	def("location", &c.Location, defaultLocation)
	def("image", &c.Image, defaultImage)
	def("kubernetes.version", &c.Kubernetes.Version, DefaultKubernetes)
	def("network.mesh", &c.Network.Mesh, "10.100.0.0/16")
	def("network.private", &c.Network.Private, "10.99.0.0/16")
	def("network.pods", &c.Network.Pods, "10.128.0.0/10")
	def("network.services", &c.Network.Services, "10.200.0.0/16")
	num("network.mesh_port", &c.Network.MeshPort, defaultMeshPort)
	def("etcd.type", &c.Etcd.Type, defaultType)
	num("masters.count", &c.Masters.Count, 3)
	def("masters.type", &c.Masters.Type, defaultType)
	def("cni", &c.CNI, "mesh")
	external := EndpointMaster
	if c.Masters.Count >= 3 {
		external = EndpointLoadBalancer
	}
	def("endpoint.external", &c.Endpoint.External, external)
	setWorldDefaults(c, given, def)
	setSSHDefaults(c, given, def, num)
	setWorkerDefaults(c, given, def, num)
	if c.Kubernetes.Kubelet == nil {
		c.Kubernetes.Kubelet = map[string]any{}
	}
	if c.Kubernetes.Kubeadm == nil {
		c.Kubernetes.Kubeadm = map[string]any{}
	}
	if c.Addons == nil {
		c.Addons = []string{}
	}
}

// setWorldDefaults fills in only what belongs to the cluster's world: a lab
// cluster has no simulated world to write down.
func setWorldDefaults(c *Cluster, given map[string]bool, def func(string, *string, string)) {
	if c.Cloud == "lab" {
		def("lab", &c.Lab, "default")
	}
	if c.Cloud != "sim" {
		return
	}
	def("sim.world", &c.Sim.World, c.Name+".sim")
	def("sim.latency", &c.Sim.Latency, "none")
	if !given["sim.seed"] {
		c.Sim.Seed = 1
	}
}

func setSSHDefaults(c *Cluster, given map[string]bool, def func(string, *string, string), num func(string, *int, int)) {
	def("ssh.key", &c.SSH.Key, c.Name+".key")
	def("ssh.user", &c.SSH.User, "root")
	num("ssh.port", &c.SSH.Port, 22)
	if given["ssh.bastion.host"] {
		num("ssh.bastion.port", &c.SSH.Bastion.Port, 22)
		def("ssh.bastion.user", &c.SSH.Bastion.User, "root")
	}
}

func setWorkerDefaults(c *Cluster, given map[string]bool, def func(string, *string, string), num func(string, *int, int)) {
	if !given["workers"] {
		c.Workers = []WorkerPool{{}}
	}
	if c.Workers == nil {
		c.Workers = []WorkerPool{}
	}
	for i := range c.Workers {
		w, at := &c.Workers[i], fmt.Sprintf("workers[%d].", i)
		def(at+"pool", &w.Pool, defaultPool)
		num(at+"count", &w.Count, 2)
		def(at+"type", &w.Type, defaultType)
		if w.Labels == nil {
			w.Labels = map[string]string{}
		}
		if w.Taints == nil {
			w.Taints = []Taint{}
		}
	}
}
