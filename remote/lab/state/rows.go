package state

import (
	"encoding/json"
	"fmt"
	"time"
)

// Tables are all rows of a lab.
type Tables struct {
	Next int64 // the last ID drawn

	Servers         *Table[Server]
	SSHKeys         *Table[SSHKey]
	Networks        *Table[Network]
	Firewalls       *Table[Firewall]
	PlacementGroups *Table[PlacementGroup]
	LoadBalancers   *Table[LoadBalancer]
	Actions         *Table[Action]
	Faults          *Table[Fault]
}

// firstID: IDs look like IDs, and port names made of them stay short.
const firstID = 1000

func newTables() Tables {
	return Tables{
		Next:            firstID,
		Servers:         newTable[Server]("server"),
		SSHKeys:         newTable[SSHKey]("ssh_key"),
		Networks:        newTable[Network]("network"),
		Firewalls:       newTable[Firewall]("firewall"),
		PlacementGroups: newTable[PlacementGroup]("placement_group"),
		LoadBalancers:   newTable[LoadBalancer]("load_balancer"),
		Actions:         newTable[Action]("action"),
		Faults:          newTable[Fault]("fault"),
	}
}

func (t *Tables) all() []anyTable {
	return []anyTable{
		t.Servers, t.SSHKeys, t.Networks, t.Firewalls, t.PlacementGroups,
		t.LoadBalancers, t.Actions, t.Faults,
	}
}

func (t *Tables) apply(row changedRows) error {
	for _, tab := range t.all() {
		if tab.name() == row.Table {
			return tab.decode(row.ID, row.Row)
		}
	}
	return fmt.Errorf("unknown table %q: state written by a newer hk", row.Table)
}

// Meta is what every named resource has.
type Meta struct {
	ID      int64
	Project string
	Name    string
	Created time.Time
	Labels  map[string]string
}

// Server states, as the API spells them.
const (
	Initializing = "initializing" // its disk is being made
	Starting     = "starting"     // power is on, the machine's first process is not there yet
	Running      = "running"
	Stopping     = "stopping"
	Off          = "off"
	Deleting     = "deleting"
	Rebuilding   = "rebuilding"
	Migrating    = "migrating" // changing its type
)

// Server is a machine.
type Server struct {
	Meta
	Status         string
	Power          bool // it should run; what a restarted daemon goes by
	Type           string
	Location       string
	ImageID        int64
	DiskGB         int
	Slot           int // number of its public address in the subnet, 0 for none
	IPv4ID         int64
	DNSPtr         string
	UserData       string
	Keys           []string // public keys given at creation
	NICs           []NIC
	PlacementGroup int64
	ProtectDelete  bool
	ProtectRebuild bool
	Attachments    int // ever made; numbers MACs
}

// NIC is an attachment to a private network.
type NIC struct {
	Network int64
	IP      string
	Alias   []string
	MAC     string
	Name    string
}

// SSHKey is a public key.
type SSHKey struct {
	Meta
	Fingerprint string
	PublicKey   string
}

// Network is a private network.
type Network struct {
	Meta
	Range          string
	Subnets        []Subnet
	Routes         []Route
	ProtectDelete  bool
	ExposeToSwitch bool
}

// Subnet is a part of a network members get addresses from.
type Subnet struct {
	Type    string
	IPRange string
	Zone    string
}

// Route sends a destination to a member.
type Route struct {
	Destination string
	Gateway     string
}

// Firewall is a set of rules and what they are applied to.
type Firewall struct {
	Meta
	Rules     []Rule
	Servers   []int64
	Selectors []string
}

// Rule is a firewall rule.
type Rule struct {
	Direction    string
	Sources      []string
	Destinations []string
	Protocol     string
	Port         *string
	Description  *string
}

// PlacementGroup spreads servers; who is in it is written at the servers.
type PlacementGroup struct {
	Meta
	Type string
}

// LoadBalancer is a TCP proxy.
type LoadBalancer struct {
	Meta
	Type          string
	Location      string
	Algorithm     string
	Slot          int
	IPv4ID        int64
	PublicOff     bool
	DNSPtr        string
	Network       int64 // 0 for none
	PrivateIP     string
	Attachments   int
	Services      []Service
	Targets       []Target
	ProtectDelete bool
	Deleting      bool
}

// Service is a port a load balancer listens on.
type Service struct {
	Protocol      string
	ListenPort    int
	DestPort      int
	ProxyProtocol bool
	HTTP          *ServiceHTTP
	Check         Check
}

// ServiceHTTP is what an HTTP service has beside.
type ServiceHTTP struct {
	CookieName     string
	CookieLifetime int
	Certificates   []int64
	RedirectHTTP   bool
	StickySessions bool
	TimeoutIdle    int
}

// Check is how a service's targets are found healthy. Durations are seconds.
type Check struct {
	Protocol string
	Port     int
	Interval int
	Timeout  int
	Retries  int
	HTTP     *CheckHTTP
}

// CheckHTTP is what an HTTP check has beside.
type CheckHTTP struct {
	Domain      string
	Path        string
	Response    string
	StatusCodes []string
	TLS         bool
}

// Target is where a load balancer sends to; exactly one of Server, Selector and
// IP is set.
type Target struct {
	Server   int64
	Selector string
	IP       string
	Private  bool
}

// Action states.
const (
	ActionRunning = "running"
	ActionSuccess = "success"
	ActionError   = "error"
)

// Action is a piece of work. Until it is done it is also the note by which a
// restarted daemon knows what to do again.
type Action struct {
	ID        int64
	Project   string
	Command   string
	Status    string
	Started   time.Time
	Finished  time.Time
	ErrorCode string
	Error     string
	Resources []Resource
	Args      json.RawMessage // for the worker that does it
	After     int64           // action that must be done first
}

// Resource is what an action is about.
type Resource struct {
	Type string
	ID   int64
	Free bool `json:",omitempty"` // named only: the action does not lock it
}

// Fault makes the API misbehave.
type Fault struct {
	ID      int64
	Match   string
	Nth     int
	Every   bool
	Status  int
	Code    string
	Reset   bool
	Lost    bool
	DelayMS int
	Seen    int
	Hits    int
}
