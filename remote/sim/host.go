package sim

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net"
	"net/http"
	"path"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/crypto/ssh"

	"hk/remote"
)

// Places and units that mean something to the simulated machine.
const (
	identityFile = "/etc/hk/host.json"
	etcdUnit     = "etcd.service"
	kubeletUnit  = "kubelet.service"
	meshUnit     = "wg-quick@hk0.service"
)

// hostFile is a file on a simulated disk. Artifacts and large files keep their
// hash only.
type hostFile struct {
	Sum     string `json:"sum,omitempty"`
	Mode    uint32 `json:"mode"`
	Owner   string `json:"owner"`
	Dir     bool   `json:"dir,omitempty"`
	Link    string `json:"link,omitempty"`
	Content []byte `json:"content,omitempty"`
}

func (f *hostFile) fact() string {
	switch {
	case f.Link != "":
		return "link " + f.Link
	case f.Dir:
		return fmt.Sprintf("dir %04o %s", f.Mode, f.Owner)
	}
	return fmt.Sprintf("%s %04o %s", f.Sum, f.Mode, f.Owner)
}

// hostUnit is a unit's state.
type hostUnit struct {
	Active     bool   `json:"active"`
	Enabled    bool   `json:"enabled"`
	Masked     bool   `json:"masked,omitempty"`
	Started    string `json:"started,omitempty"`
	Files      []string
	Invocation string `json:"invocation"`
}

// hostJob is a job's end.
type hostJob struct {
	Task, Invocation string
	Code             int
	Out              []byte
}

// Hosts opens simulated machines.
type Hosts struct {
	w *World
	// Lease is the lease generation writes are made under.
	lease func() uint64
}

// Hosts returns the world's machines; lease is asked at each write.
func (w *World) Hosts(lease func() uint64) *Hosts { return &Hosts{w: w, lease: lease} }

var (
	_ remote.Hosts = (*Hosts)(nil)
	_ remote.Host  = (*Host)(nil)
)

// Close has nothing to close.
func (h *Hosts) Close() error { return nil }

// Open returns the machine at the contact's address.
func (h *Hosts) Open(c remote.Contact) remote.Host { return &Host{w: h.w, c: c, lease: h.lease} }

// Host is one simulated machine.
type Host struct {
	w     *World
	c     remote.Contact
	lease func() uint64
}

// Name is hk's name of the host.
func (h *Host) Name() string { return h.c.Host }

func (h *Host) err(op string, again bool, err error) error {
	return &remote.HostError{Host: h.c.Host, Op: op, Again: again, Err: err}
}

// machine finds the running machine and checks the key it shows.
func (h *Host) machine(t *tx, op string) (*server, error) {
	for _, k := range t.keys("server/") {
		v, _ := load[server](t, k)
		if v.IPv4 != h.c.Addr {
			continue
		}
		if v.Status != "running" {
			return nil, h.err(op, true, fmt.Errorf("%w: no answer from %s", remote.ErrUnreachable, h.c.Addr))
		}
		if down, _ := load[bool](t, key("cut", v.ID)); down {
			return nil, h.err(op, true, fmt.Errorf("%w: no route to %s", remote.ErrUnreachable, h.c.Addr))
		}
		shown, _ := load[string](t, key("hostkey", v.ID))
		switch {
		case sameKey(shown, h.c.HostKey):
		case h.c.Throwaway != "" && sameKey(shown, h.c.Throwaway) && h.c.Seen:
			return nil, h.err(op, false, remote.ErrRebuilt)
		default:
			return nil, h.err(op, false, remote.ErrHostKey)
		}
		return &v, nil
	}
	return nil, h.err(op, true, fmt.Errorf("%w: no answer from %s", remote.ErrUnreachable, h.c.Addr))
}

func sameKey(a, b string) bool {
	x, y := strings.Fields(a), strings.Fields(b)
	return len(x) > 1 && len(y) > 1 && x[0] == y[0] && x[1] == y[1]
}

