package api

import (
	"context"
	"net/netip"
	"time"
)

// Backend does to the real world what the API decided. Every method can be called
// again with the same arguments and brings things to the same end. Methods about
// different objects are called at the same time.
type Backend interface {
	// Build makes the machine's disk and interfaces.
	Build(ctx context.Context, m Machine) error
	// Start starts the machine, with interfaces as Build makes them; it returns when
	// its first process runs.
	Start(ctx context.Context, m Machine) error
	// Cut cuts the machine's power.
	Cut(ctx context.Context, id int64) error
	// Shutdown and Reboot ask the machine; they return at once.
	Shutdown(id int64) error
	Reboot(id int64) error
	// Wipe removes the disk but keeps the interfaces.
	Wipe(ctx context.Context, id int64) error
	// Remove removes machine, disk and interfaces.
	Remove(ctx context.Context, id int64) error
	// Power says how the machine is.
	Power(id int64) Power

	SyncNetwork(ctx context.Context, n Network) error
	RemoveNetwork(ctx context.Context, id int64) error
	// Join and Leave add and take a private interface of a server.
	Join(ctx context.Context, server int64, n NIC) error
	Leave(ctx context.Context, server, network int64) error

	// SyncRules makes the firewalls act as said, for all servers at once.
	SyncRules(ctx context.Context, guards []Guard) error
	// SyncNames sets what the lab's name server knows.
	SyncNames(names map[string]netip.Addr)

	// SyncBalancer makes the load balancer as said, and starts its proxy if needed.
	SyncBalancer(ctx context.Context, b Balancer) error
	RemoveBalancer(ctx context.Context, id int64) error
	// Health reports what a balancer's checks found last.
	Health(ctx context.Context, id int64) (map[TargetPort]Health, error)

	// Address is the public address of a slot; Slots bounds them (inclusive).
	Address(slot int) netip.Addr
	Slots() (first, last int)
	// MAC of a server's or balancer's nth private attachment.
	MAC(network, member int64, n int) string
}

// Power is how a machine is found.
type Power int

// How a machine can be found.
const (
	PowerOff    Power = iota // off, and it or somebody meant it
	PowerOn                  // runs
	PowerLost                // neither runs nor was switched off: the computer went down
	PowerReboot              // ended to be started again
)

// Machine is what a backend makes a server from.
type Machine struct {
	ID       int64
	Name     string
	Image    string
	Slot     int // 0: no public interface
	UserData string
	Keys     []string
	MemoryGB float64
	Cores    int
	NICs     []NIC
}

// NIC is a private interface.
type NIC struct {
	Network Network
	Name    string
	Addr    netip.Addr
	MAC     string
}

// Network is a private network.
type Network struct {
	ID      int64
	Range   netip.Prefix
	Subnets []netip.Prefix
	Routes  []NetworkRoute
}

// NetworkRoute sends a destination to a member.
type NetworkRoute struct {
	Destination netip.Prefix
	Gateway     netip.Addr
}

// Guard is what all firewalls of one server come to.
type Guard struct {
	Server  int64
	Addr    netip.Addr
	In, Out []GuardRule
}

// GuardRule is one of their rules.
type GuardRule struct {
	Protocol string
	Ports    string
	Nets     []netip.Prefix
}

// Balancer is what a backend makes a load balancer from.
type Balancer struct {
	ID        int64
	Slot      int // 0: no public interface
	NIC       *NIC
	Algorithm string
	Services  []BalancerService
	Targets   []BalancerTarget
}

// BalancerService is a port it listens on.
type BalancerService struct {
	Listen, Dest  int
	ProxyProtocol bool
	Check         BalancerCheck
}

// BalancerCheck is how targets of a service are found healthy.
type BalancerCheck struct {
	Protocol    string // tcp, http
	Port        int
	Interval    time.Duration
	Timeout     time.Duration
	Retries     int
	TLS         bool
	Domain      string
	Path        string
	Response    string
	StatusCodes []string
}

// BalancerTarget is an address it sends to.
type BalancerTarget struct {
	Key  string // stable name
	Addr netip.Addr
}

// TargetPort names a target at one of the services.
type TargetPort struct {
	Key    string
	Listen int
}

// Health is what a check found.
type Health struct {
	Status string // healthy, unhealthy, unknown
	Detail string
	Code   int // HTTP status
}
