package image

import (
	"fmt"
	"runtime"

	"golang.org/x/sys/unix"
)

// arch is the one architecture of lab machines, in Go's and Debian's spelling.
const arch = "amd64"

// facts are properties of the computer that end up in the machine images.
type facts struct {
	// CgroupV1 is true if the memory controller is a version 1 one: then kubelet
	// must not use the systemd driver, as nspawn gives machines no delegated tree.
	CgroupV1 bool
}

// readFacts looks at the computer.
func readFacts() (facts, error) {
	if runtime.GOOS != "linux" || runtime.GOARCH != arch {
		return facts{}, fmt.Errorf("the lab's images are for linux/%s, this computer is %s/%s", arch, runtime.GOOS, runtime.GOARCH)
	}
	var st unix.Statfs_t
	if err := unix.Statfs("/sys/fs/cgroup", &st); err != nil {
		return facts{}, fmt.Errorf("looking at /sys/fs/cgroup: %w", err)
	}
	return facts{CgroupV1: st.Type != unix.CGROUP2_SUPER_MAGIC}, nil
}

func (f facts) String() string {
	if f.CgroupV1 {
		return "cgroup v1"
	}
	return "cgroup v2"
}
