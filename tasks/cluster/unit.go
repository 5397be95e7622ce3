package cluster

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"hk/remote"
	"hk/tasks"
)

// Files of a unit whose names others rely on (DESIGN §7, Places).
const (
	fileHMAC       = "hmac.key"
	fileHosts      = "hosts.json"
	fileAlloc      = "alloc.json"
	fileLock       = "lock.yaml"
	fileApplied    = "applied.yaml"
	fileKnownHosts = "known_hosts"
	fileAdmin      = "admin.conf"
	fileEtcdClient = "etcd-client"
)

// HostUnitDir is where every master keeps a copy of the unit.
const HostUnitDir = "/var/lib/hk/unit"

// KeyCreated is told once for each piece of key material that is made, after it
// is on disk.
type KeyCreated struct{ Name, KeyID string }

// Unit is a cluster's credential unit, whole in memory and on disk. It
// implements tasks.Vault. All methods may be called from several goroutines; a
// write that returned nil is durable, one that failed left everything as it
// was.
type Unit struct {
	store   Store
	name    string
	version string
	now     func() time.Time
	created func(KeyCreated) // may be nil

	mu       sync.RWMutex // guards st, warnings
	st       *state
	warnings []string

	qmu   sync.Mutex // guards queue
	queue []*op
	wmu   sync.Mutex // held by whoever writes; guards torn and untold
	// torn: the last write failed half-way, so the store is read again before
	// the next one.
	torn   bool
	untold []KeyCreated

	nmu    sync.Mutex // guards naming
	naming map[string]*sync.Mutex
}

// state is one consistent content of a unit; it is never changed, only
// replaced.
type state struct {
	m     Manifest
	files map[string][]byte
	hosts map[string]tasks.HostRecord
	alloc map[string]int

	// Of the change under way: new files that count only together with another
	// one, which is written last, and the keys made.
	pairs map[string]string
	made  map[string]KeyCreated // by the file that makes the key count
}

func (s *state) clone() *state {
	return &state{
		m: s.m.clone(), files: maps.Clone(s.files), hosts: maps.Clone(s.hosts), alloc: maps.Clone(s.alloc),
		pairs: maps.Clone(s.pairs), made: maps.Clone(s.made),
	}
}

// make notes that a file is a key just made.
func (s *state) make(file, name, id string) {
	if s.made == nil {
		s.made = map[string]KeyCreated{}
	}
	s.made[file] = KeyCreated{name, id}
}

// pair makes new files count only if all of them are there; the last named is
// written last.
func (s *state) pair(names ...string) {
	if s.pairs == nil {
		s.pairs = map[string]string{}
	}
	for _, n := range names {
		s.pairs[n] = names[len(names)-1]
	}
}

// op is one change that waits for its turn: the writer takes all that wait and
// makes them durable together.
type op struct {
	apply func(*state) error
	err   error
	done  bool
}

// UnitOptions are what a unit needs of the program around it.
type UnitOptions struct {
	Version string // of hk
	Now     func() time.Time
	Created func(KeyCreated)
	Rand    io.Reader // nil: crypto/rand
}

// OpenUnit reads and checks the unit of a cluster; an error wrapping
// remote.ErrNotFound if there is none.
func OpenUnit(s Store, name string, o UnitOptions) (*Unit, error) {
	st, j, err := loadState(s, name)
	if err != nil {
		return nil, err
	}
	u := newUnit(s, name, o)
	u.st, u.warnings, u.untold = st, j.warnings, j.untold
	return u, nil
}

func loadState(s Store, name string) (*state, *judged, error) {
	raw, err := s.Load(name)
	if err != nil {
		return nil, nil, err
	}
	j, err := judge(s.Place(name), raw)
	if err != nil {
		return nil, nil, err
	}
	if j.m.Name != name {
		return nil, nil, foreign(s.Place(name), "it belongs to cluster "+j.m.Name, "rename it back, or move it away")
	}
	st := &state{m: j.m, files: j.files}
	if st.hosts, err = decodeHosts(j.files[fileHosts]); err == nil {
		st.alloc, err = decodeAlloc(j.files[fileAlloc])
	}
	if err != nil {
		return nil, nil, foreign(s.Place(name), err.Error())
	}
	return st, j, nil
}

