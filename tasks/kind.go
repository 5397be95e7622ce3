package tasks

import (
	"context"
	"fmt"
	"reflect"
	"time"

	"hk/cache/fp"
	"hk/graph"
	"hk/remote"
	"hk/tasks/pki"
	"hk/tasks/spec"
)

// View is all that a kind's Inputs may see: desired state, allocation and the
// outputs of what it needs. It is pure: nothing in it reaches the world.
type View struct {
	Spec  *spec.Cluster
	UID   string
	Host  *spec.Host  // of the task; nil for cluster tasks
	Hosts []spec.Host // all desired hosts, masters, etcd, workers, in name order
	// Leaving are the hosts that are being removed. Kinds that stand on them see
	// theirs as Host too.
	Leaving []Leaving
	Lock    *spec.LockFile
	// KeyID is the ID of a key in the credential unit; "" if it does not exist.
	KeyID func(name string) string
	// Out is the output of a needed kind on the same host or on the cluster.
	Out func(kind string) fp.Output
	// OutOf is the output of a needed kind on another host (edges ToRole and
	// FromAll); false if there is none.
	OutOf func(kind, host string) (fp.Output, bool)
}

// Leaving is a host that exists and that the config does not ask for any more.
type Leaving struct {
	spec.Host
	ServerID int64  // 0: it has no server, or none that is known
	Addr     string // public; "" if it is not known
}

// Leaver is the leaving host that the task stands on.
func (v *View) Leaver() *Leaving {
	for i := range v.Leaving {
		if v.Leaving[i].Name == v.Host.Name {
			return &v.Leaving[i]
		}
	}
	panic("bug: " + v.Host.Name + " is not being removed")
}

// Masters are the hosts with role master.
func (v *View) Masters() []spec.Host { return v.With(spec.Master) }

// With are the hosts that carry a role.
func (v *View) With(role string) []spec.Host {
	var out []spec.Host
	for i := range v.Hosts {
		if v.Hosts[i].Has(role) {
			out = append(out, v.Hosts[i])
		}
	}
	return out
}

// Env is what Run and Verify reach the world with. It holds no config: what
// they need of it is in In, and so in the fingerprint.
type Env struct {
	Cluster, UID string
	Version      string // of hk, for labels; in no fingerprint
	Task         string // full name of the task
	Cloud        remote.Cloud
	Hosts        remote.Hosts
	Host         remote.Host                            // of the task; nil for cluster tasks
	HostOf       func(host string) (remote.Host, error) // any host with a known address
	Kube         func() (remote.Kube, error)            // through the masters, over SSH
	Etcd         func() (remote.Etcd, error)            // through the members, over SSH
	Vault        Vault                                  // the credential unit
	Sets         Sets                                   // values addressed by digest
	Found        func() *remote.Inventory               // as discovered, refreshed after creates
	Established  bool                                   // born mark seen: never bootstrap, never new keys
	EtcdBorn     bool                                   // an etcd of this cluster has lived
	VerifyOnly   bool                                   // check, make nothing
	Now          func() time.Time
	Log          func(line string)
	// Job runs argv on the task's host as the task's named unit.
	Job func(ctx context.Context, j remote.Job) (*remote.JobResult, error)
	// Note keeps something observed for drift detection beside the declared
	// files and units: key such as "cloud:firewall", value a short digest.
	Note func(key, value string)
	// Expires tells until when the result is good (certificate end minus the
	// renewal window); the earliest counts.
	Expires func(t time.Time)
}

// Vault is the credential unit: every secret and every fact that a lost
// computer would take along. Writes are atomic and durable when they return.
type Vault interface {
	// Authority returns a CA; an error wrapping remote.ErrNotFound if the unit
	// has none of that name.
	Authority(name string) (*pki.Authority, error)
	// CreateAuthority makes one, once; it refuses on an established cluster.
	CreateAuthority(name, commonName string) (*pki.Authority, error)
	Secret(name string) ([]byte, error)
	// CreateSecret stores what make returns, once; it refuses on an established
	// cluster.
	CreateSecret(name string, make func() ([]byte, error)) ([]byte, error)
	// Put stores or replaces a derived file (admin.conf, etcd-client.crt).
	Put(name string, data []byte) error
	KeyID(name string) string
	HMAC(data []byte) []byte
	Host(name string) (HostRecord, bool)
	SaveHost(r HostRecord) error
	DropHost(name string) error
}

