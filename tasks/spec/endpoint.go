package spec

import "strings"

// Kinds of external endpoints.
const (
	EndpointLoadBalancer = "load-balancer"
	EndpointMaster       = "master"
	EndpointDNS          = "dns"
)

// Kind is load-balancer, master or dns.
func (e Endpoint) Kind() string {
	kind, _, _ := strings.Cut(e.External, " ")
	return kind
}

// DNSName is the NAME of "dns NAME", "" for the other kinds.
func (e Endpoint) DNSName() string {
	if e.Kind() != EndpointDNS {
		return ""
	}
	_, name, _ := strings.Cut(e.External, " ")
	return strings.TrimSpace(name)
}
