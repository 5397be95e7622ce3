package remote

import (
	"context"
	"time"
)

// Node is a Kubernetes Node, reduced to what hk judges.
type Node struct {
	Name, UID, ProviderID, PodCIDR string
	KubeletVersion                 string
	Labels, Annotations            map[string]string
	Taints                         []Taint
	Ready                          bool
	// NotReadyReason and message of the Ready condition when it is not true.
	NotReadyReason, NotReadyMessage string
	Pressure                        []string // other conditions that are bad
	Addresses                       []string
}

// Taint is a taint of a Node.
type Taint struct {
	Key    string `json:"key"`
	Value  string `json:"value"`
	Effect string `json:"effect"`
}

// Pod is a pod, reduced to what draining a Node needs to know.
type Pod struct {
	Namespace, Name, UID string
	// Bound: it belongs to its Node and goes with it: of a DaemonSet, or run by
	// the kubelet itself.
	Bound bool
	// Finished: its containers have ended for good.
	Finished bool
	// Leaving: it was deleted and its containers are being stopped.
	Leaving bool
}

// Rollout is how far a Deployment or DaemonSet is.
type Rollout struct{ Desired, Updated, Available int }

// Kube is the Kubernetes API of one cluster, through one or several masters.
type Kube interface {
	// ReadyAt asks one master's own API server for /readyz; nil if it says ok.
	// Via is a host name of hk ("master-1"), or "" for any, or "external".
	ReadyAt(ctx context.Context, via string) error
	// ServedCA is SHA-256 (hex) of the root certificate the API server at via
	// presents its chain from.
	ServedCA(ctx context.Context, via string) (string, error)
	Version(ctx context.Context) (string, error)
	Nodes(ctx context.Context) ([]Node, error)
	Node(ctx context.Context, name string) (*Node, error) // ErrNotFound
	// PatchNode sets what is not nil; it never removes labels or taints that
	// others set. PodCIDR is set only if the Node has none.
	PatchNode(ctx context.Context, name string, p NodePatch) error
	DeleteNode(ctx context.Context, name string) error
	Cordon(ctx context.Context, name string, on bool) error
	// PodsOn lists the pods of one Node.
	PodsOn(ctx context.Context, node string) ([]Pod, error)
	// Evict asks for a pod to be stopped, or finds it gone. It returns before
	// that has happened. ErrBudget if a disruption budget does not allow it now.
	Evict(ctx context.Context, p Pod) error
	// Apply applies one manifest (YAML or JSON, one object) server-side as hk.
	Apply(ctx context.Context, manifest []byte) error
	// Get returns one object as JSON: apiVersion, kind (plural resource), ...
	Get(ctx context.Context, r ObjectRef) ([]byte, error) // ErrNotFound
	Delete(ctx context.Context, r ObjectRef) error
	Rollout(ctx context.Context, r ObjectRef) (*Rollout, error)
}

// ObjectRef names one object, or with an empty Name a list.
type ObjectRef struct {
	Group, Version, Resource, Namespace, Name string
}

// NodePatch is what hk sets on a Node.
type NodePatch struct {
	Labels       map[string]string
	RemoveLabels []string
	Taints       []Taint // hk's taints to be present
	RemoveTaints []Taint // hk's taints to be absent
	PodCIDR      string
	Annotations  map[string]string
}

// Member is an etcd member.
type Member struct {
	ID       uint64
	Name     string // "" until it first started
	PeerURLs []string
	Learner  bool
	Started  bool // it has published its client address: it ran at least once
}

// EtcdStatus is what one member says of itself.
type EtcdStatus struct {
	Member    uint64
	ClusterID uint64
	Leader    uint64
	Version   string
	DBSize    int64
	Quota     int64
	RaftIndex uint64
	Applied   uint64
	Learner   bool
	Alarms    []string
}

// Etcd is an etcd cluster.
type Etcd interface {
	// Members asks the cluster (a linearizable read).
	Members(ctx context.Context) ([]Member, error)
	// Status asks one member, by hk's host name.
	Status(ctx context.Context, host string) (*EtcdStatus, error)
	// Proof writes, reads back through quorum and removes one key of hk's own,
	// through the named member, or any with "".
	Proof(ctx context.Context, host string) error
	AddLearner(ctx context.Context, peerURL string) (uint64, error)
	Promote(ctx context.Context, id uint64) error
	Remove(ctx context.Context, id uint64) error
	// Snapshot streams a snapshot of one member into w.
	Snapshot(ctx context.Context, host string, w interface{ Write([]byte) (int, error) }) (int64, error)
	Alarms(ctx context.Context) ([]string, error)
	Defragment(ctx context.Context, host string) error
	Close() error
}

// ClientCert is a client's way in: PEM blocks.
type ClientCert struct{ CA, Cert, Key []byte }

// Endpoint is one server behind an API: hk's host name and the address to dial
// from the operator's computer through Via (nil: directly).
type Endpoint struct {
	Host string
	Addr string
	// ServerName is checked in the certificate.
	ServerName string
	Via        Host
}

// KubeFactory and EtcdFactory make clients; the world decides which.
type (
	KubeFactory func(c ClientCert, endpoints []Endpoint) (Kube, error)
	EtcdFactory func(c ClientCert, endpoints []Endpoint) (Etcd, error)
)

// World is where a build takes place.
type World struct {
	Name    string // hetzner, lab, sim
	Cloud   Cloud
	Hosts   Hosts
	NewKube KubeFactory
	NewEtcd EtcdFactory
	Clock   func() time.Time
}
