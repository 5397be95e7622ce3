package ssh

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io/fs"
	"path"
	"strconv"
	"time"

	"hk/remote"
)

// The forms in which requests and answers cross to the program on the host.
// They are apart from remote's values so that neither binds the other.

type wireFactsQuery struct {
	Paths     []string `json:"paths,omitempty"`
	Units     []string `json:"units,omitempty"`
	Sysctls   []string `json:"sysctls,omitempty"`
	Modules   []string `json:"modules,omitempty"`
	WireGuard []string `json:"wireguard,omitempty"`
	Full      bool     `json:"full,omitempty"`
	Journal   bool     `json:"journal,omitempty"`
}

func wireQuery(q remote.FactsQuery) wireFactsQuery {
	return wireFactsQuery{
		Paths: unique(q.Paths), Units: unique(q.Units), Sysctls: unique(q.Sysctls),
		Modules: unique(q.Modules), WireGuard: unique(q.WireGuard), Full: q.Full, Journal: q.Journal,
	}
}

func unique(in []string) []string {
	seen := make(map[string]bool, len(in))
	var out []string
	for _, s := range in {
		if !seen[s] {
			seen[s] = true
			out = append(out, s)
		}
	}
	return out
}

type wireFacts struct {
	Host         *remote.HostIdentity    `json:"host"`
	BootID       string                  `json:"boot_id"`
	Now          int64                   `json:"now"`
	Uptime       float64                 `json:"uptime"`
	Arch         string                  `json:"arch"`
	CgroupV2     bool                    `json:"cgroup_v2"`
	Systemd      bool                    `json:"systemd"`
	Capabilities string                  `json:"capabilities"`
	Kernel       string                  `json:"kernel"`
	KernelWG     bool                    `json:"kernel_wg"`
	Links        map[string]wireLink     `json:"links"`
	Files        map[string]string       `json:"files"`
	Units        map[string]wireUnitFact `json:"units"`
	Sysctls      map[string]string       `json:"sysctls"`
	Modules      map[string]bool         `json:"modules"`
	Swap         bool                    `json:"swap"`
	WireGuard    map[string]wireWG       `json:"wireguard"`
	Journal      map[string][]byte       `json:"journal"`
}

type wireLink struct {
	MAC   string   `json:"mac"`
	MTU   int      `json:"mtu"`
	Index int      `json:"index"`
	Up    bool     `json:"up"`
	Addrs []string `json:"addrs"`
}

type wireUnitFact struct {
	Active     string `json:"active"`
	Enabled    string `json:"enabled"`
	Started    string `json:"started"`
	Disk       string `json:"disk"`
	Invocation string `json:"invocation"`
}

type wireWG struct {
	Public string                `json:"public"`
	Port   int                   `json:"port"`
	Peers  map[string]wireWGPeer `json:"peers"`
}

type wireWGPeer struct {
	Endpoint  string   `json:"endpoint"`
	Allowed   []string `json:"allowed"`
	Handshake int64    `json:"handshake"`
}

func (w *wireFacts) facts() (*remote.Facts, error) {
	caps, err := strconv.ParseUint(w.Capabilities, 16, 64)
	if err != nil {
		return nil, fmt.Errorf("reading capabilities: %w", err)
	}
	f := &remote.Facts{
		BootID: w.BootID, Now: time.Unix(0, w.Now), Uptime: time.Duration(w.Uptime * float64(time.Second)),
		Arch: w.Arch, CgroupV2: w.CgroupV2, SystemdInit: w.Systemd, Capabilities: caps,
		Kernel: w.Kernel, KernelWG: w.KernelWG, Files: w.Files, Sysctls: w.Sysctls, Modules: w.Modules,
		Swap: w.Swap, Journal: w.Journal,
		Links: map[string]remote.Link{}, Units: map[string]remote.UnitFact{}, WireGuard: map[string]remote.WGFact{},
	}
	if w.Host != nil {
		f.Host = *w.Host
	}
	for n, l := range w.Links {
		f.Links[n] = remote.Link{MAC: l.MAC, MTU: l.MTU, Index: l.Index, Up: l.Up, Addrs: l.Addrs}
	}
	for n, u := range w.Units {
		f.Units[n] = remote.UnitFact(u)
	}
	for n, g := range w.WireGuard {
		fact := remote.WGFact{PublicKey: g.Public, Port: g.Port, Peers: map[string]remote.WGPeer{}}
		for k, p := range g.Peers {
			peer := remote.WGPeer{Endpoint: p.Endpoint, AllowedIPs: p.Allowed}
			if p.Handshake > 0 {
				peer.LastHandshake = time.Unix(p.Handshake, 0)
			}
			fact.Peers[k] = peer
		}
		f.WireGuard[n] = fact
	}
	return f, nil
}

