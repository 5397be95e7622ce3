package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"

	ucli "github.com/urfave/cli/v2"

	"hk/cache"
	"hk/cache/fp"
	"hk/graph"
	"hk/graph/run"
	"hk/remote"
	"hk/tasks"
	"hk/tasks/cluster"
	"hk/tasks/registry"
	"hk/tasks/spec"
)

// site is one cluster, in its world, with what is remembered of it: what every
// command about a cluster opens first. Opening it makes no request and writes
// nothing.
type site struct {
	a      *app
	name   string
	home   string
	runID  string
	config string        // the config file; "" when the applied config is used
	src    *spec.Source  // of the config file
	cfg    *spec.Cluster // wanted
	lock   *spec.LockFile
	fresh  bool // the lock was resolved by this command and is not on disk yet
	world  *world
	units  cluster.Store
	sess   *cluster.Session
	store  *cache.Bolt
	recs   cache.Cluster // in the store
	reader run.Recorder  // what plans and builds read: recs, or restored records
	tell   func(string)  // lines for people
	so     siteOptions
	query  func(host string) remote.FactsQuery // what records observed; nil asks for none

	kinds []tasks.Kind
	hosts []spec.Host
	// leaving are the hosts the graph removes; of commands that may, see
	// siteOptions.
	leaving []tasks.Leaving
	graph   *graph.Graph

	sets    map[fp.OutputDigest][]byte // restored and not kept yet
	told    bool                       // that records were restored
	wholeMu sync.Mutex
	whole   map[string]*fp.Record
}

// siteOptions say how a command opens its cluster.
type siteOptions struct {
	// file: the config file is needed (build, plan). prefer: it is used if it is
	// there (explain, graph). Otherwise the applied config is used, and the file
	// only where nothing is known of the cluster.
	file, prefer bool
	// write: the command may write to the state directory. offline: it asks
	// nothing of the world.
	write, offline bool
	// removals: the graph holds the removal of hosts that are not wanted.
	removals bool
	// key is told of each key made.
	key   func(cluster.KeyCreated)
	tell  func(string)
	runID string // "": a new one
}

// openSite opens a cluster by name.
func (a *app) openSite(c *ucli.Context, name string, o siteOptions) (*site, error) {
	s := &site{a: a, name: name, runID: o.runID, tell: o.tell, so: o}
	if s.runID == "" {
		s.runID = newRunID(a.now())
	}
	if s.tell == nil {
		s.tell = func(l string) { fmt.Fprintln(a.Err, l) }
	}
	var err error
	if s.home, err = a.home(); err != nil {
		return nil, err
	}
	s.units = a.unitStore(c, s.home, name)
	if err := s.chooseConfig(c, o); err != nil {
		return nil, err
	}
	// A state directory that cannot be read is told before a world is opened.
	if _, err := s.appliedConfig(); err != nil {
		return nil, err
	}
	var log func(string)
	if c.Bool("verbose") {
		log = s.tell
	}
	s.world, err = a.openWorld(worldOptions{cfg: s.cfg, lease: s.lease, log: log, quiet: !o.write, offline: o.offline})
	if err != nil {
		return nil, err
	}
	s.store = cache.Open(filepath.Join(s.home, "records.db"), cache.Options{
		ReadOnly: !o.write, Now: a.now, Notice: func(n cache.Notice) { s.tell(n.String()) },
	})
	if s.config != "" {
		if err := s.readLock(); err != nil {
			return nil, errors.Join(err, s.close())
		}
	}
	if err := s.loadSession(); err != nil {
		return nil, errors.Join(err, s.close())
	}
	return s, nil
}

// unitStore is where a cluster's credential unit is: in the directory of
// --token-dir, else of HK_TOKEN_DIR, if it is there, else in the state
// directory.
func (a *app) unitStore(c *ucli.Context, home, name string) cluster.Store {
	for _, dir := range []string{c.String("token-dir"), a.getenv("HK_TOKEN_DIR")} {
		if dir == "" || name == "" {
			continue
		}
		if _, err := os.Stat(filepath.Join(dir, name, "manifest.json")); err == nil {
			return cluster.NewDirAt(dir, filepath.Join(home, "destroyed"))
		}
	}
	return cluster.NewDir(home)
}

