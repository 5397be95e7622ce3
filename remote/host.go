package remote

import (
	"context"
	"io/fs"
	"net"
	"time"
)

// Host is one machine, reached with its pinned key. All methods may be called
// from several goroutines.
type Host interface {
	// Name is hk's name of the host, such as master-1.
	Name() string
	// Facts looks at the host in one round trip and changes nothing.
	Facts(ctx context.Context, q FactsQuery) (*Facts, error)
	// Apply makes the host's files and units what the state says, touching
	// only what differs, and reports what it touched. Files are written beside
	// their place, hashed and renamed into it. Order: absent files, directories
	// and files, kernel modules, sysctls, daemon-reload if a unit file changed,
	// units.
	Apply(ctx context.Context, s HostState) (*Applied, error)
	// Run starts a job as a named systemd unit, or attaches to the one of the
	// same name that runs, or that ran to its end with exit code 0 while nobody
	// took its result; waits for its end and returns what it left. Once the
	// result was returned the same job is started anew, as a forced task wants
	// it. Any other hk unit of the same Task is stopped first. A non-zero exit
	// code is not an error. With ctx done the job goes on.
	Run(ctx context.Context, j Job) (*JobResult, error)
	// Exec runs a short, harmless command and returns its output; for probes
	// whose answer is parsed. A non-zero exit code is not an error.
	Exec(ctx context.Context, c Command) (*CommandResult, error)
	// Get reads a file; ErrNotFound if there is none.
	Get(ctx context.Context, path string) ([]byte, error)
	// Dial opens a TCP connection from the host, as in "127.0.0.1:6443".
	Dial(ctx context.Context, addr string) (net.Conn, error)
	// Journal writes entries of the host's own journal; an entry replaces the
	// one of the same name, nil data removes it.
	Journal(ctx context.Context, entries map[string][]byte) error
}

// File is a file, directory or link that hk owns on a host.
type File struct {
	Path  string
	Mode  fs.FileMode // permission bits; with fs.ModeDir a directory
	Owner string      // user[:group]; "" means root:root
	// Content is what is in it; ignored for directories and artifacts.
	Content []byte
	// Secret: never shown in plans, logs and diffs.
	Secret bool
	// Artifact: fetched by the host itself, verified by hash.
	Artifact *Artifact
	// Keep: written only if it does not exist; what is there stays.
	Keep bool
	// Absent: must not exist.
	Absent bool
	// Later: content is known only while running (leaf certificates, rendered
	// peers); Declared leaves Content empty and Run fills it in.
	Later bool
	// Link: a symbolic link to this path.
	Link string
}

// Artifact is a pinned file to download.
type Artifact struct {
	Name   string // for people and parts, such as "etcd"
	URLs   []string
	SHA256 string // of the download, hex
	// Member is the path inside a .tar.gz/.tgz whose bytes become the file; ""
	// means the download itself.
	Member string
	// FileSHA256 is the hash of the resulting file, hex. With it a file already
	// there with these bytes is left alone and nothing is downloaded.
	FileSHA256 string
}

// Unit is a systemd unit that hk owns the state of.
type Unit struct {
	Name    string
	Enabled bool
	Active  bool // for oneshot units: ran (RemainAfterExit)
	Masked  bool
	// Files it was started with: if one of them changed since it was started,
	// it is restarted, or reloaded with Reload; unit files and programs are not
	// taken in by a reload, so these restart it always. Their joint digest at
	// start is kept under /run/hk/started/NAME by an ExecStartPre/ExecReload
	// helper of hk's (/usr/local/lib/hk/started NAME FILES...), and reported by
	// Facts. Where a unit does not call it, Apply notes it after a start of its
	// own; for a start by others nothing is known, and Started is "".
	Files  []string
	Reload bool
	// NoBlock: do not wait until it is up (etcd members before there is a
	// quorum).
	NoBlock bool
}

// HostState is what hk declares of a host, or a part of it.
type HostState struct {
	Files    []File
	Units    []Unit
	Sysctls  map[string]string // set now; persisted by a File
	Modules  []string          // loaded now; persisted by a File
	Packages []string          // Debian packages present (apt, its lock waited for)
	Images   []string          // container images present in k8s.io namespace (pulled through containerd)
}

// Applied says what Apply touched.
type Applied struct {
	Changed   []string // paths written or removed
	Restarted []string // units started, restarted or reloaded
}

