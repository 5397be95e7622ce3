package cluster

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"hk/remote"
	"hk/tasks"
	"hk/tasks/spec"
)

// Options say which cluster, in which world, for whom.
type Options struct {
	Name  string
	Store Store
	World remote.World
	// Spec and Lock are the config file and the lock file; nil: the applied ones
	// of the credential unit.
	Spec     *spec.Cluster
	Source   *spec.Source // of Spec, for line numbers; may be nil
	LockText []byte
	// SSHKey is the operator's public key, in authorized_keys form.
	SSHKey string

	Version string // of hk
	RunID   string
	Holder  string // who locks: user@host:pid
	// KeyCreated is told of each key that is made.
	KeyCreated func(KeyCreated)
	// Query is what Status asks each host besides what it needs itself; nil asks
	// no more.
	Query func(host string) remote.FactsQuery
	// Notice is told what a person should know and no answer holds.
	Notice func(string)
	Rand   io.Reader // nil: crypto/rand
	Timer  Timer     // zero: RealTimer
}

// Session is one command's dealings with one cluster. Its steps are Load
// (local, no network), Discover (reads everything, writes nothing), Decide
// (pure), Write (takes the lease, makes the first file) and Finish.
//
//	s, err := cluster.Load(o)
//	found, err := s.Discover(ctx, cluster.Look{Query: query})
//	d := s.Decide(ask)                // d.Err() refuses or asks
//	w, err := s.Write(ctx, ask, look) // only if something is to run; go on with w.Ctx
//	... run the tasks with s.Env() ...
//	err = s.Finish(ctx, cluster.Outcome{...})
//	defer s.Close()
type Session struct {
	o     Options
	g     *guard
	cloud *guardedCloud
	hosts *guardedHosts

	mu      sync.Mutex
	unit    *Unit
	applied *spec.Cluster // of the unit; nil if there is none
	want    *spec.Cluster // the config wanted; nil if there is none
	wanted  []spec.Host   // what it asks for, nothing allocated
	found   *Found
	look    Look
	lease   *Lease
	api     time.Time     // the cloud's time ...
	apiBoot time.Duration // ... at this boot time
	opened  map[string]openHost

	cmu     sync.Mutex // guards the clients
	kube    remote.Kube
	kubeKey string // what it was made of
	etcd    remote.Etcd
	etcdKey string
}

type openHost struct {
	c remote.Contact
	h remote.Host
}

// Load opens what is known locally. It makes no connection and writes nothing.
// Errors of the store are Refusals with exit 10.
func Load(o Options) (*Session, error) {
	if o.Timer.Boot == nil {
		o.Timer = RealTimer()
	}
	if o.Rand == nil {
		o.Rand = rand.Reader
	}
	if o.World.Clock == nil {
		return nil, errors.New("bug: a world without a clock")
	}
	s := &Session{o: o, opened: map[string]openHost{}}
	s.g = &guard{check: s.mayWrite, alive: s.mayProbe}
	s.cloud = &guardedCloud{Cloud: o.World.Cloud, g: s.g}
	s.hosts = &guardedHosts{Hosts: o.World.Hosts, g: s.g}
	u, err := OpenUnit(o.Store, o.Name, s.unitOptions())
	if err != nil && !errors.Is(err, remote.ErrNotFound) {
		return nil, err
	}
	return s, s.setUnit(u)
}

func (s *Session) unitOptions() UnitOptions {
	return UnitOptions{Version: s.o.Version, Now: s.o.World.Clock, Created: s.o.KeyCreated, Rand: s.o.Rand}
}

