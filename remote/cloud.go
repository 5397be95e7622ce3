package remote

import (
	"context"
	"time"
)

// Labels of everything hk makes in the cloud (DESIGN §6).
const (
	LabelCluster = "hk-cluster"
	LabelUID     = "hk-uid"
	LabelRole    = "hk-role" // comma-free: master, etcd, worker
	LabelPool    = "hk-pool"
	LabelHost    = "hk-host"
	LabelIndex   = "hk-index"
	LabelHostKey = "hk-hostkey" // base32 of SHA-256 of the final host key
	LabelBorn    = "hk-born"    // cluster generation at birth, on master servers
	LabelEtcd    = "hk-etcd-born"
	LabelVersion = "hk-version"
	LabelLock    = "hk-lock" // cluster name, on lock objects
)

// Inventory is everything in the project that hk can own, as of one look:
// about six list calls made in parallel.
type Inventory struct {
	Servers         []Server
	Networks        []Network
	Firewalls       []Firewall
	PlacementGroups []PlacementGroup
	LoadBalancers   []LoadBalancer
	SSHKeys         []SSHKey
	Time            time.Time // by the API's Date header
}

// Server is a machine in the cloud.
type Server struct {
	ID        int64
	Name      string
	Status    string // running, off, starting, ...
	Type      string
	Image     string
	Location  string
	Labels    map[string]string
	IPv4      string           // public
	Private   map[int64]string // network ID -> address
	MACs      map[int64]string // network ID -> MAC
	Created   time.Time
	Placement int64
	Firewalls []int64
	Protected bool
}

// ServerSpec is what is asked for.
type ServerSpec struct {
	Name, Type, Image, Location string
	Labels                      map[string]string
	UserData                    string
	SSHKeys, Networks           []int64
	Firewalls                   []int64
	Placement                   int64 // 0 for none
}

// Network is a private network.
type Network struct {
	ID      int64
	Name    string
	Range   string
	Subnets []string
	Labels  map[string]string
}

// Rule is one inbound rule of a firewall.
type Rule struct {
	Protocol string   // tcp, udp, icmp
	Port     string   // "22", "30000-32767"; "" for icmp
	Sources  []string // CIDRs
	Note     string
}

// Firewall is a set of inbound rules.
type Firewall struct {
	ID      int64
	Name    string
	Rules   []Rule
	Servers []int64
	Labels  map[string]string
	Created time.Time
}

// PlacementGroup spreads servers.
type PlacementGroup struct {
	ID      int64
	Name    string
	Servers []int64
	Labels  map[string]string
}

// SSHKey is a public key known to the cloud.
type SSHKey struct {
	ID          int64
	Name        string
	PublicKey   string
	Fingerprint string
	Labels      map[string]string
}

// LoadBalancer is a load balancer.
type LoadBalancer struct {
	ID       int64
	Name     string
	Type     string
	Location string
	IPv4     string
	Networks []int64
	Services []LBService
	Targets  []LBTarget
	Labels   map[string]string
}

// LBService is one listening port.
type LBService struct {
	Listen, Dest                int
	Check                       string // "tcp", "http", "https" (http with TLS)
	CheckPath                   string
	CheckInterval, CheckTimeout time.Duration
	CheckRetries                int
}

// LBTarget is where a load balancer sends to.
type LBTarget struct {
	Server   int64  // 0 with Selector
	Selector string // label selector
	Private  bool
	Health   map[int]string // destination port -> healthy, unhealthy, unknown
}

// Catalog is what can be had, and for how much.
type Catalog struct {
	ServerTypes map[string]ServerType
	LBTypes     map[string]map[string]float64 // type -> location -> monthly gross price
	Locations   map[string]string             // name -> network zone
	Images      []Image
	Currency    string
}

// ServerType is a size of machine.
type ServerType struct {
	Name       string
	Arch       string // x86, arm
	Cores      int
	MemoryGB   float64
	Available  map[string]bool    // by location
	Deprecated map[string]bool    // by location
	Price      map[string]float64 // monthly, gross, by location
}

// Image is what a machine starts from.
type Image struct {
	ID          int64
	Name        string // "" for snapshots
	Description string
	Type        string // system, snapshot
	Arch        string
	Labels      map[string]string
}

// Usage is what the API budget looks like.
type Usage struct {
	Calls     int64 // HTTP requests sent, retries included
	Limit     int   // per hour; 0 unknown
	Remaining int
}

// Cloud is the cloud API. Creates return after their actions ended. A create
// whose name exists already returns a CloudError with code uniqueness_error.
// All deletes are quiet about what is gone already.
type Cloud interface {
	Inventory(ctx context.Context) (*Inventory, error)
	Catalog(ctx context.Context) (*Catalog, error)
	Usage() Usage

	CreateServer(ctx context.Context, s ServerSpec) (*Server, error)
	Server(ctx context.Context, id int64) (*Server, error) // ErrNotFound
	LabelServer(ctx context.Context, id int64, labels map[string]string) error
	DeleteServer(ctx context.Context, id int64) error
	PowerOn(ctx context.Context, id int64) error
	AttachNetwork(ctx context.Context, server, network int64) error

	CreateNetwork(ctx context.Context, n Network, zone string) (*Network, error)
	DeleteNetwork(ctx context.Context, id int64) error

	CreateFirewall(ctx context.Context, f Firewall) (*Firewall, error)
	SetFirewallRules(ctx context.Context, id int64, rules []Rule) error
	ApplyFirewall(ctx context.Context, id int64, servers []int64) error
	LabelFirewall(ctx context.Context, id int64, labels map[string]string) error
	DeleteFirewall(ctx context.Context, id int64) error

	CreatePlacementGroup(ctx context.Context, g PlacementGroup) (*PlacementGroup, error)
	DeletePlacementGroup(ctx context.Context, id int64) error

	CreateSSHKey(ctx context.Context, k SSHKey) (*SSHKey, error)
	DeleteSSHKey(ctx context.Context, id int64) error

	CreateLoadBalancer(ctx context.Context, lb LoadBalancer) (*LoadBalancer, error)
	LoadBalancer(ctx context.Context, id int64) (*LoadBalancer, error)
	// SetLoadBalancer makes services and targets what lb says.
	SetLoadBalancer(ctx context.Context, lb LoadBalancer) error
	DeleteLoadBalancer(ctx context.Context, id int64) error
}
