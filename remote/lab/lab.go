package lab

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