// NewUnit is what a new cluster's unit starts with.
type NewUnit struct {
	UID     string
	Alloc   map[string]int
	Lock    []byte // text of the lock file
	Applied []byte // text of the config
	SSHKey  string // the operator's public key; "" for none
}

// CreateUnit makes the unit of a new cluster; fs.ErrExist if there is one.
func CreateUnit(s Store, name string, n NewUnit, o UnitOptions) (*Unit, error) {
	if o.Rand == nil {
		o.Rand = rand.Reader
	}
	key := make([]byte, 32)
	if _, err := io.ReadFull(o.Rand, key); err != nil {
		return nil, fmt.Errorf("drawing the cluster's HMAC key: %w", err)
	}
	u := newUnit(s, name, o)
	st := &state{
		m: Manifest{
			V: manifestVersion, UID: n.UID, Name: name, Created: u.now().UTC(), Version: o.Version,
			Generation: 1, Files: map[string]Entry{},
		},
		files: map[string][]byte{
			fileHMAC: key, fileHosts: encodeHosts(nil), fileAlloc: encodeAlloc(n.Alloc),
			fileLock: n.Lock, fileApplied: n.Applied,
		},
		hosts: map[string]tasks.HostRecord{}, alloc: maps.Clone(n.Alloc),
	}
	if st.alloc == nil {
		st.alloc = map[string]int{}
	}
	if n.SSHKey != "" {
		st.files[OperatorKey] = []byte(strings.TrimSpace(n.SSHKey) + "\n")
	}
	out := maps.Clone(st.files)
	for f, data := range st.files {
		st.m.Files[f] = st.entry(f, data)
	}
	out[manifestFile] = st.m.encode()
	if err := s.Create(name, out); err != nil {
		return nil, err
	}
	u.st = st
	if u.created != nil {
		u.created(KeyCreated{fileHMAC, st.m.Files[fileHMAC].KeyID})
	}
	return u, nil
}

func newUnit(s Store, name string, o UnitOptions) *Unit {
	return &Unit{store: s, name: name, version: o.Version, now: o.Now, created: o.Created, naming: map[string]*sync.Mutex{}}
}

// ImportUnit stores a whole unit that was fetched from a master. The files are
// checked like those on disk; nothing that is there already is replaced.
func ImportUnit(s Store, name string, files map[string][]byte, o UnitOptions) (*Unit, error) {
	j, err := judge("the copy on a master", files)
	if err != nil {
		return nil, err
	}
	out := maps.Clone(j.files)
	out[manifestFile] = j.m.encode()
	if err := s.Create(name, out); err != nil {
		return nil, err
	}
	return OpenUnit(s, name, o)
}

func (u *Unit) read() *state {
	u.mu.RLock()
	defer u.mu.RUnlock()
	return u.st
}

// Manifest is the unit's manifest; it must not be changed.
func (u *Unit) Manifest() Manifest { return u.read().m }

// UID is the cluster's identity.
func (u *Unit) UID() string { return u.read().m.UID }

// Place says where the unit is, for people.
func (u *Unit) Place() string { return u.store.Place(u.name) }

// Warnings are things about the unit that a person should know.
func (u *Unit) Warnings() []string {
	u.mu.RLock()
	defer u.mu.RUnlock()
	return slices.Clone(u.warnings)
}

// File returns a file of the unit; ErrNotFound, wrapped, if there is none.
func (u *Unit) File(name string) ([]byte, error) {
	if b, ok := u.read().files[name]; ok {
		return slices.Clone(b), nil
	}
	return nil, fmt.Errorf("%s of the credential unit: %w", name, remote.ErrNotFound)
}

// Alloc is the index of every host that has one.
func (u *Unit) Alloc() map[string]int { return maps.Clone(u.read().alloc) }

// Hosts are the records of all hosts.
func (u *Unit) Hosts() map[string]tasks.HostRecord { return maps.Clone(u.read().hosts) }

// Host implements tasks.Vault.
func (u *Unit) Host(name string) (tasks.HostRecord, bool) {
	r, ok := u.read().hosts[name]
	return r, ok
}

// SaveHost implements tasks.Vault.
func (u *Unit) SaveHost(r tasks.HostRecord) error {
	return u.change(func(st *state) error {
		st.hosts[r.Host] = r
		return nil
	})
}

// DropHost implements tasks.Vault.
func (u *Unit) DropHost(name string) error {
	return u.change(func(st *state) error {
		delete(st.hosts, name)
		return nil
	})
}

