package ssh

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
)

// The system's programs in tests: this test binary under their names. Units
// live in $HK_ROOT/fake/units.json, calls are listed in $HK_ROOT/fake/calls.
var fakes = map[string]func(*fake) int{
	"systemctl": (*fake).systemctl, "systemd-run": (*fake).systemdRun, "dpkg-query": (*fake).dpkgQuery,
	"apt-get": (*fake).aptGet, "ctr": (*fake).ctr, "crictl": (*fake).crictl, "wg": (*fake).wg, "ip": (*fake).ip,
	"journalctl": (*fake).nothing, "sshd": (*fake).nothing, "modprobe": (*fake).nothing,
}

func TestMain(m *testing.M) {
	if f := fakes[filepath.Base(os.Args[0])]; f != nil {
		os.Exit(fakeMain(f))
	}
	goleak.VerifyTestMain(m)
}

type fake struct {
	root  string
	args  []string
	words []string // args that are no options
	units map[string]*fakeUnit
}

// fakeUnit is what the fake systemd knows of a unit.
type fakeUnit struct {
	Active     string   `json:"active,omitempty"`
	Enabled    string   `json:"enabled,omitempty"`
	Invocation string   `json:"invocation,omitempty"`
	Since      int64    `json:"since,omitempty"`
	Pid        int      `json:"pid,omitempty"`
	Fails      bool     `json:"fails,omitempty"`
	Helper     []string `json:"helper,omitempty"` // files its ExecStartPre notes
}

func fakeMain(run func(*fake) int) int {
	f := &fake{root: os.Getenv("HK_ROOT"), args: os.Args[1:], units: map[string]*fakeUnit{}}
	for _, a := range f.args {
		if !strings.HasPrefix(a, "-") {
			f.words = append(f.words, a)
		}
	}
	must := func(err error) {
		if err != nil {
			panic(err)
		}
	}
	must(os.MkdirAll(f.root+"/fake", 0o755))
	lock, err := os.OpenFile(f.root+"/fake/lock", os.O_CREATE|os.O_RDWR, 0o600)
	must(err)
	must(syscall.Flock(int(lock.Fd()), syscall.LOCK_EX))
	calls, err := os.OpenFile(f.root+"/fake/calls", os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	must(err)
	_, err = fmt.Fprintln(calls, strings.Join(append([]string{filepath.Base(os.Args[0])}, f.args...), " "))
	must(err)
	if b, err := os.ReadFile(f.root + "/fake/units.json"); err == nil {
		must(json.Unmarshal(b, &f.units))
	}
	code := run(f)
	b, err := json.Marshal(f.units)
	must(err)
	must(os.WriteFile(f.root+"/fake/units.json", b, 0o600))
	return code
}

func (f *fake) nothing() int { return 0 }

func invocation() string { return fmt.Sprintf("%032x", time.Now().UnixNano()) }

func (f *fake) unit(name string) *fakeUnit {
	u := f.units[name]
	if u == nil {
		u = &fakeUnit{Active: "inactive"}
		f.units[name] = u
	}
	if u.Pid != 0 && u.Active == "active" {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", u.Pid))
		if err != nil || strings.HasPrefix(string(b[strings.LastIndex(string(b), ")")+2:]), "Z") {
			u.Active = "inactive"
		}
	}
	return u
}

func (f *fake) start(name string) bool {
	u := f.unit(name)
	if u.Fails {
		u.Active = "failed"
		return false
	}
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		panic(err)
	}
	u.Active, u.Invocation, u.Since = "active", invocation(), now.Nano()/1000
	if u.Helper != nil {
		cmd := exec.Command(f.root+"/usr/local/lib/hk/started", append([]string{name}, u.Helper...)...)
		cmd.Env = append(os.Environ(), "INVOCATION_ID="+u.Invocation)
		if out, err := cmd.CombinedOutput(); err != nil {
			panic(string(out))
		}
	}
	return true
}

func (f *fake) systemctl() int {
	if f.words[0] == "show" {
		for _, n := range f.args[slices.Index(f.args, "--")+1:] {
			u := f.unit(n)
			fmt.Printf("Id=%s\nActiveState=%s\nUnitFileState=%s\nInvocationID=%s\nInactiveExitTimestampMonotonic=%d\n"+
				"Type=simple\nResult=success\nNeedDaemonReload=no\n\n", n, u.Active, u.Enabled, u.Invocation, u.Since)
		}
		return 0
	}
	code := 0
	for _, n := range f.words[1:] {
		u := f.unit(n)
		switch f.words[0] {
		case "start", "restart":
			if !f.start(n) {
				code = 1
			}
		case "reload-or-restart":
			if u.Active != "active" && !f.start(n) {
				code = 1
			}
		case "stop":
			if u.Pid != 0 {
				_ = syscall.Kill(-u.Pid, syscall.SIGKILL)
			}
			u.Active = "inactive"
		case "enable":
			u.Enabled = "enabled"
		case "disable", "unmask":
			u.Enabled = "disabled"
		case "mask":
			u.Enabled = "masked"
		case "reset-failed":
			u.Active = "inactive"
		}
	}
	return code
}

func (f *fake) systemdRun() int {
	var name string
	var argv []string
	for _, a := range f.args {
		if n, ok := strings.CutPrefix(a, "--unit="); ok {
			name = n + ".service"
		} else if strings.HasPrefix(a, f.root) {
			argv = append(argv, a)
		}
	}
	u := &fakeUnit{Active: "active", Invocation: invocation()}
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Env = append(os.Environ(), "INVOCATION_ID="+u.Invocation)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		panic(err)
	}
	u.Pid = cmd.Process.Pid
	f.units[name] = u
	return 0
}

func (f *fake) there(kind, name string) bool {
	_, err := os.Stat(f.root + "/fake/" + kind + strings.ReplaceAll(name, "/", "!"))
	return !errors.Is(err, os.ErrNotExist)
}

func (f *fake) put(kind, name string) {
	if err := os.WriteFile(f.root+"/fake/"+kind+strings.ReplaceAll(name, "/", "!"), nil, 0o600); err != nil {
		panic(err)
	}
}

func (f *fake) dpkgQuery() int {
	for _, n := range f.words[1:] {
		if f.there("pkg-", n) {
			fmt.Println("ii " + n)
		}
	}
	return 0
}

func (f *fake) aptGet() int {
	if i := slices.Index(f.words, "install"); i >= 0 {
		for _, n := range f.words[i+1:] {
			f.put("pkg-", n)
		}
	}
	return 0
}

func (f *fake) ctr() int {
	list, err := filepath.Glob(f.root + "/fake/image-*")
	if err != nil {
		panic(err)
	}
	for _, p := range list {
		fmt.Println(strings.ReplaceAll(strings.TrimPrefix(filepath.Base(p), "image-"), "!", "/"))
	}
	return 0
}

func (f *fake) crictl() int {
	f.put("image-", f.words[len(f.words)-1])
	return 0
}

func (f *fake) wg() int {
	fmt.Println("secret\tpublic\t51820\toff")
	fmt.Println("peer1\t(none)\t198.18.0.2:51820\t10.100.0.2/32,10.128.2.0/24\t1700000000\t1\t2\toff")
	return 0
}

func (f *fake) ip() int {
	fmt.Println(`[{"ifindex":2,"ifname":"host0","flags":["BROADCAST","UP"],"mtu":1500,"address":"02:00:00:00:00:01",` +
		`"addr_info":[{"family":"inet","local":"198.18.0.1","prefixlen":16}]}]`)
	return 0
}
