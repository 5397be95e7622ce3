package cluster

import (
	"context"
	"crypto/x509"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"hk/remote"
	"hk/tasks/pki"
	"hk/tasks/spec"
)

// warnBefore is how long before its end a certificate is pointed out.
const warnBefore = 60 * 24 * time.Hour

// Certificate is a certificate and its end.
type Certificate struct {
	Name    string     `json:"name"` // file of the unit, or HOST:path
	Expires *time.Time `json:"expires"`
	// Expiring: it ends soon enough to be pointed out.
	Expiring bool    `json:"expiring"`
	Subject  *string `json:"subject"`
	Problem  *string `json:"problem"` // why it could not be read
}

// fillCertificates reads what the unit holds; it takes no time.
func (s *Session) fillCertificates(st *Status) {
	u := s.Unit()
	if u == nil {
		return
	}
	now := s.o.World.Clock()
	for _, c := range u.certificates(now) {
		st.Certificates = append(st.Certificates, c)
		if c.Expiring {
			st.Warnings = append(st.Warnings, fmt.Sprintf("certificate %s ends at %s", c.Name, c.Expires.Format(time.RFC3339)))
		}
	}
}

// certificates of the unit, by file name.
func (u *Unit) certificates(now time.Time) []Certificate {
	st := u.read()
	var out []Certificate
	for _, name := range slices.Sorted(maps.Keys(st.files)) {
		if c := certOf(st.files[name]); c != nil {
			out = append(out, certificate(name, c.NotBefore, c.NotAfter, c.Subject.String(), now, false))
		}
	}
	return out
}

// certificate judges an end. One that renews itself is pointed out only in the
// last tenth of its life.
func certificate(name string, from, end time.Time, subject string, now time.Time, renews bool) Certificate {
	limit := warnBefore
	if life := end.Sub(from); renews || life < warnBefore {
		limit = life / 10
	}
	end = end.UTC()
	return Certificate{Name: name, Expires: &end, Subject: &subject, Expiring: now.After(end.Add(-limit))}
}

// hostCertificate is where a host keeps a certificate.
type hostCertificate struct {
	path   string
	renews bool // kubelet renews it by itself
}

var (
	masterCertificates = []hostCertificate{
		{"/etc/kubernetes/pki/ca.crt", false},
		{"/etc/kubernetes/pki/apiserver.crt", false},
		{"/etc/kubernetes/pki/apiserver-kubelet-client.crt", false},
		{"/etc/kubernetes/pki/apiserver-etcd-client.crt", false},
		{"/etc/kubernetes/pki/etcd/ca.crt", false},
		{"/etc/kubernetes/pki/front-proxy-ca.crt", false},
		{"/etc/kubernetes/pki/front-proxy-client.crt", false},
		{"/etc/kubernetes/admin.conf", false},
		{"/etc/kubernetes/controller-manager.conf", false},
		{"/etc/kubernetes/scheduler.conf", false},
	}
	etcdCertificates = []hostCertificate{
		{"/etc/etcd/pki/ca.crt", false},
		{"/etc/etcd/pki/peer.crt", false},
		{"/etc/etcd/pki/server.crt", false},
	}
	nodeCertificates = []hostCertificate{
		{"/var/lib/kubelet/pki/serving.crt", false},
		{"/var/lib/kubelet/pki/kubelet-client-current.pem", true},
	}
)

// hostAuthorities are the authorities among them, and what the unit calls them.
var hostAuthorities = map[string]string{
	"/etc/kubernetes/pki/ca.crt":             KubernetesCA,
	"/etc/kubernetes/pki/etcd/ca.crt":        EtcdCA,
	"/etc/kubernetes/pki/front-proxy-ca.crt": FrontProxyCA,
	"/etc/etcd/pki/ca.crt":                   EtcdCA,
}

// CertReport is the answer of `hk certs check`.
type CertReport struct {
	V            int           `json:"v"`
	Cluster      string        `json:"cluster"`
	Certificates []Certificate `json:"certificates"`
	Warnings     []string      `json:"warnings"`
}

// Expiring counts the certificates that are pointed out.
func (r *CertReport) Expiring() int {
	n := 0
	for i := range r.Certificates {
		if r.Certificates[i].Expiring {
			n++
		}
	}
	return n
}

// First is the certificate that ends first; nil without any that could be read.
func (r *CertReport) First() *Certificate {
	var first *Certificate
	for i := range r.Certificates {
		if c := &r.Certificates[i]; c.Expires != nil && (first == nil || c.Expires.Before(*first.Expires)) {
			first = c
		}
	}
	return first
}

