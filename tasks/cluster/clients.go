package cluster

import (
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	"hk/remote"
	"hk/tasks/pki"
	"hk/tasks/spec"
)

// Ports of the control plane on its hosts.
const (
	apiPort  = 6443
	etcdPort = 2379
)

// clientLife is how long a client certificate of hk's own is good for: longer
// than any build, and never written down.
const clientLife = 24 * time.Hour

// Kube is the cluster's API through its masters, over SSH. The client is made
// once and made again when there are other masters; it makes no request.
func (s *Session) Kube() (remote.Kube, error) {
	u := s.Unit()
	if u == nil {
		return nil, fmt.Errorf("the Kubernetes API: there is no credential unit: %w", remote.ErrNotFound)
	}
	eps, key, err := s.endpoints(spec.Master, func(*spec.Host) (string, string) {
		return net.JoinHostPort("127.0.0.1", strconv.Itoa(apiPort)), "127.0.0.1"
	})
	if err != nil {
		return nil, err
	}
	if addr, name := s.external(); addr != "" {
		eps = append(eps, remote.Endpoint{Host: External, Addr: addr, ServerName: name})
		key += addr
	}
	s.cmu.Lock()
	defer s.cmu.Unlock()
	if s.kube != nil && s.kubeKey == key {
		return s.kube, nil
	}
	// hk signs a client certificate for itself: it works before any kubeconfig
	// exists, does not end with one, and is on no disk.
	cert, err := s.client(KubernetesCA, pki.Leaf{CN: "hk", Orgs: []string{"system:masters"}, Client: true, Life: clientLife})
	if err != nil {
		return nil, err
	}
	k, err := s.o.World.NewKube(cert, eps)
	if err != nil {
		return nil, err
	}
	s.kube, s.kubeKey = &guardedKube{k, s.g}, key
	return s.kube, nil
}

// External is the name of the endpoint that people use.
const External = "external"

// external is the API's address for people, and the name in its certificate; ""
// while it is not known.
func (s *Session) external() (addr, name string) {
	c, u := s.Spec(), s.Unit()
	if c == nil || u == nil {
		return "", ""
	}
	switch c.Endpoint.Kind() {
	case spec.EndpointDNS:
		name = c.Endpoint.DNSName()
	case spec.EndpointLoadBalancer:
		inv := s.g.found()
		for i := 0; inv != nil && i < len(inv.LoadBalancers); i++ {
			if lb := &inv.LoadBalancers[i]; lb.Labels[remote.LabelUID] == u.UID() && lb.Name == c.Name {
				name = lb.IPv4
			}
		}
	case spec.EndpointMaster:
		if m := s.masters(); len(m) > 0 {
			name = m[0].Addr
		}
	}
	if name == "" {
		return "", ""
	}
	return net.JoinHostPort(name, strconv.Itoa(apiPort)), name
}

// Etcd is the cluster's etcd through its members' hosts, over SSH.
func (s *Session) Etcd() (remote.Etcd, error) {
	u := s.Unit()
	if u == nil {
		return nil, fmt.Errorf("etcd: there is no credential unit: %w", remote.ErrNotFound)
	}
	eps, key, err := s.endpoints(spec.Etcd, func(h *spec.Host) (string, string) {
		return net.JoinHostPort(h.MeshIP, strconv.Itoa(etcdPort)), h.MeshIP
	})
	if err != nil {
		return nil, err
	}
	s.cmu.Lock()
	defer s.cmu.Unlock()
	if s.etcd != nil && s.etcdKey == key {
		return s.etcd, nil
	}
	cert, err := s.client(EtcdCA, pki.Leaf{CN: "hk", Client: true, Life: clientLife})
	if err != nil {
		return nil, err
	}
	e, err := s.o.World.NewEtcd(cert, eps)
	if err != nil {
		return nil, err
	}
	if s.etcd != nil {
		if err := s.etcd.Close(); err != nil {
			s.notice("closing the old etcd client: " + err.Error())
		}
	}
	s.etcd, s.etcdKey = &guardedEtcd{e, s.g}, key
	return s.etcd, nil
}

// client signs a certificate for hk itself with an authority of the unit.
func (s *Session) client(authority string, l pki.Leaf) (remote.ClientCert, error) {
	a, err := s.Unit().Authority(authority)
	if err != nil {
		return remote.ClientCert{}, err
	}
	p, err := a.Issue(l, s.o.World.Clock())
	if err != nil {
		return remote.ClientCert{}, err
	}
	return remote.ClientCert{CA: a.CertPEM, Cert: p.CertPEM, Key: p.KeyPEM}, nil
}

// endpoints are the hosts of a role that were contacted, and a text that
// changes when they do.
func (s *Session) endpoints(role string, at func(*spec.Host) (addr, name string)) ([]remote.Endpoint, string, error) {
	hosts, err := s.Hosts()
	if err != nil {
		return nil, "", err
	}
	if role == spec.Etcd {
		// A member that is to be removed has a vote until it was, so it can be
		// asked. An API server that goes answers nothing the others do not.
		for _, l := range s.Leaving() {
			hosts = append(hosts, l.Host)
		}
	}
	var out []remote.Endpoint
	var key strings.Builder
	for i := range hosts {
		h := &hosts[i]
		if !h.Has(role) {
			continue
		}
		via, err := s.HostOf(h.Name)
		if errors.Is(err, remote.ErrNotFound) {
			continue
		}
		if err != nil {
			return nil, "", err
		}
		addr, name := at(h)
		out = append(out, remote.Endpoint{Host: h.Name, Addr: addr, ServerName: name, Via: unguarded(via)})
		r, _ := s.Unit().Host(h.Name)
		fmt.Fprintf(&key, "%s %s %s %d\n", h.Name, addr, r.Addr, r.ServerID)
	}
	if len(out) == 0 {
		return nil, "", fmt.Errorf("no host with role %s was contacted yet: %w", role, remote.ErrNotFound)
	}
	return out, key.String(), nil
}