// chooseConfig reads the config file, or the applied config of the unit.
func (s *site) chooseConfig(c *ucli.Context, o siteOptions) error {
	file := c.String("config")
	if file == "" && o.prefer {
		if _, err := os.Stat(s.name + ".yaml"); err == nil {
			file = s.name + ".yaml"
		}
	}
	if file == "" && !o.file {
		applied, err := s.appliedConfig()
		if err != nil {
			return err
		}
		if applied != nil {
			s.cfg = applied
			return nil
		}
	}
	if file == "" {
		file = s.name + ".yaml"
	}
	cfg, src, err := spec.Load(file)
	if errors.Is(err, fs.ErrNotExist) {
		return s.noConfig(file, o)
	}
	if err != nil {
		return &exitError{code: ExitConfig, class: classConfig, err: err}
	}
	if cfg.Name != s.name {
		return &exitError{
			code: ExitConfig, class: classConfig, err: fmt.Errorf("%s is the config of cluster %q, not of %q", file, cfg.Name, s.name),
			hint: "name the file with --config FILE",
		}
	}
	s.config, s.src, s.cfg = file, src, cfg
	return nil
}

func (s *site) noConfig(file string, o siteOptions) error {
	applied, err := s.appliedConfig()
	if err != nil {
		return err
	}
	hint := fmt.Sprintf("hk init %s writes one", s.name)
	switch {
	case o.file && applied != nil:
		hint = fmt.Sprintf("hk config show %s >%s writes the applied config of the cluster back", s.name, file)
	case !o.file:
		return &exitError{
			code: ExitConfig, class: classConfig, err: fmt.Errorf("cluster %q is not known here: no credentials in %s and no config %s", s.name, s.units.Place(s.name), file),
			hint: "name its config with --config FILE, or point HK_HOME at the state directory that knows it",
		}
	}
	return &exitError{code: ExitConfig, class: classConfig, err: fmt.Errorf("there is no config file %s", file), hint: hint}
}