// write is one change on the machine, refused under an old lease.
func (h *Host) write(ctx context.Context, op string, fn func(*tx, *server) error) error {
	return h.w.update(ctx, "host "+op, func(t *tx) error {
		v, err := h.machine(t, op)
		if err != nil {
			return err
		}
		if err := checkLease(t, v.ID, h.lease()); err != nil {
			return h.err(op, false, err)
		}
		return fn(t, v)
	})
}

func checkLease(t *tx, id int64, lease uint64) error {
	f, ok := load[hostFile](t, fileKey(id, identityFile))
	if !ok {
		return nil
	}
	var ident remote.HostIdentity
	if json.Unmarshal(f.Content, &ident) != nil {
		return nil //nolint:nilerr // a file that cannot be read has seen no lease
	}
	if ident.Lease > lease {
		return fmt.Errorf("%w: generation %d, ours is %d", remote.ErrStaleGeneration, ident.Lease, lease)
	}
	if ident.Lease < lease {
		ident.Lease = lease
		putIdentity(t, id, ident)
	}
	return nil
}

func putIdentity(t *tx, id int64, ident remote.HostIdentity) {
	b, _ := json.Marshal(ident)
	putFile(t, id, remote.File{Path: identityFile, Mode: 0o600, Content: b})
}

func fileKey(id int64, p string) string { return fmt.Sprintf("file/%d/%s", id, p) }
func unitKey(id int64, u string) string { return fmt.Sprintf("unit/%d/%s", id, u) }

func sum(b []byte) string {
	s := sha256.Sum256(b)
	return hex.EncodeToString(s[:])
}

func putFile(t *tx, id int64, f remote.File) {
	owner := f.Owner
	if owner == "" {
		owner = "root:root"
	}
	if !strings.Contains(owner, ":") {
		owner += ":" + owner
	}
	hf := hostFile{Mode: uint32(f.Mode.Perm()), Owner: owner, Link: f.Link, Dir: f.Mode&fs.ModeDir != 0}
	switch {
	case hf.Dir || hf.Link != "":
	case f.Artifact != nil:
		hf.Sum = f.Artifact.FileSHA256
	default:
		hf.Sum, hf.Content = sum(f.Content), f.Content
	}
	store(t, fileKey(id, f.Path), hf)
}

// bootHost is what a machine does when it starts: a new disk gets its host key
// from user data; enabled units start.
func bootHost(t *tx, v *server) {
	if !t.has(key("hostkey", v.ID)) {
		store(t, key("hostkey", v.ID), firstKey(v.UserData))
	}
	for _, k := range t.keys(fmt.Sprintf("unit/%d/", v.ID)) {
		u, _ := load[hostUnit](t, k)
		name := k[strings.LastIndex(k, "/")+1:]
		u.Active = false
		store(t, k, u)
		if u.Enabled && !u.Masked {
			_ = startUnit(t, v, name) // one that fails is down, as after a real boot
		}
	}
}

// firstKey is the public half of the host key that user data hands over.
func firstKey(userData string) string {
	const begin, end = "-----BEGIN OPENSSH PRIVATE KEY-----", "-----END OPENSSH PRIVATE KEY-----"
	i, j := strings.Index(userData, begin), strings.Index(userData, end)
	if i < 0 || j < 0 {
		return ""
	}
	var lines []string
	for l := range strings.SplitSeq(userData[i:j+len(end)], "\n") {
		lines = append(lines, strings.TrimSpace(l))
	}
	signer, err := ssh.ParsePrivateKey([]byte(strings.Join(lines, "\n")))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(ssh.MarshalAuthorizedKey(signer.PublicKey())))
}

// wipe forgets a machine's disk.
func wipe(t *tx, id int64) {
	for _, kind := range []string{"file", "unit", "job", "journal", "sysctl", "module"} {
		for _, k := range t.keys(fmt.Sprintf("%s/%d/", kind, id)) {
			t.del(k)
		}
	}
	for _, kind := range []string{"hostkey", "wg", "member", "images", "packages", "cut"} {
		t.del(key(kind, id))
	}
}