// CheckCerts reads every certificate of the unit and of the hosts that answer,
// and compares the authority on each master, in the unit and as served.
func (s *Session) CheckCerts(ctx context.Context) (*CertReport, error) {
	u := s.Unit()
	if u == nil {
		return nil, s.noUnit()
	}
	now := s.o.World.Clock()
	r := &CertReport{V: 1, Cluster: s.o.Name, Certificates: u.certificates(now), Warnings: []string{}}
	var mu sync.Mutex
	var wg sync.WaitGroup
	for _, h := range s.Wanted() {
		host, err := s.HostOf(h.Name)
		if err != nil {
			r.Warnings = append(r.Warnings, err.Error())
			continue
		}
		wg.Go(func() {
			certs, warnings := hostCertificates(ctx, host, &h, now, u)
			mu.Lock()
			r.Certificates, r.Warnings = append(r.Certificates, certs...), append(r.Warnings, warnings...)
			mu.Unlock()
		})
	}
	wg.Go(func() {
		if w := s.servedCA(ctx); len(w) > 0 {
			mu.Lock()
			r.Warnings = append(r.Warnings, w...)
			mu.Unlock()
		}
	})
	wg.Wait()
	unit := len(u.certificates(now))
	slices.SortFunc(r.Certificates[unit:], func(a, b Certificate) int { return strings.Compare(a.Name, b.Name) })
	for i := range r.Certificates {
		if c := &r.Certificates[i]; c.Expiring {
			r.Warnings = append(r.Warnings, fmt.Sprintf("%s ends at %s", c.Name, c.Expires.Format(time.RFC3339)))
		}
	}
	slices.Sort(r.Warnings)
	return r, nil
}

func (s *Session) noUnit() error {
	return &Refusal{
		Exit: ExitCredentials, World: "state",
		Message: "there are no credentials of " + s.o.Name,
		Details: []string{"tried: " + s.o.Store.Place(s.o.Name)},
		Hints:   []string{"set HK_HOME to the directory that has them"},
	}
}

// hostTime bounds one host's answers in certs check.
const hostTime = 10 * time.Second

func hostCertificates(ctx context.Context, host remote.Host, h *spec.Host, now time.Time, u *Unit) ([]Certificate, []string) {
	ctx, cancel := context.WithTimeout(ctx, hostTime)
	defer cancel()
	var list []hostCertificate
	if h.Has(spec.Master) {
		list = append(list, masterCertificates...)
	}
	if h.Has(spec.Etcd) {
		list = append(list, etcdCertificates...)
	}
	if h.Role != spec.Etcd {
		list = append(list, nodeCertificates...)
	}
	var out []Certificate
	var warnings []string
	for _, l := range list {
		name := h.Name + ":" + l.path
		text, err := host.Get(ctx, l.path)
		if isNotFound(err) {
			continue // not made yet, or not on this host
		}
		if err != nil {
			// One line for a host that cannot be asked.
			return out, append(warnings, fmt.Sprintf("%s: its certificates could not be read: %v", h.Name, err))
		}
		c := certOf(text)
		if c == nil {
			out = append(out, Certificate{Name: name, Problem: new("there is no certificate in it")})
			continue
		}
		out = append(out, certificate(name, c.NotBefore, c.NotAfter, c.Subject.String(), now, l.renews))
		if w := otherCA(name, l.path, c, u); w != "" {
			warnings = append(warnings, w)
		}
	}
	return out, warnings
}

// servedCA compares what each master's API server presents with the unit.
func (s *Session) servedCA(ctx context.Context) []string {
	k, err := s.Kube()
	if err != nil {
		if isNotFound(err) {
			return nil
		}
		return []string{"the Kubernetes API: " + err.Error()}
	}
	ca, err := s.Unit().Authority(KubernetesCA)
	if err != nil {
		return []string{err.Error()}
	}
	ctx, cancel := context.WithTimeout(ctx, hostTime)
	defer cancel()
	want := pki.Fingerprint(ca.Cert)
	var out []string
	for _, m := range s.masters() {
		got, err := k.ServedCA(ctx, m.Host)
		switch {
		case err != nil:
			out = append(out, fmt.Sprintf("%s: what its API server presents could not be read: %v", m.Host, err))
		case got != want:
			out = append(out, fmt.Sprintf("%s: its API server presents authority %s, the unit has %s", m.Host, short(got), short(want)))
		}
	}
	return out
}

func short(s string) string { return s[:min(len(s), 16)] }

// otherCA says that a host keeps another authority than the unit; "" if it is
// the same, or no authority.
func otherCA(name, path string, c *x509.Certificate, u *Unit) string {
	authority, ok := hostAuthorities[path]
	if !ok {
		return ""
	}
	a, err := u.Authority(authority)
	switch {
	case err != nil:
		return fmt.Sprintf("%s cannot be compared: %v", name, err)
	case !a.Cert.Equal(c):
		return fmt.Sprintf("%s is another authority (%s) than the unit's %s (%s)", name, short(pki.Fingerprint(c)), authority, short(a.Fingerprint()))
	}
	return ""
}
