package lab

import (
	"os"
	"path/filepath"
	"strconv"
)

// Lookup returns one lab, running or not; ErrNotFound if there is none.
func Lookup(home, name string) (*Info, error) {
	o, err := Options{Name: name, HomeDir: home, Exe: "-"}.withDefaults()
	if err != nil {
		return nil, err
	}
	return lookup(o.dir())
}

func lookup(dir string) (*Info, error) {
	c, err := readConfig(dir)
	if err != nil {
		return nil, err
	}
	in := c.info(dir)
	in.Servers = countServers(dir)
	if pid := serving(dir); pid != 0 && answers(in) {
		in.Running, in.PID = true, pid
	}
	return in, nil
}

// countServers counts the machines that have a disk.
func countServers(dir string) int {
	entries, err := os.ReadDir(filepath.Join(dir, "servers"))
	if err != nil {
		return 0
	}
	n := 0
	for _, e := range entries {
		if _, err := strconv.ParseInt(e.Name(), 10, 64); err == nil {
			n++
		}
	}
	return n
}

// List returns all labs under home ("" as in Options.HomeDir), by name.
func List(home string) ([]Info, error) {
	o, err := Options{HomeDir: home, Exe: "-"}.withDefaults()
	if err != nil {
		return nil, err
	}
	var out []Info
	for _, dir := range labDirs(o.HomeDir) {
		in, err := lookup(dir)
		if err != nil {
			return nil, err
		}
		out = append(out, *in)
	}
	return out, nil
}
