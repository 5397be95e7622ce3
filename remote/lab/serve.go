package lab

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/google/renameio/v2"
	"golang.org/x/sys/unix"

	"hk/remote/lab/api"
	"hk/remote/lab/fabric"
	"hk/remote/lab/image"
	"hk/remote/lab/lb"
	"hk/remote/lab/machine"
	"hk/remote/lab/names"
	"hk/remote/lab/state"
)

// Serve is the daemon: it answers the API until ctx ends. Machines and load
// balancers go on without it.
func Serve(ctx context.Context, o Options) error {
	o, err := o.withDefaults()
	if err != nil {
		return err
	}
	dir := o.dir()
	c, err := readConfig(dir)
	if err != nil {
		return err
	}
	unlock, err := lockDaemon(dir)
	if err != nil {
		return err
	}
	defer unlock()
	if err := writeDaemon(dir); err != nil {
		return err
	}
	raiseLimits()
	raiseInotify("/proc/sys/fs/inotify/max_user_instances")
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()

	store, err := state.Open(filepath.Join(dir, "state.log"))
	if err != nil {
		return err
	}
	defer func() { _ = store.Close() }()
	b := newBackend(dir, c, o.Log)
	if err := b.fabric.Up(ctx); err != nil {
		return fmt.Errorf("making the lab's network: %w", err)
	}
	if err := b.host.Clean(); err != nil {
		o.Log("cleaning up: " + err.Error())
	}
	srv := &servers{log: o.Log}
	defer srv.close()
	if err := srv.services(ctx, b); err != nil {
		return err
	}
	requests, err := os.OpenFile(filepath.Join(dir, "requests.jsonl"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer func() { _ = requests.Close() }()
	a := api.New(apiConfig(c, store, b, requests, o.Log))
	defer a.Close()
	b.host.Exited = a.Exited
	if err := a.Resume(); err != nil {
		o.Log("taking up where the last daemon stopped: " + err.Error())
	}
	// Last: who finds the API finds everything behind it.
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(c.Port)))
	if err != nil {
		return fmt.Errorf("opening the API: %w", err)
	}
	srv.http(l, a)
	o.Log("lab " + c.Name + " answers at " + c.info(dir).Endpoint)
	return housekeep(ctx, a, b)
}

// housekeep does what is to be done now and then, until ctx ends.
func housekeep(ctx context.Context, a *api.Server, b *backend) error {
	tick := time.NewTicker(10 * time.Second)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
			if err := a.Prune(); err != nil {
				b.log("forgetting old actions: " + err.Error())
			}
			if err := b.fabric.KeepForwardOpen(ctx); err != nil {
				b.log(err.Error())
			}
		}
	}
}

func newBackend(dir string, c *config, log func(string)) *backend {
	imgs := &images{cache: c.Cache}
	return &backend{
		dir: dir, exe: c.Exe, fabric: c.fabric(), names: &names.Server{}, images: imgs, log: log,
		host: &machine.Host{
			Lab: c.key(), Index: c.Index, Dir: filepath.Join(dir, "servers"),
			Enter: fabric.Do,
			Fill: func(ctx context.Context, name, dst string) error {
				set, err := imgs.load(ctx, name)
				if err != nil {
					return err
				}
				return image.FillContainerd(set, name, dst)
			},
		},
	}
}

func apiConfig(c *config, store *state.Store, b *backend, requests io.Writer, log func(string)) api.Config {
	ac := api.Config{Store: store, Backend: b, Requests: requests, Log: log}
	for _, t := range c.Tokens {
		ac.Tokens = append(ac.Tokens, api.Token{ID: t.ID, Secret: t.Secret, Project: t.Project})
	}
	if c.Latency == LatencyHetzner {
		ac.Latency = hetznerLatency
	}
	return ac
}

// hetznerLatency is how long the real cloud's actions take at least, as users have
// reported it: a stock image is up after 11 to 25 seconds.
func hetznerLatency(command string) time.Duration {
	switch command {
	case "create_server":
		return 8 * time.Second
	case "start_server", "reset_server":
		return 4 * time.Second
	case "rebuild_server":
		return 15 * time.Second
	case "delete_server", "stop_server", "change_server_type":
		return 3 * time.Second
	case "create_load_balancer", "attach_to_network", "detach_from_network":
		return 2 * time.Second
	}
	return time.Second
}

