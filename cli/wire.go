package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"golang.org/x/crypto/ssh"

	"hk/remote"
	"hk/remote/etcd"
	"hk/remote/hcloud"
	"hk/remote/kube"
	"hk/remote/lab"
	"hk/remote/sim"
	hkssh "hk/remote/ssh"
	"hk/tasks/host"
	"hk/tasks/spec"
)

// This file is the only place that knows which implementation stands behind an
// interface of remote. A world is cheap to open: nothing is dialled and no
// request is sent before something asks.

// worldOptions is what a world is made from.
type worldOptions struct {
	cfg *spec.Cluster
	// lease is the generation of the lease held, 0 for none.
	lease func() uint64
	log   func(line string) // connections made and lost; nil drops them
	quiet bool              // the command must not write anything
	// offline: nothing will be asked of the world; it may be anything.
	offline bool
}

// world is a remote.World with what hk itself wants to know of it.
type world struct {
	remote.World
	mirrors spec.Mirrors // used where the config names none
	signer  ssh.Signer   // nil with an agent only
	pubKey  string       // authorized_keys form, "" if unknown
	fetch   host.Fetch   // opens downloads where they come from
	calls   func() int64
	// ready tells, before the first request, what is known to be in its way; a
	// world that is not there can still be planned for by the records.
	ready func() error
	close func() error
}

// openWorld makes the world of a config.
func (a *app) openWorld(o worldOptions) (*world, error) {
	if o.lease == nil {
		o.lease = func() uint64 { return 0 }
	}
	switch o.cfg.Cloud {
	case "hetzner":
		acc, err := a.hetznerAccess()
		if err != nil && !o.offline {
			return nil, err
		}
		return a.realWorld("hetzner", acc, o)
	case "lab":
		return a.labWorld(o)
	case "sim":
		return a.simWorld(o)
	}
	return nil, &exitError{code: ExitConfig, class: classConfig, err: fmt.Errorf("cloud %q is not known", o.cfg.Cloud), hint: "clouds are hetzner, lab and sim"}
}

// labWorld is a lab on this computer. One that does not run can be planned for.
func (a *app) labWorld(o worldOptions) (*world, error) {
	name := o.cfg.Lab
	if name == "" {
		name = lab.DefaultName
	}
	down := &exitError{
		code: ExitCloud, class: classCloud, err: fmt.Errorf("lab %s is not running", name),
		hint: "hk lab up " + name + " starts it; where that cannot be (no root, no Linux), `cloud: sim` builds in memory",
	}
	in, err := lab.Lookup(a.getenv("HK_LAB_HOME"), name)
	switch {
	case errors.Is(err, lab.ErrNotFound) && o.offline:
		w := nowhere()
		w.ready = func() error { return down }
		return w, nil
	case errors.Is(err, lab.ErrNotFound):
		return nil, down
	case err != nil:
		return nil, err
	}
	w, err := a.realWorld("lab", access{token: in.Token, endpoint: in.Endpoint}, o)
	if err != nil {
		return nil, err
	}
	w.mirrors = spec.Mirrors{Artifacts: in.Mirror, Registry: "http://" + in.Registry}
	if !in.Running {
		w.ready = func() error { return down }
	}
	return w, nil
}

// nowhere is the world of commands that ask nothing of one.
func nowhere() *world {
	return &world{
		World: remote.World{Name: "nowhere", Clock: time.Now},
		ready: noFault, calls: func() int64 { return 0 }, close: noFault,
	}
}

func noFault() error { return nil }

// realWorld is one whose servers speak SSH, etcd and Kubernetes: Hetzner and
// the lab alike. Only endpoint and token differ.
func (a *app) realWorld(name string, acc access, o worldOptions) (*world, error) {
	if o.offline {
		return nowhere(), nil
	}
	c, err := hcloud.New(hcloud.Options{Token: acc.token, Endpoint: acc.endpoint, Version: version})
	if err != nil {
		return nil, &exitError{code: ExitCloud, class: classCloud, err: err, hint: acc.hint}
	}
	signer, pub, err := loadSSHKey(o.cfg)
	if err != nil {
		return nil, err
	}
	so := hkssh.Options{User: o.cfg.SSH.User, Port: o.cfg.SSH.Port, Generation: o.lease}
	if o.log != nil {
		so.Log = func(host, line string) { o.log(host + ": " + line) }
	}
	if signer != nil {
		so.Signers = append(so.Signers, signer)
	}
	if o.cfg.SSH.Agent {
		so.AgentSocket = a.getenv("SSH_AUTH_SOCK")
	}
	if b := o.cfg.SSH.Bastion; b.Host != "" {
		so.Bastion = &hkssh.Bastion{Addr: fmt.Sprintf("%s:%d", b.Host, b.Port), User: b.User, HostKey: b.HostKey}
	}
	pool := hkssh.New(so)
	return &world{
		World: remote.World{
			Name: name, Cloud: c, Hosts: pool, Clock: time.Now,
			NewKube: kube.New, NewEtcd: etcd.New,
		},
		signer: signer, pubKey: pub, fetch: fetchURL,
		calls: func() int64 { return c.Usage().Calls },
		ready: noFault, close: pool.Close,
	}, nil
}

// simWorld is the simulated world: a file beside the config, so that it
// outlives the process. A command that only reads makes none.
func (a *app) simWorld(o worldOptions) (*world, error) {
	if o.offline {
		return nowhere(), nil
	}
	path := o.cfg.Sim.World
	if _, err := os.Stat(path); o.quiet && errors.Is(err, fs.ErrNotExist) {
		path = ""
	}
	w, err := sim.Open(sim.Options{Path: path, Now: time.Now})
	if err != nil {
		return nil, &exitError{code: ExitState, class: classState, err: err, hint: "sim.world in the config names the file"}
	}
	signer, pub, err := loadSSHKey(o.cfg)
	if err != nil {
		return nil, errors.Join(err, w.Close())
	}
	rw := w.Remote(o.lease)
	return &world{
		World: rw, signer: signer, pubKey: pub, fetch: sim.Fetch,
		calls: func() int64 { return rw.Cloud.Usage().Calls },
		ready: noFault, close: w.Close,
	}, nil
}

// loadSSHKey reads the operator's key. Commands that never connect do not come
// here; a missing key is told with its place before anything is changed.
func loadSSHKey(c *spec.Cluster) (ssh.Signer, string, error) {
	data, err := os.ReadFile(c.SSH.Key)
	if err != nil {
		if c.SSH.Agent && errors.Is(err, fs.ErrNotExist) {
			pub, err := os.ReadFile(c.SSH.Key + ".pub")
			if err == nil {
				return nil, string(pub), nil
			}
		}
		return nil, "", &exitError{
			code: ExitConfig, class: classConfig, err: fmt.Errorf("ssh.key: %w", err),
			hint: "name the private key in the config (ssh.key), or make one: ssh-keygen -t ed25519 -f " + c.SSH.Key,
		}
	}
	signer, err := ssh.ParsePrivateKey(data)
	if err != nil {
		hint := "an OpenSSH or PEM private key is needed"
		if _, locked := errors.AsType[*ssh.PassphraseMissingError](err); locked {
			hint = "it has a passphrase: add it to your ssh-agent, set ssh.agent: true and keep the public key in " + c.SSH.Key + ".pub"
		}
		return nil, "", &exitError{code: ExitConfig, class: classConfig, err: fmt.Errorf("ssh.key %s: %w", c.SSH.Key, err), hint: hint}
	}
	return signer, string(ssh.MarshalAuthorizedKey(signer.PublicKey())), nil
}