// Install makes first contact.
func (h *Hosts) Install(ctx context.Context, c remote.Contact, pem []byte, id remote.HostIdentity) (remote.HostIdentity, error) {
	host := &Host{w: h.w, c: c, lease: h.lease}
	var out remote.HostIdentity
	err := h.w.update(ctx, "host install", func(t *tx) error {
		first := *host
		first.c.Seen = false
		if !c.Seen && c.Throwaway != "" {
			first.c.HostKey = c.Throwaway
			if _, err := first.machine(t, "first contact"); err != nil {
				first.c.HostKey = c.HostKey
			}
		}
		v, err := first.machine(t, "first contact")
		if err != nil {
			return err
		}
		if sameKey(first.c.HostKey, c.Throwaway) {
			signer, err := ssh.ParsePrivateKey(pem)
			if err != nil {
				return host.err("first contact", false, fmt.Errorf("the final host key: %w", err))
			}
			store(t, key("hostkey", v.ID), strings.TrimSpace(string(ssh.MarshalAuthorizedKey(signer.PublicKey()))))
		}
		if f, ok := load[hostFile](t, fileKey(v.ID, identityFile)); ok {
			return json.Unmarshal(f.Content, &out)
		}
		id.Lease = h.lease()
		putIdentity(t, v.ID, id)
		out = id
		return nil
	})
	return out, err
}

// Facts looks at the machine.
func (h *Host) Facts(ctx context.Context, q remote.FactsQuery) (*remote.Facts, error) {
	var out *remote.Facts
	err := h.w.view(ctx, "host facts", func(t *tx) error {
		v, err := h.machine(t, "facts")
		if err != nil {
			return err
		}
		f := &remote.Facts{
			BootID: fmt.Sprintf("boot-%d-%d", v.ID, v.Boot), Now: h.w.now(), Arch: "amd64", CgroupV2: true, SystemdInit: true,
			Capabilities: 1<<41 - 1, Kernel: "6.1.0-sim", KernelWG: true, Files: map[string]string{},
			Units: map[string]remote.UnitFact{}, Sysctls: map[string]string{}, Modules: map[string]bool{},
			Links: map[string]remote.Link{"eth0": {MTU: 1500, Addrs: []string{v.IPv4 + "/32"}, Index: 2, Up: true}},
		}
		if hf, ok := load[hostFile](t, fileKey(v.ID, identityFile)); ok {
			_ = json.Unmarshal(hf.Content, &f.Host)
		}
		for _, p := range q.Paths {
			f.Files[p] = "absent"
			if hf, ok := load[hostFile](t, fileKey(v.ID, p)); ok {
				f.Files[p] = hf.fact()
			}
		}
		for _, name := range q.Units {
			f.Units[name] = unitFact(t, v.ID, name)
		}
		for _, k := range q.Sysctls {
			f.Sysctls[k], _ = load[string](t, fmt.Sprintf("sysctl/%d/%s", v.ID, k))
		}
		for _, m := range q.Modules {
			f.Modules[m] = t.has(fmt.Sprintf("module/%d/%s", v.ID, m))
		}
		if wg, ok := wgOf(t, v.ID); ok && len(q.WireGuard) > 0 {
			f.WireGuard = map[string]remote.WGFact{"hk0": wg.WGFact}
		}
		if q.Journal {
			f.Journal = map[string][]byte{}
			prefix := fmt.Sprintf("journal/%d/", v.ID)
			for _, k := range t.keys(prefix) {
				f.Journal[k[len(prefix):]], _ = load[[]byte](t, k)
			}
		}
		out = f
		return nil
	})
	return out, err
}

