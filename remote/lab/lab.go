package lab

import "context"

// Info is what a client needs to know of a lab.
type Info struct {
	Name     string `json:"name"`
	Running  bool   `json:"running"`  // the daemon answers
	Endpoint string `json:"endpoint"` // HCLOUD_ENDPOINT, http://127.0.0.1:PORT/v1
	Token    string `json:"token"`    // HCLOUD_TOKEN of Project
	Project  string `json:"project"`
	Mirror   string `json:"mirror"`   // artifact mirror, reachable from machines and from this computer
	Registry string `json:"registry"` // host:port of the container registry, plain HTTP, likewise
	Address  string `json:"address"`  // this computer's address inside the lab
	Subnet   string `json:"subnet"`   // public addresses of the lab's machines
	Bridge   string `json:"bridge"`   // the bridge all public traffic of the lab crosses
	Dir      string `json:"dir"`      // the lab's state; requests.jsonl is in it
	Latency  string `json:"latency"`
	PID      int    `json:"pid"` // of the daemon, 0 if it does not run
	Servers  int    `json:"servers"`
}

// Up brings a lab up and returns once its API answers: prepares images, starts
// the daemon in a session of its own. A lab that is up already is left alone.
func Up(ctx context.Context, o Options) (*Info, error) { panic("skeleton") }

// Serve is the daemon: it answers the API until ctx ends. Machines and load
// balancers go on without it.
func Serve(ctx context.Context, o Options) error { panic("skeleton") }

// ServeLB is one load balancer's proxy; dir is its folder inside the lab.
func ServeLB(ctx context.Context, dir string) error { panic("skeleton") }

// Down removes the lab: machines, load balancers, daemon, networks, files. It
// works on whatever is left of a lab, also after a crash, and is no error if
// there is none.
func Down(ctx context.Context, o Options) error { panic("skeleton") }

// List returns all labs under home ("" as in Options.HomeDir), by name.
func List(home string) ([]Info, error) { panic("skeleton") }

// Lookup returns one lab, running or not; ErrNotFound if there is none.
func Lookup(home, name string) (*Info, error) { panic("skeleton") }

// Finding is one difference between what a lab remembers and what there is.
type Finding struct {
	Kind   string `json:"kind"`   // process, mount, veth, netns, cgroup, file, firewall, api
	Object string `json:"object"` // e.g. server 12
	Detail string `json:"detail"`
}

// Doctor compares a lab's state with processes, mounts, interfaces, cgroups and
// files, and returns every difference.
func Doctor(ctx context.Context, o Options) ([]Finding, error) { panic("skeleton") }

// Fault is one rule that makes the API misbehave. A request matches if its
// "METHOD /path" matches Match; it is hit if it is the Nth match (1-based), or
// every match when Every is set.
type Fault struct {
	ID      int64  `json:"id"`
	Match   string `json:"match"`              // regexp over "METHOD /path"
	Nth     int    `json:"nth,omitempty"`      // hit only the nth match
	Every   bool   `json:"every,omitempty"`    // hit every match
	Status  int    `json:"status,omitempty"`   // answer with this HTTP status …
	Code    string `json:"code,omitempty"`     // … and this error code
	Reset   bool   `json:"reset,omitempty"`    // reset the connection, nothing done
	Lost    bool   `json:"lost,omitempty"`     // do it, then reset the connection
	DelayMS int    `json:"delay_ms,omitempty"` // wait before anything else
	Seen    int    `json:"seen"`               // matches so far
	Hits    int    `json:"hits"`               // hits so far
}

// AddFault adds a fault to a running lab and returns it with its ID.
func AddFault(ctx context.Context, in *Info, f Fault) (Fault, error) { panic("skeleton") }

// Faults lists a running lab's faults.
func Faults(ctx context.Context, in *Info) ([]Fault, error) { panic("skeleton") }

// RemoveFault removes one fault, or all of them if id is 0.
func RemoveFault(ctx context.Context, in *Info, id int64) error { panic("skeleton") }
