package lab

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
)

// DefaultName is the lab that is meant when none is named.
const DefaultName = "default"

// DefaultHome is where labs keep their state unless HK_LAB_HOME says otherwise.
const DefaultHome = "/var/lib/hk-lab"

// Latencies a lab can be asked for.
const (
	LatencyNone    = "none"    // an action is done as soon as its work is done
	LatencyHetzner = "hetzner" // an action takes at least as long as the real one
)

// Errors a caller may branch on.
var (
	// ErrNotFound says that there is no lab of that name.
	ErrNotFound = errors.New("no such lab")
	// ErrUnsupported says that this computer cannot hold a lab; the text around
	// it says what is missing.
	ErrUnsupported = errors.New("this computer cannot run a lab")
)

// Options say which lab is meant and how it should be.
type Options struct {
	// Name of the lab; empty means DefaultName. Letters, digits and dashes.
	Name string
	// HomeDir holds all labs' state; empty means $HK_LAB_HOME, else DefaultHome.
	HomeDir string
	// CacheDir holds base roots and artifacts; empty means the hk folder of the
	// XDG cache directory.
	CacheDir string
	// Latency is LatencyNone (default) or LatencyHetzner.
	Latency string
	// Exe is the program that is run again as the daemon (`lab serve NAME`) and
	// as load balancers (`lab lb DIR`); empty means the running program.
	Exe string
	// SkipPrepare makes Up start the lab on whatever is in the cache already,
	// without building what is missing.
	SkipPrepare bool
	// Log takes progress lines; nil drops them.
	Log func(string)
}

var nameRE = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,30}[a-z0-9])?$`)

// withDefaults fills what was left empty and refuses what cannot be.
func (o Options) withDefaults() (Options, error) {
	if o.Name == "" {
		o.Name = DefaultName
	}
	if !nameRE.MatchString(o.Name) {
		return o, fmt.Errorf("lab name %q: lower-case letters, digits and dashes, at most 32", o.Name)
	}
	if o.HomeDir == "" {
		o.HomeDir = os.Getenv("HK_LAB_HOME")
	}
	if o.HomeDir == "" {
		o.HomeDir = DefaultHome
	}
	var err error
	if o.HomeDir, err = filepath.Abs(o.HomeDir); err != nil {
		return o, err
	}
	if o.CacheDir == "" {
		base, err := os.UserCacheDir()
		if err != nil {
			return o, fmt.Errorf("finding the cache directory: %w", err)
		}
		o.CacheDir = filepath.Join(base, "hk")
	}
	switch o.Latency {
	case "":
		o.Latency = LatencyNone
	case LatencyNone, LatencyHetzner:
	default:
		return o, fmt.Errorf("latency %q: want none or hetzner", o.Latency)
	}
	if o.Exe == "" {
		if o.Exe, err = os.Executable(); err != nil {
			return o, fmt.Errorf("finding the running program: %w", err)
		}
	}
	if o.Log == nil {
		o.Log = func(string) {}
	}
	return o, nil
}

// dir is where this lab keeps everything it has.
func (o Options) dir() string { return filepath.Join(o.HomeDir, o.Name) }