type wireState struct {
	Lease    uint64            `json:"lease"`
	Files    []wireFile        `json:"files,omitempty"`
	Units    []wireUnit        `json:"units,omitempty"`
	Sysctls  map[string]string `json:"sysctls,omitempty"`
	Modules  []string          `json:"modules,omitempty"`
	Packages []string          `json:"packages,omitempty"`
	Images   []string          `json:"images,omitempty"`
}

type wireFile struct {
	Path     string        `json:"path"`
	Mode     uint32        `json:"mode"`
	Owner    string        `json:"owner"`
	Content  []byte        `json:"content,omitempty"`
	SHA256   string        `json:"sha256,omitempty"`
	Artifact *wireArtifact `json:"artifact,omitempty"`
	Keep     bool          `json:"keep,omitempty"`
	Absent   bool          `json:"absent,omitempty"`
	Dir      bool          `json:"dir,omitempty"`
	Link     string        `json:"link,omitempty"`
}

type wireArtifact struct {
	Name       string   `json:"name"`
	URLs       []string `json:"urls"`
	SHA256     string   `json:"sha256"`
	Member     string   `json:"member"`
	FileSHA256 string   `json:"file_sha256"`
}

type wireUnit struct {
	Name    string   `json:"name"`
	Enabled bool     `json:"enabled"`
	Active  bool     `json:"active"`
	Masked  bool     `json:"masked"`
	Files   []string `json:"files"`
	Reload  bool     `json:"reload"`
	NoBlock bool     `json:"no_block"`
}

type wireApplied struct {
	Changed   []string `json:"changed"`
	Restarted []string `json:"restarted"`
}

func stateToWire(s *remote.HostState) (*wireState, error) {
	w := &wireState{Sysctls: s.Sysctls, Modules: s.Modules, Packages: s.Packages, Images: s.Images}
	for i := range s.Files {
		f, err := fileToWire(&s.Files[i])
		if err != nil {
			return nil, err
		}
		w.Files = append(w.Files, f)
	}
	for _, u := range s.Units {
		files := u.Files
		if files == nil {
			files = []string{}
		}
		w.Units = append(w.Units, wireUnit{
			Name: u.Name, Enabled: u.Enabled, Active: u.Active, Masked: u.Masked,
			Files: files, Reload: u.Reload, NoBlock: u.NoBlock,
		})
	}
	return w, nil
}

func fileToWire(f *remote.File) (wireFile, error) {
	w := wireFile{Path: f.Path, Mode: unixMode(f.Mode), Owner: f.Owner, Keep: f.Keep, Absent: f.Absent, Link: f.Link}
	w.Dir = f.Mode&fs.ModeDir != 0
	switch {
	case !path.IsAbs(f.Path) || path.Clean(f.Path) != f.Path || f.Path == "/":
		return w, fmt.Errorf("bug: %q is not a clean absolute path", f.Path)
	case f.Absent, f.Link != "", w.Dir:
	case f.Artifact != nil:
		a := f.Artifact
		if len(a.SHA256) != 64 || len(a.URLs) == 0 {
			return w, fmt.Errorf("bug: artifact %s for %s has no hash or no URL", a.Name, f.Path)
		}
		w.Artifact = &wireArtifact{Name: a.Name, URLs: a.URLs, SHA256: a.SHA256, Member: a.Member, FileSHA256: a.FileSHA256}
	case f.Later && f.Content == nil:
		return w, fmt.Errorf("bug: the content of %s was never filled in", f.Path)
	default:
		sum := sha256.Sum256(f.Content)
		w.Content, w.SHA256 = f.Content, hex.EncodeToString(sum[:])
	}
	return w, nil
}

// unixMode turns Go's mode bits into those of chmod; no bits at all means the
// usual ones.
func unixMode(m fs.FileMode) uint32 {
	out := uint32(m.Perm())
	if m&fs.ModeSetuid != 0 {
		out |= 0o4000
	}
	if m&fs.ModeSetgid != 0 {
		out |= 0o2000
	}
	if m&fs.ModeSticky != 0 {
		out |= 0o1000
	}
	if out == 0 {
		out = 0o644
		if m&fs.ModeDir != 0 {
			out = 0o755
		}
	}
	return out
}

type wireExec struct {
	Argv    []string `json:"argv"`
	Stdin   []byte   `json:"stdin,omitempty"`
	Timeout float64  `json:"timeout"`
}

type wireJob struct {
	Lease   uint64   `json:"lease"`
	Unit    string   `json:"unit"`
	Task    string   `json:"task"`
	Argv    []string `json:"argv"`
	Env     []string `json:"env,omitempty"`
	Stdin   []byte   `json:"stdin,omitempty"`
	Timeout float64  `json:"timeout"`
}

type wireJournal struct {
	Lease   uint64            `json:"lease"`
	Entries map[string][]byte `json:"entries"`
}
