package spec

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// Bounds of sizes.
const (
	maxName    = 40
	maxPool    = 20
	maxEtcd    = 7   // more members make writes slower and nothing safer
	maxWorkers = 990 // of one pool
	// maxAttached is how many servers a private network holds beside the load
	// balancer (100 attachments).
	maxAttached = 99
)

// Validate checks a config that did not come from Parse, such as one edited in
// place; src may be nil. Its error is Problems.
func Validate(c *Cluster, src *Source) error { return inOrder(validate(c, src)).err() }

// validate collects everything that is against the rules.
func validate(c *Cluster, src *Source) Problems {
	v := &validator{c: c, src: src}
	v.identity()
	v.world()
	v.ssh()
	v.kubernetes()
	v.counts()
	v.workers()
	v.networks()
	v.endpoint()
	v.rest()
	return v.problems
}

type validator struct {
	c        *Cluster
	src      *Source
	problems Problems
}

func (v *validator) add(path, msg, hint string) {
	v.problems = append(v.problems, v.src.problem(path, msg, hint))
}

// oneOf checks a word against those that are known and those that will be.
func (v *validator) oneOf(path, word string, known, later []string) {
	switch {
	case slices.Contains(known, word):
	case word == "":
		v.add(path, "is missing", "one of "+strings.Join(known, ", "))
	case slices.Contains(later, word):
		v.add(path, word+" is not available yet", "use "+strings.Join(known, " or "))
	default:
		hint := "use " + strings.Join(known, ", ")
		if near := nearest(word, known); len(near) > 0 {
			hint = "did you mean " + strings.Join(near, " or ") + "?"
		}
		v.add(path, fmt.Sprintf("%q is not known", short(word)), hint)
	}
}

