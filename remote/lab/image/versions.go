package image

// Versions of everything that is built. The lab's mirror serves these and no others;
// what hk asks for must be among them.
type Versions struct {
	Kubernetes []string // v1.37.2
	Etcd       string   // v3.7.3
	Containerd string   // v2.4.2
	Runc       string   // v1.5.3
	CNI        string   // v1.10.0
	CRITools   string   // v1.37.0
	Tools      string   // tag of the hk-tools image
}

// DefaultVersions are the versions that were tried together.
func DefaultVersions() Versions {
	return Versions{
		Kubernetes: []string{"v1.37.2"},
		Etcd:       "v3.7.3",
		Containerd: "v2.4.2",
		Runc:       "v1.5.3",
		CNI:        "v1.10.0",
		CRITools:   "v1.37.0",
		Tools:      "v1",
	}
}