func unitFact(t *tx, id int64, name string) remote.UnitFact {
	u, ok := load[hostUnit](t, unitKey(id, name))
	f := remote.UnitFact{Active: "inactive", Invocation: u.Invocation}
	if !ok {
		return f
	}
	if u.Active {
		f.Active = "active"
		f.Started, f.Disk = u.Started, digestOf(t, id, u.Files)
	}
	switch {
	case u.Masked:
		f.Enabled = "masked"
	case u.Enabled:
		f.Enabled = "enabled"
	default:
		f.Enabled = "disabled"
	}
	return f
}

func digestOf(t *tx, id int64, files []string) string {
	if len(files) == 0 {
		return ""
	}
	var b strings.Builder
	for _, p := range files {
		f, ok := load[hostFile](t, fileKey(id, p))
		fmt.Fprintf(&b, "%s %t %s\n", p, ok, f.fact())
	}
	return sum([]byte(b.String()))
}

// Apply makes the machine what s says.
func (h *Host) Apply(ctx context.Context, s remote.HostState) (*remote.Applied, error) {
	out := &remote.Applied{}
	err := h.write(ctx, "apply", func(t *tx, v *server) error {
		for i := range s.Files {
			applyFile(t, v.ID, &s.Files[i], out)
		}
		for _, m := range s.Modules {
			store(t, fmt.Sprintf("module/%d/%s", v.ID, m), true)
		}
		for k, val := range s.Sysctls {
			store(t, fmt.Sprintf("sysctl/%d/%s", v.ID, k), val)
		}
		addTo(t, key("packages", v.ID), s.Packages)
		addTo(t, key("images", v.ID), s.Images)
		for i := range s.Units {
			if err := applyUnit(t, v, &s.Units[i], out); err != nil {
				return h.err("apply", false, err)
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

func addTo(t *tx, k string, names []string) {
	if len(names) == 0 {
		return
	}
	have, _ := load[[]string](t, k)
	have = append(have, names...)
	slices.Sort(have)
	store(t, k, slices.Compact(have))
}

func applyFile(t *tx, id int64, f *remote.File, out *remote.Applied) {
	k := fileKey(id, f.Path)
	old, there := load[hostFile](t, k)
	switch {
	case f.Absent:
		if there {
			t.del(k)
			out.Changed = append(out.Changed, f.Path)
		}
		return
	case f.Keep && there && f.Mode&fs.ModeDir == 0:
		return
	}
	putFile(t, id, *f)
	if now, _ := load[hostFile](t, k); !there || now.fact() != old.fact() {
		out.Changed = append(out.Changed, f.Path)
	}
	for d := path.Dir(f.Path); d != "/" && !t.has(fileKey(id, d)); d = path.Dir(d) {
		store(t, fileKey(id, d), hostFile{Mode: 0o755, Owner: "root:root", Dir: true})
	}
}

func applyUnit(t *tx, v *server, u *remote.Unit, out *remote.Applied) error {
	k := unitKey(v.ID, u.Name)
	hu, _ := load[hostUnit](t, k)
	hu.Enabled, hu.Masked, hu.Files = u.Enabled, u.Masked, u.Files
	store(t, k, hu)
	if u.Masked || !u.Active {
		return nil
	}
	if hu.Active && hu.Started == digestOf(t, v.ID, u.Files) {
		return nil
	}
	out.Restarted = append(out.Restarted, u.Name)
	return startUnit(t, v, u.Name)
}

// Get reads a file.
func (h *Host) Get(ctx context.Context, p string) ([]byte, error) {
	var out []byte
	err := h.w.view(ctx, "host get", func(t *tx) error {
		v, err := h.machine(t, "read "+p)
		if err != nil {
			return err
		}
		f, ok := load[hostFile](t, fileKey(v.ID, p))
		for range 8 { // links to links end somewhere
			if !ok || f.Link == "" {
				break
			}
			f, ok = load[hostFile](t, fileKey(v.ID, f.Link))
		}
		if !ok || f.Dir {
			return h.err("read "+p, false, remote.ErrNotFound)
		}
		out = f.Content
		return nil
	})
	return out, err
}

// Journal writes entries of the machine's journal.
func (h *Host) Journal(ctx context.Context, entries map[string][]byte) error {
	return h.write(ctx, "journal", func(t *tx, v *server) error {
		for name, data := range entries {
			k := fmt.Sprintf("journal/%d/%s", v.ID, name)
			if data == nil {
				t.del(k)
			} else {
				store(t, k, data)
			}
		}
		return nil
	})
}

// Run runs a job, or finds it done.
func (h *Host) Run(ctx context.Context, j remote.Job) (*remote.JobResult, error) {
	res := &remote.JobResult{}
	err := h.write(ctx, "run "+strings.Join(first(j.Argv, 2), " "), func(t *tx, v *server) error {
		k := fmt.Sprintf("job/%d/%s", v.ID, j.Unit)
		if old, ok := load[hostJob](t, k); ok && old.Code == 0 {
			*res = remote.JobResult{Stdout: old.Out, Attached: true, Invocation: old.Invocation}
			return nil
		}
		out, code := runProgram(t, v, j.Argv, j.Stdin)
		done := hostJob{Task: j.Task, Code: code, Out: out, Invocation: fmt.Sprintf("%032x", t.next())}
		store(t, k, done)
		*res = remote.JobResult{Code: code, Invocation: done.Invocation}
		if code == 0 {
			res.Stdout = out
		} else {
			res.Stderr = out
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return res, nil
}

func first(argv []string, n int) []string { return argv[:min(n, len(argv))] }

// Exec runs a short command.
func (h *Host) Exec(ctx context.Context, c remote.Command) (*remote.CommandResult, error) {
	res := &remote.CommandResult{}
	err := h.write(ctx, "exec "+strings.Join(first(c.Argv, 1), ""), func(t *tx, v *server) error {
		out, code := runProgram(t, v, c.Argv, c.Stdin)
		res.Code = code
		if code == 0 {
			res.Stdout = out
		} else {
			res.Stderr = out
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return res, nil
}

// Dial connects to what listens on the machine; nothing is ever said on it.
func (h *Host) Dial(ctx context.Context, addr string) (net.Conn, error) {
	err := h.w.view(ctx, "host dial", func(t *tx) error {
		v, err := h.machine(t, "dial "+addr)
		if err != nil {
			return err
		}
		if !listens(t, v, addr) {
			return h.err("dial "+addr, true, errors.New("connection refused"))
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	a, b := net.Pipe()
	if strings.HasSuffix(addr, ":16442") {
		go h.proxyTable(b) //nolint:gosec,contextcheck // it outlives the call that dialled
	} else {
		go func() { _, _ = io.Copy(io.Discard, b) }()
	}
	return a, nil
}

// proxyTable answers one HTTP request as haproxy's statistics page does.
func (h *Host) proxyTable(conn net.Conn) {
	defer func() { _ = conn.Close() }() // the other end notices
	if _, err := http.ReadRequest(bufio.NewReader(conn)); err != nil {
		return
	}
	var b strings.Builder
	b.WriteString("# pxname,svname,status\n")
	_ = h.w.view(context.Background(), "host proxy", func(t *tx) error {
		v, err := h.machine(t, "proxy")
		if err != nil {
			return err
		}
		conf, _ := load[hostFile](t, fileKey(v.ID, "/etc/hk/haproxy.cfg"))
		for l := range strings.SplitSeq(string(conf.Content), "\n") {
			f := strings.Fields(l)
			if len(f) < 3 || f[0] != "server" {
				continue
			}
			status := "DOWN"
			if ip, _, _ := strings.Cut(f[2], ":"); meshAPIUp(t, v.ID, ip) {
				status = "UP"
			}
			fmt.Fprintf(&b, "masters,%s,%s\n", f[1], status)
		}
		return nil
	})
	fmt.Fprintf(conn, "HTTP/1.0 200 OK\r\nContent-Type: text/plain\r\nContent-Length: %d\r\n\r\n%s", b.Len(), b.String())
}

// meshAPIUp reports whether an API server answers at a mesh address.
func meshAPIUp(t *tx, from int64, ip string) bool {
	if !meshPath(t, from, ip) {
		return false
	}
	for _, k := range t.keys("wg/") {
		s, _ := load[wgState](t, k)
		id, _ := strconv.ParseInt(k[len("wg/"):], 10, 64)
		if s.Address == ip {
			return apiUp(t, id)
		}
	}
	return false
}

func listens(t *tx, v *server, addr string) bool {
	_, port, err := net.SplitHostPort(addr)
	if err != nil {
		return false
	}
	active := func(u string) bool { hu, _ := load[hostUnit](t, unitKey(v.ID, u)); return hu.Active }
	switch port {
	case "22":
		return true
	case "2379", "2380", "2381":
		return active(etcdUnit)
	case "6443":
		return apiUp(t, v.ID)
	case "16443", "16442":
		return active("hk-endpoint.service")
	case "10248", "10250":
		return active(kubeletUnit)
	}
	return false
}

// SetPower is what happens to a machine from outside hk: off and on.
func (w *World) SetPower(ctx context.Context, name string, on bool) error {
	return w.byName(ctx, name, func(t *tx, v *server) error {
		if on && v.Status != "running" {
			v.Status = "running"
			v.Boot++
			bootHost(t, v)
		}
		if !on {
			v.Status = "off"
			for _, k := range t.keys(fmt.Sprintf("unit/%d/", v.ID)) {
				u, _ := load[hostUnit](t, k)
				u.Active = false
				store(t, k, u)
			}
		}
		return nil
	})
}

// Rebuild gives a machine a new disk: same ID, same addresses.
func (w *World) Rebuild(ctx context.Context, name string) error {
	return w.byName(ctx, name, func(t *tx, v *server) error {
		wipe(t, v.ID)
		v.Disk++
		v.Boot++
		bootHost(t, v)
		return nil
	})
}

// Cut takes a machine off the network or puts it back.
func (w *World) Cut(ctx context.Context, name string, cut bool) error {
	return w.byName(ctx, name, func(t *tx, v *server) error {
		store(t, key("cut", v.ID), cut)
		return nil
	})
}

// Edit changes a file behind hk's back; nil removes it.
func (w *World) Edit(ctx context.Context, name, p string, content []byte) error {
	return w.byName(ctx, name, func(t *tx, v *server) error {
		k := fileKey(v.ID, p)
		f, ok := load[hostFile](t, k)
		if !ok {
			return fmt.Errorf("%s has no %s", name, p)
		}
		if content == nil {
			t.del(k)
			return nil
		}
		f.Content, f.Sum = bytes.Clone(content), sum(content)
		store(t, k, f)
		return nil
	})
}

// StopUnit stops a unit behind hk's back.
func (w *World) StopUnit(ctx context.Context, name, unit string) error {
	return w.byName(ctx, name, func(t *tx, v *server) error {
		u, _ := load[hostUnit](t, unitKey(v.ID, unit))
		u.Active = false
		store(t, unitKey(v.ID, unit), u)
		return nil
	})
}

func (w *World) byName(_ context.Context, name string, fn func(*tx, *server) error) error {
	return w.change("outside", func(t *tx) error {
		for _, k := range t.keys("server/") {
			v, _ := load[server](t, k)
			if v.Name != name {
				continue
			}
			if err := fn(t, &v); err != nil {
				return err
			}
			store(t, k, v)
			return nil
		}
		return fmt.Errorf("no server %s in the simulated world", name)
	})
}

// Dump is the world's canonical text: everything but what differs between two
// equal runs (IDs, times, keys and hashes of keys are named by first
// appearance).
func (w *World) Dump() map[string]json.RawMessage {
	w.mu.Lock()
	defer w.mu.Unlock()
	_ = w.catchUp()
	return maps.Clone(w.kv)
}