// setUnit takes a unit, which may be nil, and works out the wanted config: the
// file's, else that of an open intent, else the applied one.
func (s *Session) setUnit(u *Unit) error {
	var applied *spec.Cluster
	want := s.o.Spec
	if u != nil {
		read := func(text []byte) (*spec.Cluster, error) {
			if len(text) == 0 {
				return nil, nil
			}
			c, err := ParseApplied(text)
			if err != nil {
				return nil, foreign(u.Place(), err.Error())
			}
			return c, nil
		}
		text, err := u.File(fileApplied)
		if err == nil {
			if applied, err = read(text); err != nil {
				return err
			}
		}
		if in := u.Manifest().Intent; in != nil && want == nil {
			if want, err = read([]byte(in.Config)); err != nil {
				return err
			}
		}
		if want == nil {
			want = applied
		}
	}
	var hosts []spec.Host
	if want != nil {
		hosts = spec.Expand(want, spec.Allocate(nil, spec.Names(want))) // indices to be replaced
	}
	s.mu.Lock()
	s.unit, s.applied, s.want, s.wanted = u, applied, want, hosts
	s.mu.Unlock()
	return nil
}

func (s *Session) notice(line string) {
	if s.o.Notice != nil {
		s.o.Notice(line)
	}
}

// Unit is the credential unit; nil before there is one.
func (s *Session) Unit() *Unit {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.unit
}

// UID is the cluster's identity; "" before there is one.
func (s *Session) UID() string {
	if u := s.Unit(); u != nil {
		return u.UID()
	}
	if f := s.Found(); f != nil {
		return f.UID
	}
	return ""
}

// Generation is the cluster's generation: records of another one count for
// nothing. 0 before there is a unit.
func (s *Session) Generation() uint64 {
	if u := s.Unit(); u != nil {
		return u.Manifest().Generation
	}
	return 0
}

// Applied is the config the cluster was last brought to; nil if there is none.
func (s *Session) Applied() *spec.Cluster {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.applied
}

// Spec is the config wanted: the file's, else that of an open intent, else the
// applied one. nil if there is none. It must not be changed.
func (s *Session) Spec() *spec.Cluster {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.want
}

// LockText is the text of the lock file: the one given, else the unit's copy.
func (s *Session) LockText() []byte {
	if s.o.LockText != nil {
		return s.o.LockText
	}
	if u := s.Unit(); u != nil {
		if b, err := u.File(fileLock); err == nil {
			return b
		}
	}
	return nil
}

// Wanted are the hosts the config asks for, without what is allocated.
func (s *Session) Wanted() []spec.Host {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.wanted
}

// Hosts are the wanted hosts with index, mesh address and pod network. Before
// the write step these are what it will allocate. A server that exists keeps
// its type and location, whatever the config says of new ones.
func (s *Session) Hosts() ([]spec.Host, error) {
	c := s.Spec()
	if c == nil {
		return nil, nil
	}
	alloc, err := s.allocate(c)
	if err != nil {
		return nil, err
	}
	hosts, err := layout(c, alloc)
	if err != nil {
		return nil, err
	}
	if u := s.Unit(); u != nil {
		for i := range hosts {
			if r, ok := u.Host(hosts[i].Name); ok && r.ServerID != 0 && r.Type != "" {
				hosts[i].Type, hosts[i].Location = r.Type, r.Location
			}
		}
	}
	return hosts, nil
}

func (s *Session) allocate(c *spec.Cluster) (map[string]int, error) {
	var have map[string]int
	var servers []remote.Server
	if u := s.Unit(); u != nil {
		have = u.Alloc()
		// Servers of ours count only beside a unit: without one nothing may be
		// made for them anyway.
		if f := s.Found(); f != nil && f.Ours != nil {
			servers = f.Ours.Servers
		}
	}
	return allocate(spec.Names(c), have, servers)
}

// Found is the last look; nil before the first.
func (s *Session) Found() *Found {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.found
}

// Discover looks at cloud and hosts. It changes nothing anywhere.
func (s *Session) Discover(ctx context.Context, look Look) (*Found, error) {
	f, err := s.discover(ctx, look, nil)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	s.found, s.look = f, look
	s.mu.Unlock()
	s.g.saw(f.Inventory)
	return f, nil
}

// Established reports whether the cluster has ever been up. It is asked anew
// for each task: a build may set the mark itself.
func (s *Session) Established() bool {
	f := s.Found()
	if f != nil && f.Established {
		return true
	}
	u := s.Unit()
	return u != nil && u.Manifest().Born != nil
}