// appliedConfig is the config the cluster was last brought to; nil if nothing
// is known of it here.
func (s *site) appliedConfig() (*spec.Cluster, error) {
	u, err := cluster.OpenUnit(s.units, s.name, cluster.UnitOptions{Version: version, Now: s.a.now})
	if errors.Is(err, remote.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	text, err := u.File("applied.yaml")
	if errors.Is(err, remote.ErrNotFound) || err == nil && len(text) == 0 {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return cluster.ParseApplied(text)
}

func (s *site) lease() uint64 {
	if s.sess == nil {
		return 0
	}
	return s.sess.LeaseGeneration()
}

// loadSession opens the cluster's session; again after the lock file was
// resolved.
func (s *site) loadSession() error {
	so := cluster.Options{
		Name: s.name, Store: s.units, World: s.world.World, SSHKey: strings.TrimSpace(s.world.pubKey),
		Version: version, RunID: s.runID, Holder: s.a.holder(), KeyCreated: s.so.key, Notice: s.tell,
		Query: func(host string) remote.FactsQuery {
			if s.query == nil {
				return remote.FactsQuery{}
			}
			return s.query(host)
		},
	}
	if s.config != "" {
		so.Spec, so.Source = s.cfg, s.src
	}
	if s.lock != nil {
		text, err := spec.MarshalLock(s.lock)
		if err != nil {
			return err
		}
		so.LockText = text
	}
	sess, err := cluster.Load(so)
	if err != nil {
		return err
	}
	s.sess = sess
	return nil
}

// holder is who holds locks.
func (a *app) holder() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	user := a.getenv("USER")
	if user == "" {
		user = fmt.Sprintf("uid%d", os.Getuid())
	}
	return fmt.Sprintf("%s@%s:%d", user, host, os.Getpid())
}

func (s *site) close() error {
	var errs []error
	if s.sess != nil {
		errs = append(errs, s.sess.Close())
	}
	if s.world != nil {
		errs = append(errs, s.world.close())
	}
	if s.store != nil {
		errs = append(errs, s.store.Close())
	}
	return errors.Join(errs...)
}

// expand makes the task graph of the config and opens its records.
func (s *site) expand() error {
	s.kinds = registry.For(s.sess.Spec())
	kg, err := kindGraph(s.kinds)
	if err != nil {
		return err
	}
	if s.hosts, err = s.sess.Hosts(); err != nil {
		return err
	}
	hosts := make([]graph.Host, len(s.hosts))
	for i := range s.hosts {
		hosts[i] = graph.Host{Name: s.hosts[i].Name, Roles: s.hosts[i].Roles}
	}
	if s.so.removals {
		s.leaving = s.sess.Leaving()
	}
	for i := range s.leaving {
		hosts = append(hosts, graph.Host{Name: s.leaving[i].Name, Roles: s.leaving[i].Roles, Leaving: true})
	}
	if s.graph, err = kg.Expand(hosts); err != nil {
		return err
	}
	s.openRecords()
	return nil
}

func kindGraph(kinds []tasks.Kind) (*graph.KindGraph, error) {
	gk := make([]graph.Kind, len(kinds))
	for i := range kinds {
		gk[i] = kinds[i].Kind
	}
	return graph.New(gk)
}

// openRecords opens the records of the cluster: by its UID, or by its name
// while it has none.
func (s *site) openRecords() {
	id := s.sess.UID()
	if id == "" {
		id = s.name
	}
	s.recs = s.store.Cluster(id)
	s.reader = s.recs
	s.wholeMu.Lock()
	s.whole = nil
	s.wholeMu.Unlock()
}

// recordsUsable reports whether the store's records belong to the cluster's
// present generation. Those of another count for nothing: somebody else built
// it meanwhile.
func (s *site) recordsUsable(ctx context.Context) (bool, error) {
	gen, err := s.recs.Generation(ctx)
	if err != nil {
		return false, err
	}
	return gen == s.sess.Generation(), nil
}

// records are the complete records of all tasks, read once.
func (s *site) records(ctx context.Context) (func(graph.Task) *fp.Record, error) {
	s.wholeMu.Lock()
	defer s.wholeMu.Unlock()
	if s.whole == nil {
		names := make([]string, s.graph.Len())
		for t := range names {
			names[t] = s.graph.Name(graph.Task(t))
		}
		recs, err := s.reader.Whole(ctx, names)
		if err != nil {
			return nil, err
		}
		s.whole = make(map[string]*fp.Record, len(recs))
		for i, r := range recs {
			if r != nil {
				s.whole[names[i]] = r
			}
		}
	}
	whole := s.whole
	return func(t graph.Task) *fp.Record { return whole[s.graph.Name(t)] }, nil
}

// forget drops what records returned, after a build wrote new ones.
func (s *site) forget() {
	s.wholeMu.Lock()
	s.whole = nil
	s.wholeMu.Unlock()
}

// effective is the config as tasks see it: where it names no mirrors, the
// world's own are used. They are left out of the applied config, because a
// lab's addresses are the lab's affair.
func (s *site) effective() *spec.Cluster {
	c := *s.sess.Spec()
	if c.Mirrors.Artifacts == "" {
		c.Mirrors.Artifacts = s.world.mirrors.Artifacts
	}
	if c.Mirrors.Registry == "" {
		c.Mirrors.Registry = s.world.mirrors.Registry
	}
	return &c
}

// bind ties the graph to the world as it was found; found may be nil.
func (s *site) bind(ctx context.Context, found *cluster.Found, full bool) (*tasks.Work, error) {
	recs, err := s.records(ctx)
	if err != nil {
		return nil, err
	}
	env := s.sess.Env()
	env.Sets = sets{ctx, s.recs, s.sets}
	b := tasks.Binding{
		Graph: s.graph, Kinds: s.kinds, Env: env, Full: full, Records: recs,
		View: tasks.View{
			Spec: s.effective(), UID: s.sess.UID(), Hosts: s.hosts, Leaving: s.leaving, Lock: s.lock,
			KeyID: func(name string) string {
				if u := s.sess.Unit(); u != nil {
					return u.KeyID(name)
				}
				return ""
			},
		},
		Established: s.sess.Established, EtcdBorn: s.sess.EtcdBorn,
	}
	if found != nil {
		b.Inventory, b.Facts, b.Unreachable = found.Inventory, found.Facts(), found.Unreachable()
	}
	return tasks.NewWork(b)
}

// sets keeps large values beside the records.
type sets struct {
	ctx      context.Context
	c        cache.Cluster
	restored map[fp.OutputDigest][]byte
}

// PutSet implements tasks.Sets.
func (s sets) PutSet(data []byte) (fp.OutputDigest, error) { return s.c.PutValue(s.ctx, data) }

// GetSet implements tasks.Sets.
func (s sets) GetSet(d fp.OutputDigest) ([]byte, error) {
	if b, ok := s.restored[d]; ok {
		return b, nil
	}
	b, err := s.c.Value(s.ctx, d)
	if err == nil && b == nil {
		return nil, fmt.Errorf("set %s: %w", d.Short(), remote.ErrNotFound)
	}
	return b, err
}

// resume forces what an earlier run was told to force and did not get to; every
// command that says what is stale asks the same.
func (s *site) resume(ctx context.Context, o *run.Options, in *cluster.Intent) {
	if in == nil || len(in.Tasks) == 0 {
		return
	}
	recs, err := s.records(ctx)
	if err != nil {
		return // the plan reads the same records and tells
	}
	named := s.graph.NewSet()
	for _, name := range in.Tasks {
		t, ok := s.graph.Lookup(name)
		if !ok || !o.Selection.Selected.Has(t) {
			continue
		}
		if r := recs(t); r == nil || r.Generation < in.Generation {
			named.Add(t)
		}
	}
	if named.Len() > 0 {
		o.Selection.Named, o.Force = named, true
	}
}