// HMAC implements tasks.Vault.
func (u *Unit) HMAC(data []byte) []byte { return u.read().hmac(data) }

func (s *state) hmac(data []byte) []byte {
	h := hmac.New(sha256.New, s.files[fileHMAC])
	h.Write(data)
	return h.Sum(nil)
}

// Put implements tasks.Vault. The names "born" and "etcd-born" set the marks.
func (u *Unit) Put(name string, data []byte) error {
	switch name {
	case "born":
		return u.MarkBorn()
	case "etcd-born":
		return u.MarkEtcdBorn()
	}
	if err := checkName(name); err != nil {
		return err
	}
	return u.change(func(st *state) error {
		st.files[name] = slices.Clone(data)
		return nil
	})
}

// MarkBorn writes once that the cluster was established.
func (u *Unit) MarkBorn() error {
	return u.change(func(st *state) error {
		if st.m.Born == nil {
			st.m.Born = &Mark{Generation: st.m.Generation, Time: u.now().UTC()}
		}
		return nil
	})
}

// MarkEtcdBorn writes once that an etcd of the cluster has lived.
func (u *Unit) MarkEtcdBorn() error {
	return u.change(func(st *state) error {
		if st.m.EtcdBorn == nil {
			st.m.EtcdBorn = &Mark{Generation: st.m.Generation, Time: u.now().UTC()}
		}
		return nil
	})
}

var unitName = regexp.MustCompile(`^[a-z0-9][a-z0-9._-]{0,62}$`)

func checkName(name string) error {
	switch {
	case !unitName.MatchString(name):
		return fmt.Errorf("bug: %q cannot be a name in the credential unit", name)
	case name == manifestFile, name == fileHosts, name == fileAlloc, name == fileHMAC, name == fileKnownHosts:
		return fmt.Errorf("bug: %s of the credential unit is hk's own", name)
	}
	return nil
}

func decodeHosts(b []byte) (map[string]tasks.HostRecord, error) {
	var l []tasks.HostRecord
	if err := json.Unmarshal(b, &l); err != nil {
		return nil, fmt.Errorf("%s cannot be read: %w", fileHosts, err)
	}
	out := make(map[string]tasks.HostRecord, len(l))
	for _, r := range l {
		out[r.Host] = r
	}
	return out, nil
}

func encodeHosts(m map[string]tasks.HostRecord) []byte {
	l := make([]tasks.HostRecord, 0, len(m))
	for _, k := range slices.Sorted(maps.Keys(m)) {
		l = append(l, m[k])
	}
	return encodeJSON(l)
}

func decodeAlloc(b []byte) (map[string]int, error) {
	out := map[string]int{}
	if err := json.Unmarshal(b, &out); err != nil {
		return nil, fmt.Errorf("%s cannot be read: %w", fileAlloc, err)
	}
	return out, nil
}

func encodeAlloc(m map[string]int) []byte {
	if m == nil {
		m = map[string]int{}
	}
	return encodeJSON(m) // keys are sorted
}

func encodeJSON(v any) []byte {
	b, err := json.MarshalIndent(v, "", " ")
	if err != nil {
		panic("bug: encoding a unit: " + err.Error()) // only plain values
	}
	return append(b, '\n')
}

// knownHosts is for people and other programs: hk pins by hosts.json.
func knownHosts(cluster string, hosts map[string]tasks.HostRecord) []byte {
	var b strings.Builder
	for _, k := range slices.Sorted(maps.Keys(hosts)) {
		if r := hosts[k]; r.Seen && r.HostKey != "" && r.Addr != "" {
			fmt.Fprintf(&b, "%s-%s,%s %s\n", cluster, r.Host, r.Addr, strings.TrimSpace(r.HostKey))
		}
	}
	return []byte(b.String())
}

// NewUID draws the identity of a new cluster: 128 random bits, in hex so that
// it is a label value.
func NewUID(r io.Reader) (string, error) {
	if r == nil {
		r = rand.Reader
	}
	b := make([]byte, 16)
	if _, err := io.ReadFull(r, b); err != nil {
		return "", fmt.Errorf("drawing the cluster's UID: %w", err)
	}
	return hex.EncodeToString(b), nil
}

func isNotFound(err error) bool {
	return errors.Is(err, remote.ErrNotFound) || errors.Is(err, fs.ErrNotExist)
}