// HostRecord is what the credential unit keeps of one host.
type HostRecord struct {
	Host     string `json:"host"`
	Index    int    `json:"index"`
	ServerID int64  `json:"server_id"` // 0: intent written, create not answered yet
	Addr     string `json:"addr"`
	// Type and Location are those the server was made with. Another type or
	// location in the config is for servers that are made later.
	Type         string `json:"type,omitempty"`
	Location     string `json:"location,omitempty"`
	Installation string `json:"installation"`
	HostKey      string `json:"host_key"` // public, authorized_keys form
	// HostKeyPEM is the final private host key; dropped once Seen.
	HostKeyPEM   string `json:"host_key_pem,omitempty"`
	Throwaway    string `json:"throwaway,omitempty"` // public half of the key in user data
	ThrowawayPEM string `json:"throwaway_pem,omitempty"`
	Seen         bool   `json:"seen"` // the final key was seen on the host
}

// Sets stores values that are too large for outputs, addressed by digest.
type Sets interface {
	PutSet(data []byte) (fp.OutputDigest, error)
	GetSet(d fp.OutputDigest) ([]byte, error)
}

// Kind is a graph kind with what it does. Made by Define only.
type Kind struct {
	graph.Kind
	inputs   func(*View) (any, error)
	declared func(any) remote.HostState
	watch    func(any, *World) map[string]string
	run      func(context.Context, any, *Env) error
	verify   func(context.Context, any, *Env) (fp.Output, error)
	when     func(*spec.Cluster) bool
}

// When reports whether the kind belongs to a cluster of this config at all. A
// kind that does not is left out of the graph with the edges towards it.
func (k *Kind) When(c *spec.Cluster) bool { return k.when == nil || k.when(c) }

// World is what was seen before a build: what Watch may compare with.
type World struct {
	Inventory *remote.Inventory
	Facts     *remote.Facts // of the task's host; nil for cluster tasks
	UID       string
}

// Def is the typed form of a kind: In is its input struct, every exported field
// of which carries a tag `part:"LABEL"` (config:…, versions:…, secret:…,
// alloc:…, out:…) and so is part of the fingerprint.
type Def[In any] struct {
	// When says for which configs the kind exists; nil means all.
	When func(c *spec.Cluster) bool
	// Inputs is pure.
	Inputs func(v *View) (In, error)
	// Declared lists the files, units, sysctls, modules the task owns on its
	// host; pure. Content of rendered files is part of the fingerprint.
	Declared func(in In) remote.HostState
	// Watch says what is observed besides files and units: key -> value as it
	// is now. A key must have the same meaning as the ones Run noted with
	// Env.Note; a difference is drift.
	Watch func(in In, w *World) map[string]string
	// Run brings it about. nil applies Declared.
	Run func(ctx context.Context, in In, e *Env) error
	// Verify proves it and returns the output. nil: the applied state is what
	// the host's facts say afterwards, output empty.
	Verify func(ctx context.Context, in In, e *Env) (fp.Output, error)
}

// Define makes a Kind. It panics on an input struct with a field that is not in
// the fingerprint: that is a programming error.
func Define[In any](k graph.Kind, d Def[In]) Kind {
	checkInput(k.ID(), reflect.TypeFor[In]())
	out := Kind{Kind: k, when: d.When}
	out.inputs = func(v *View) (any, error) { return d.Inputs(v) }
	if d.Declared != nil {
		out.declared = func(in any) remote.HostState { return d.Declared(in.(In)) }
	}
	if d.Watch != nil {
		out.watch = func(in any, w *World) map[string]string { return d.Watch(in.(In), w) }
	}
	if d.Run != nil {
		out.run = func(ctx context.Context, in any, e *Env) error { return d.Run(ctx, in.(In), e) }
	}
	if d.Verify != nil {
		out.verify = func(ctx context.Context, in any, e *Env) (fp.Output, error) { return d.Verify(ctx, in.(In), e) }
	}
	if out.run == nil && out.declared == nil && out.verify == nil {
		panic("bug: kind " + k.ID() + " does nothing")
	}
	return out
}

// DeclaredState is what the kind declares for an input of its own.
func (k *Kind) DeclaredState(in any) remote.HostState {
	if k.declared == nil {
		return remote.HostState{}
	}
	return k.declared(in)
}

// Transient marks an error as worth another attempt.
type Transient struct{ Err error }

func (t Transient) Error() string { return t.Err.Error() }

// Unwrap returns the cause.
func (t Transient) Unwrap() error { return t.Err }

// Transient is always true.
func (t Transient) Transient() bool { return true }

// Again wraps an error as transient.
func Again(format string, args ...any) error { return Transient{fmt.Errorf(format, args...)} }
