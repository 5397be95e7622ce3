package lab

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"

	"hk/remote/lab/image"
)

// hostPackages are the Debian packages a lab needs on this computer.
func hostPackages() []string {
	return []string{"systemd-container", "iproute2", "iptables", "nftables"}
}

// startTimeout bounds how long a daemon may take to answer; it may have machines to
// find and load balancers to start first.
const startTimeout = 2 * time.Minute

// Up brings a lab up and returns once its API answers: prepares images, starts
// the daemon in a session of its own. A lab that is up already is left alone.
func Up(ctx context.Context, o Options) (*Info, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	if err := supported(); err != nil {
		return nil, err
	}
	if in, err := Lookup(o.HomeDir, o.Name); err == nil && in.Running { //nolint:contextcheck // asks for a moment at most
		return in, nil
	}
	if !o.SkipPrepare {
		_, err := image.Prepare(ctx, image.Options{CacheDir: o.CacheDir, Log: o.Log, ExtraPackages: hostPackages()})
		if err != nil {
			return nil, fmt.Errorf("preparing the lab's images: %w", err)
		}
	}
	if err := hasTools(); err != nil {
		return nil, err
	}
	dir := o.dir()
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("making the lab's folder: %w", err)
	}
	if err := settle(o, dir); err != nil {
		return nil, err
	}
	if err := start(ctx, o, dir); err != nil {
		return nil, err
	}
	return Lookup(o.HomeDir, o.Name) //nolint:contextcheck // asks for a moment at most
}

// supported says what about this computer keeps it from holding a lab.
func supported() error {
	if runtime.GOOS != "linux" {
		return fmt.Errorf("%w: it needs Linux", ErrUnsupported)
	}
	if os.Geteuid() != 0 {
		return fmt.Errorf("%w: it needs root", ErrUnsupported)
	}
	return nil
}

func hasTools() error {
	var missing []string
	for _, tool := range []string{"systemd-nspawn", "nft", "sh", "find"} {
		if _, err := exec.LookPath(tool); err != nil {
			missing = append(missing, tool)
		}
	}
	if len(missing) > 0 {
		return fmt.Errorf("%w: %s missing; apt-get install %s", ErrUnsupported, strings.Join(missing, ", "), strings.Join(hostPackages(), " "))
	}
	return nil
}

// start starts the daemon, unless there is one that has only not answered yet, and
// waits until it answers.
func start(ctx context.Context, o Options, dir string) error {
	logPath := filepath.Join(dir, "daemon.log")
	exited := make(chan struct{})
	if serving(dir) == 0 {
		if err := spawn(o, logPath, exited); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	for {
		if in, err := Lookup(o.HomeDir, o.Name); err == nil && in.Running { //nolint:contextcheck // asks for a moment at most
			return nil
		}
		select {
		case <-exited:
			exited = nil
			// Another Up may have been quicker: then its daemon is the one to wait for.
			if serving(dir) == 0 {
				text, _ := os.ReadFile(logPath)
				return fmt.Errorf("the lab's daemon ended: %s (see %s)", lastLine(string(text)), logPath)
			}
		case <-ctx.Done():
			return fmt.Errorf("the lab's daemon does not answer: %w (see %s)", ctx.Err(), logPath)
		case <-time.After(25 * time.Millisecond):
		}
	}
}

// spawn runs the daemon in a session of its own and closes exited if it ends.
func spawn(o Options, logPath string, exited chan<- struct{}) error {
	logf, err := os.OpenFile(logPath, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer func() { _ = logf.Close() }()
	cmd := exec.Command(o.Exe, "lab", "serve", o.Name) //nolint:noctx // outlives us on purpose
	cmd.Dir = "/"
	cmd.Env = append(os.Environ(), "HK_LAB_HOME="+o.HomeDir)
	cmd.Stdout, cmd.Stderr = logf, logf
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("starting the lab's daemon: %w", err)
	}
	go func() {
		_ = cmd.Wait()
		close(exited)
	}()
	return nil
}

// answers reports whether a lab's API answers.
func answers(in *Info) bool {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSuffix(in.Endpoint, "/v1")+"/_lab/ping", nil)
	if err != nil {
		return false
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return false
	}
	defer func() { _ = resp.Body.Close() }()
	return resp.StatusCode == http.StatusOK
}
