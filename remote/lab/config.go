package lab

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/google/renameio/v2"
	"golang.org/x/sys/unix"

	"hk/remote/lab/fabric"
)

// config is lab.json: what is settled when a lab is made and stays.
type config struct {
	Name    string  `json:"name"`
	Index   int     `json:"index"`
	Port    int     `json:"port"` // of the API, on the loopback address
	Latency string  `json:"latency"`
	Cache   string  `json:"cache"`
	Exe     string  `json:"exe"`
	Tokens  []token `json:"tokens"`
}

type token struct {
	ID      string `json:"id"`
	Secret  string `json:"secret"`
	Project string `json:"project"`
}

// Ports of the lab's services at this computer's lab address.
const (
	mirrorPort   = 8080
	registryPort = 5000
	packagesPort = 3142 // apt-cacher-ng's
)

func configPath(dir string) string { return filepath.Join(dir, "lab.json") }

func readConfig(dir string) (*config, error) {
	b, err := os.ReadFile(configPath(dir))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%s: %w", filepath.Base(dir), ErrNotFound)
	}
	if err != nil {
		return nil, fmt.Errorf("reading lab: %w", err)
	}
	c := &config{}
	if err := json.Unmarshal(b, c); err != nil {
		return nil, fmt.Errorf("reading %s: %w", configPath(dir), err)
	}
	return c, nil
}

func (c *config) write(dir string) error {
	b, err := json.MarshalIndent(c, "", "  ")
	if err != nil {
		return err
	}
	if err := renameio.WriteFile(configPath(dir), append(b, '\n'), 0o600); err != nil {
		return fmt.Errorf("writing lab: %w", err)
	}
	return nil
}

// key names the lab on this computer: labs of one name can exist in two homes.
func (c *config) key() string { return fmt.Sprintf("%s-%d", c.Name, c.Index) }

func (c *config) fabric() *fabric.Fabric {
	return &fabric.Fabric{Name: c.key(), Index: c.Index, Services: []uint16{mirrorPort, registryPort, packagesPort}}
}

func (c *config) info(dir string) *Info {
	f := c.fabric()
	in := &Info{
		Name: c.Name, Endpoint: fmt.Sprintf("http://127.0.0.1:%d/v1", c.Port), Latency: c.Latency, Dir: dir,
		Mirror:   fmt.Sprintf("http://%s:%d", f.Host(), mirrorPort),
		Registry: fmt.Sprintf("%s:%d", f.Host(), registryPort),
		Address:  f.Host().String(), Subnet: f.Subnet().String(), Bridge: f.Bridge(),
	}
	if len(c.Tokens) > 0 {
		in.Token, in.Project = c.Tokens[0].Secret, c.Tokens[0].Project
	}
	return in
}

// settle writes the lab's config, a new one or the one it had with what options may
// change, and makes its bridge, by whose note other labs, of whatever home, see that
// its addresses are taken. Labs of this home that are down now keep theirs.
func settle(o Options, dir string) error {
	lock, err := os.OpenFile("/run/hk-lab.lock", os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	defer func() { _ = lock.Close() }()
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX); err != nil {
		return fmt.Errorf("locking lab addresses: %w", err)
	}
	c, err := readConfig(dir)
	if errors.Is(err, ErrNotFound) {
		c, err = newConfig(o, dir)
	}
	if err != nil {
		return err
	}
	c.Latency, c.Cache, c.Exe = o.Latency, o.CacheDir, o.Exe
	if err := c.fabric().Claim(dir); err != nil {
		return err
	}
	return c.write(dir)
}

func newConfig(o Options, dir string) (*config, error) {
	c := &config{Name: o.Name, Tokens: []token{{ID: "default", Secret: newSecret(), Project: "default"}}}
	taken := map[int]bool{}
	for _, other := range labDirs(o.HomeDir) {
		if oc, err := readConfig(other); err == nil && other != dir {
			taken[oc.Index] = true
		}
	}
	var err error
	if c.Index, err = fabric.FreeIndex(taken); err != nil {
		return nil, err
	}
	c.Port, err = freePort()
	return c, err
}

func labDirs(home string) []string {
	entries, err := os.ReadDir(home)
	if err != nil {
		return nil
	}
	var dirs []string
	for _, e := range entries {
		dir := filepath.Join(home, e.Name())
		if _, err := os.Stat(configPath(dir)); err == nil && e.IsDir() {
			dirs = append(dirs, dir)
		}
	}
	return dirs
}

// freePort finds a port of the loopback address that is free now.
func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // does not wait
	if err != nil {
		return 0, err
	}
	defer func() { _ = l.Close() }()
	_, p, err := net.SplitHostPort(l.Addr().String())
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(p)
}

// newSecret looks like the real cloud's tokens: 64 letters and digits.
func newSecret() string { return rand.Text() + rand.Text() + rand.Text()[:12] }

// daemon is run.json: who serves the lab now.
type daemon struct {
	PID   int    `json:"pid"`
	Start string `json:"start"` // the process's start time, so that a number used again is not mistaken
}

func daemonPath(dir string) string { return filepath.Join(dir, "run.json") }

// serving returns the pid of the daemon if it lives, else 0.
func serving(dir string) int {
	b, err := os.ReadFile(daemonPath(dir))
	if err != nil {
		return 0
	}
	var d daemon
	if json.Unmarshal(b, &d) != nil || d.PID == 0 || startTime(d.PID) != d.Start {
		return 0
	}
	return d.PID
}

// startTime is field 22 of /proc/PID/stat; "" if there is no such process.
func startTime(pid int) string {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return ""
	}
	// The second field is a name in parentheses that can hold anything.
	_, rest, ok := strings.Cut(string(b), ") ")
	f := strings.Fields(rest)
	if !ok || len(f) < 20 || f[0] == "Z" {
		return ""
	}
	return f[19]
}