// lockDaemon makes sure that a lab has one daemon.
func lockDaemon(dir string) (func(), error) {
	f, err := os.OpenFile(filepath.Join(dir, "daemon.lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("the lab in %s is being served already", dir)
	}
	return func() { _ = f.Close() }, nil
}

// raiseLimits: a lab of a hundred machines has many files open.
func raiseLimits() {
	var lim unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &lim) == nil {
		lim.Cur = lim.Max
		_ = unix.Setrlimit(unix.RLIMIT_NOFILE, &lim)
	}
}

// inotifyInstances is enough for a hundred machines: each has systemd, a
// kubelet and a container runtime that watch files.
const inotifyInstances = 8192

// raiseInotify: the machines share one limit with the computer, whose default of
// 128 ends at about five of them; containerd then starts without its CRI.
func raiseInotify(path string) {
	b, err := os.ReadFile(path)
	if err != nil {
		return
	}
	if n, err := strconv.Atoi(strings.TrimSpace(string(b))); err == nil && n < inotifyInstances {
		_ = os.WriteFile(path, []byte(strconv.Itoa(inotifyInstances)), 0o644) //nolint:gosec // a kernel setting, not a file
	}
}

func writeDaemon(dir string) error {
	b, err := json.Marshal(daemon{PID: os.Getpid(), Start: startTime(os.Getpid())})
	if err != nil {
		return err
	}
	return renameio.WriteFile(daemonPath(dir), b, 0o600)
}

// servers are the daemon's listeners.
type servers struct {
	log     func(string)
	closers []io.Closer
}

func (s *servers) close() {
	for _, c := range s.closers {
		_ = c.Close()
	}
}

func (s *servers) http(l net.Listener, h http.Handler) {
	srv := &http.Server{Handler: h, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute}
	s.closers = append(s.closers, srv)
	go func() {
		if err := srv.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			s.log("serving: " + err.Error())
		}
	}()
}

// services opens what machines need: names, artifacts, container images.
func (s *servers) services(ctx context.Context, b *backend) error {
	var lc net.ListenConfig
	at := func(port int) string { return net.JoinHostPort(b.fabric.Host().String(), strconv.Itoa(port)) }
	udp, err := lc.ListenPacket(ctx, "udp", at(53))
	if err != nil {
		return fmt.Errorf("opening the name server: %w", err)
	}
	s.closers = append(s.closers, udp)
	go b.names.ServeUDP(udp)
	tcp, err := lc.Listen(ctx, "tcp", at(53))
	if err != nil {
		return fmt.Errorf("opening the name server: %w", err)
	}
	s.closers = append(s.closers, tcp)
	go b.names.ServeTCP(ctx, tcp)
	for _, x := range []struct {
		port int
		what string
		make func(*image.Set) (http.Handler, error)
	}{
		{mirrorPort, "artifact mirror", func(set *image.Set) (http.Handler, error) { return image.Mirror(set), nil }},
		{registryPort, "container registry", image.Registry},
		{packagesPort, "package proxy", func(*image.Set) (http.Handler, error) { return image.Packages(ctx, b.images.cache) }},
	} {
		l, err := lc.Listen(ctx, "tcp", at(x.port))
		if err != nil {
			return fmt.Errorf("opening the %s: %w", x.what, err)
		}
		s.http(l, lazy(b.images, x.make))
	}
	return nil
}

// lazy makes a handler of the images when it is first needed, and again after it
// could not be made: the cache may still be being filled.
func lazy(imgs *images, make func(*image.Set) (http.Handler, error)) http.Handler {
	ready := newOnce(func(ctx context.Context) (http.Handler, error) {
		set, err := imgs.load(ctx, "")
		if err != nil {
			return nil, err
		}
		return make(set)
	})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h, err := ready(r.Context())
		if err != nil {
			imgs.forget()
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		h.ServeHTTP(w, r)
	})
}

// ServeLB is one load balancer's proxy; dir is its folder inside the lab.
func ServeLB(ctx context.Context, dir string) error {
	raiseLimits()
	return lb.Run(ctx, dir, func(l string) {
		fmt.Fprintln(os.Stderr, time.Now().UTC().Format(time.RFC3339), l)
	})
}