// EtcdBorn reports whether an etcd of the cluster has ever lived.
func (s *Session) EtcdBorn() bool {
	f := s.Found()
	if f != nil && f.EtcdBorn {
		return true
	}
	u := s.Unit()
	return u != nil && (u.Manifest().EtcdBorn != nil || u.Manifest().Born != nil)
}

// Decide says what may be done about what was found.
func (s *Session) Decide(ask Ask) Decision { return Decide(s.Situation(ask)) }

// open returns a host by its record. The connection is kept as long as the
// record says the same.
func (s *Session) open(r tasks.HostRecord) remote.Host {
	c := s.contact(r)
	s.mu.Lock()
	defer s.mu.Unlock()
	if o, ok := s.opened[r.Host]; ok && o.c == c {
		return o.h
	}
	h := s.hosts.Open(c)
	s.opened[r.Host] = openHost{c, h}
	return h
}

func (s *Session) contact(r tasks.HostRecord) remote.Contact {
	c := remote.Contact{Host: r.Host, Addr: r.Addr, HostKey: r.HostKey, Throwaway: r.Throwaway, Seen: r.Seen}
	if sp := s.Spec(); sp != nil {
		c.Port, c.User = sp.SSH.Port, sp.SSH.User
	}
	return c
}

// HostOf is a host that was contacted before; an error wrapping
// remote.ErrNotFound for one that was not.
func (s *Session) HostOf(name string) (remote.Host, error) {
	u := s.Unit()
	if u == nil {
		return nil, fmt.Errorf("host %s: there is no credential unit: %w", name, remote.ErrNotFound)
	}
	r, ok := u.Host(name)
	if !ok || r.Addr == "" || !r.Seen {
		return nil, fmt.Errorf("host %s was not contacted yet: %w", name, remote.ErrNotFound)
	}
	return s.open(r), nil
}

// Env is what tasks reach the world with; the per-task fields and Sets are the
// caller's.
func (s *Session) Env() tasks.Env {
	e := tasks.Env{
		Cluster: s.o.Name, UID: s.UID(), Version: s.o.Version,
		Cloud: s.cloud, Hosts: s.hosts, HostOf: s.HostOf, Kube: s.Kube, Etcd: s.Etcd,
		Found: s.g.found, Now: s.o.World.Clock, Established: s.Established(), EtcdBorn: s.EtcdBorn(),
	}
	if u := s.Unit(); u != nil {
		e.Vault = u
	}
	return e
}

func (s *Session) setAnchor(api time.Time, boot time.Duration) {
	s.mu.Lock()
	s.api, s.apiBoot = api, boot
	s.mu.Unlock()
}

// mayWrite is nil while a lease is held that still runs.
func (s *Session) mayWrite() error {
	s.mu.Lock()
	l := s.lease
	s.mu.Unlock()
	if l == nil {
		return errors.New("bug: a write without a lease")
	}
	return l.Check()
}

func (s *Session) mayProbe() error {
	s.mu.Lock()
	l := s.lease
	s.mu.Unlock()
	if l == nil {
		return nil
	}
	return l.Check()
}

// LeaseGeneration is the held lease's generation, 0 without one; what the SSH
// pool's Generation wants.
func (s *Session) LeaseGeneration() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lease == nil {
		return 0
	}
	return s.lease.Generation()
}

func (s *Session) nonce() (string, error) {
	b := make([]byte, 10)
	if _, err := io.ReadFull(s.o.Rand, b); err != nil {
		return "", fmt.Errorf("drawing a lock's nonce: %w", err)
	}
	return hex.EncodeToString(b), nil
}

// Close releases the lease, if one is held, and closes what was opened. The
// hosts themselves belong to the world.
func (s *Session) Close() error {
	s.cmu.Lock()
	etcd := s.etcd
	s.etcd, s.kube = nil, nil
	s.cmu.Unlock()
	var err error
	if etcd != nil {
		err = etcd.Close()
	}
	return errors.Join(err, s.giveBack((*Lease).Release))
}