var (
	dnsLabel  = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`)
	poolName  = regexp.MustCompile(`^[a-z]([-a-z0-9]*[a-z0-9])?$`)
	dnsName   = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)+$`)
	typeName  = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`)
	userName  = regexp.MustCompile(`^[a-z_][-a-z0-9_]{0,31}$`)
	imageName = regexp.MustCompile(`^[A-Za-z0-9]([-A-Za-z0-9._]*[A-Za-z0-9])?$`)
)

func (v *validator) identity() {
	c := v.c
	switch {
	case c.Name == "":
		v.add("name", "a cluster needs a name", "name: demo")
	case len(c.Name) > maxName:
		v.add("name", fmt.Sprintf("has %d characters, %d are possible", len(c.Name), maxName), "servers are called NAME-HOST, and that must fit into a host name")
	case !dnsLabel.MatchString(c.Name):
		v.add("name", fmt.Sprintf("%q is no name of a cluster", short(c.Name)), "lower-case letters, digits and dashes, not at the ends")
	}
	for _, f := range []struct{ path, value string }{{"location", c.Location}, {"image", c.Image}} {
		if !imageName.MatchString(f.value) || len(f.value) > 63 {
			v.add(f.path, fmt.Sprintf("%q cannot be a name in the cloud", short(f.value)), "")
		}
	}
	v.serverType("etcd.type", c.Etcd.Type)
	v.serverType("masters.type", c.Masters.Type)
}

func (v *validator) serverType(path, t string) {
	if !typeName.MatchString(t) || len(t) > 63 {
		v.add(path, fmt.Sprintf("%q cannot be a server type", short(t)), "such as cx23")
	}
}

func (v *validator) world() {
	c := v.c
	v.oneOf("cloud", c.Cloud, Clouds(), nil)
	if c.Cloud == "lab" && (!dnsLabel.MatchString(c.Lab) || len(c.Lab) > 32) {
		v.add("lab", fmt.Sprintf("%q is no name of a lab", short(c.Lab)), "lower-case letters, digits and dashes, at most 32")
	}
	if c.Cloud == "sim" {
		v.oneOf("sim.latency", c.Sim.Latency, []string{"none", "hetzner"}, nil)
	}
}

func (v *validator) ssh() {
	s := &v.c.SSH
	v.port("ssh.port", s.Port)
	if s.User != "root" {
		hint := "hk manages the whole machine"
		if !userName.MatchString(s.User) {
			hint = ""
		}
		v.add("ssh.user", fmt.Sprintf("%q cannot be used, only root can", short(s.User)), hint)
	}
	if s.Key == "" && !s.Agent {
		v.add("ssh.key", "there is no key to log in with", "name a key file, or set agent: true")
	}
	b := &s.Bastion
	if b.Host == "" {
		if b.Port != 0 || b.User != "" || b.Key != "" || b.HostKey != "" {
			v.add("ssh.bastion", "has no host", "host: bastion.example.com")
		}
		return
	}
	v.port("ssh.bastion.port", b.Port)
	if !userName.MatchString(b.User) {
		v.add("ssh.bastion.user", fmt.Sprintf("%q is no user name", short(b.User)), "")
	}
	if f := strings.Fields(b.HostKey); len(f) < 2 || !strings.Contains(f[0], "-") {
		v.add("ssh.bastion.host_key", "the bastion's public host key is needed", "ssh-keyscan shows it: host_key: ssh-ed25519 AAAA…")
	}
}

func (v *validator) port(path string, p int) {
	if p < 1 || p > 65535 {
		v.add(path, fmt.Sprintf("%d is no port", p), "1 to 65535")
	}
}

// Minor versions of Kubernetes that can be built.
var supportedMinors = []int{36, 37}

func (v *validator) kubernetes() {
	k := &v.c.Kubernetes
	ver, err := parseVersion(k.Version)
	switch {
	case err != nil && !strings.HasPrefix(k.Version, "v"):
		v.add("kubernetes.version", fmt.Sprintf("%q is no version", short(k.Version)), "such as v1.37.2, with the v")
	case err != nil:
		v.add("kubernetes.version", fmt.Sprintf("%q is no version", short(k.Version)), "such as v1.37.2, all three numbers")
	case ver.major != 1 || !slices.Contains(supportedMinors, ver.minor):
		v.add("kubernetes.version", k.Version+" is not supported", "v1.36 and v1.37 are")
	}
	v.owned("kubernetes.kubelet", k.Kubelet, []string{
		"apiVersion", "kind", "providerID", "tlsCertFile", "tlsPrivateKeyFile", "staticPodPath", "clusterDNS", "clusterDomain",
	})
	v.owned("kubernetes.kubeadm", k.Kubeadm, []string{
		"apiVersion", "kind", "kubernetesVersion", "controlPlaneEndpoint", "networking", "etcd", "certificatesDir", "clusterName",
	})
}

// owned refuses fields that hk sets itself.
func (v *validator) owned(path string, m map[string]any, fields []string) {
	for _, f := range fields {
		if _, ok := m[f]; ok {
			v.add(path+"."+f, "is set by hk itself", "leave it out")
		}
	}
}

// counts checks how many masters and etcd members there are.
func (v *validator) counts() {
	m, e := v.c.Masters.Count, v.c.Etcd.Count
	if m < 1 {
		v.add("masters.count", fmt.Sprintf("%d masters make no cluster", m), "1, or 3 to survive the loss of one")
	}
	switch {
	case e < 0:
		v.add("etcd.count", fmt.Sprintf("%d is no number of hosts", e), "0 puts etcd on the masters")
	case e == 0 && m > 0:
		v.members("masters.count", m, "masters carry etcd")
	case e > 0:
		v.members("etcd.count", e, "members of etcd")
		if m > 9 {
			v.add("masters.count", fmt.Sprintf("%d masters are more than 9", m), "")
		}
	}
}

func (v *validator) members(path string, n int, what string) {
	if n > maxEtcd {
		v.add(path, fmt.Sprintf("%d %s, at most %d are sensible", n, what, maxEtcd), "3 or 5")
	} else if n%2 == 0 {
		v.add(path, fmt.Sprintf("%d %s, an even number survives no more losses than %d", n, what, n-1), fmt.Sprintf("%d or %d", n-1, n+1))
	}
}

func (v *validator) endpoint() {
	e := v.c.Endpoint
	switch e.Kind() {
	case EndpointLoadBalancer, EndpointMaster:
		if e.External != e.Kind() {
			v.add("endpoint.external", fmt.Sprintf("%q is not known", short(e.External)), "did you mean "+e.Kind()+"?")
		}
	case EndpointDNS:
		if n := e.DNSName(); !dnsName.MatchString(n) || len(n) > 253 {
			v.add("endpoint.external", fmt.Sprintf("%q is no DNS name", short(n)), "external: dns api.example.com")
		}
	default:
		v.oneOf("endpoint.external", e.External, []string{EndpointLoadBalancer, EndpointMaster, "dns NAME"}, nil)
	}
}

func (v *validator) rest() {
	c := v.c
	v.oneOf("cni", c.CNI, []string{"mesh", "none"}, []string{"flannel", "cilium"})
	for i, a := range c.Addons {
		at := fmt.Sprintf("addons[%d]", i)
		if slices.Contains([]string{"ccm", "csi", "metrics", "metrics-server"}, a) {
			v.add(at, fmt.Sprintf("addon %s is not available yet", a), "leave it out")
		} else {
			v.add(at, fmt.Sprintf("addon %q is not known", short(a)), "there are none yet: addons: []")
		}
	}
	v.url("mirrors.artifacts", c.Mirrors.Artifacts)
	v.url("mirrors.registry", c.Mirrors.Registry)
}