// FactsQuery says what to look at besides the fixed facts.
type FactsQuery struct {
	Paths   []string
	Units   []string
	Sysctls []string
	Modules []string
	// Full: hash every file anew instead of trusting size, mtime and inode of
	// large files hashed before.
	Full bool
	// Journal: return the host's whole journal.
	Journal bool
	// Links asks for WireGuard interfaces by name.
	WireGuard []string
}

// Facts is what a host says about itself now.
type Facts struct {
	Host         HostIdentity // of /etc/hk/host.json; zero if there is none
	BootID       string
	Now          time.Time // the host's clock when asked
	Uptime       time.Duration
	Arch         string // amd64, arm64
	CgroupV2     bool
	SystemdInit  bool
	Capabilities uint64            // effective set of the host's init
	Kernel       string            // release
	KernelWG     bool              // WireGuard in the kernel
	Links        map[string]Link   // network interfaces by name
	Files        map[string]string // path -> "sha256 mode owner", "dir mode owner", "link target", "absent"
	Units        map[string]UnitFact
	Sysctls      map[string]string
	Modules      map[string]bool
	Swap         bool
	WireGuard    map[string]WGFact
	Journal      map[string][]byte
}

// Link is a network interface.
type Link struct {
	MAC   string
	MTU   int
	Addrs []string // CIDR notation
	Index int
	Up    bool
}

// UnitFact is the state of a systemd unit.
type UnitFact struct {
	Active     string // active, inactive, failed, activating, ...
	Enabled    string // enabled, disabled, static, masked, ""
	Started    string // digest of the files it was started with; ""
	Disk       string // digest of the same files as they are now on disk; ""
	Invocation string
}

// WGFact is a WireGuard interface.
type WGFact struct {
	PublicKey string
	Port      int
	Peers     map[string]WGPeer // by public key
}

// WGPeer is a peer of a WireGuard interface.
type WGPeer struct {
	Endpoint      string
	AllowedIPs    []string
	LastHandshake time.Time // zero: never
}

// HostIdentity is what hk wrote on first contact; the file is the installation
// file (DESIGN §7, Places).
type HostIdentity struct {
	UID          string `json:"uid"` // of the cluster
	Cluster      string `json:"cluster"`
	Host         string `json:"host"`
	Index        int    `json:"index"`
	Installation string `json:"installation"`
	// Generation of the cluster; unmasks a disk restored from an old backup.
	Generation uint64 `json:"generation"`
	// Lease is the newest lease generation the host has seen.
	Lease uint64 `json:"lease"`
}

// Job is work on a host that must survive a lost connection.
type Job struct {
	Unit    string   // "hk-" + hash of cluster UID, task, fingerprint
	Task    string   // the task's name; one job a task at any time
	Argv    []string // never re-quoted
	Env     []string
	Stdin   []byte
	Timeout time.Duration // of the job itself; 0 means 10 minutes
	Log     func(line string)
}

// JobResult is what a job left.
type JobResult struct {
	Code       int
	Stdout     []byte // at most the last 1 MiB
	Stderr     []byte // at most the last 64 KiB
	Attached   bool   // it was found running or finished
	Invocation string
}

// Command is a short probe.
type Command struct {
	Argv    []string
	Stdin   []byte
	Timeout time.Duration // 0 means 10 s
}

// CommandResult is what a probe answered.
type CommandResult struct {
	Code           int
	Stdout, Stderr []byte
}

// Contact is what is needed to reach a host for the first time and after.
type Contact struct {
	Host    string // hk's name
	Addr    string // address to dial
	Port    int
	User    string
	HostKey string // authorized_keys form of the pinned key
	// Throwaway is the public half of the key handed over at creation. It is
	// accepted only while Seen is false.
	Throwaway string
	Seen      bool // the final key was seen once
}

// Hosts opens and keeps connections.
type Hosts interface {
	// Open returns the host; the connection is made on first use and kept. It
	// accepts only the pinned key (ErrHostKey; ErrRebuilt if the throw-away key
	// is shown after the final one was seen).
	Open(c Contact) Host
	// Install makes first contact: waits until SSH answers (deadline from ctx),
	// accepts throw-away or final key, installs the final private key if the
	// throw-away one was shown, reconnects with the final key only, writes the
	// identity if there is no installation file, and returns the identity found
	// on the host. With c.Seen nothing is written: a host that shows its
	// throw-away key or has no installation file is ErrRebuilt.
	Install(ctx context.Context, c Contact, hostKeyPEM []byte, id HostIdentity) (HostIdentity, error)
	Close() error
}
