package masters

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"hk/cache/fp"
	"hk/graph"
	"hk/remote"
	"hk/tasks"
	"hk/tasks/host"
	"hk/tasks/kubenode"
	"hk/tasks/pki"
	"hk/tasks/spec"
)

// Files of one run of kubeadm; gone with the next boot.
const (
	initFile  = "/run/hk/kubeadm-init.yaml"
	onceFile  = "/run/hk/kubeadm-once.yaml"
	renderDir = "/run/hk/kubeadm"
)

// Deadlines: of kubeadm init with its own waiting, and of an API server's
// /readyz after its manifest is there.
const (
	initLimit  = 12 * time.Minute
	readyLimit = 3 * time.Minute
)

// superLife is how long the super administrator's certificate on a host could
// be used if removing it failed.
const superLife = time.Hour

type controlPlaneIn struct {
	Cluster    string `part:"config:name"`
	Host       string `part:"alloc:host"`
	Node       string `part:"alloc:node"`
	MeshIP     string `part:"alloc:mesh"`
	ProviderID string `part:"out:server.id"`
	CgroupV1   bool   `part:"out:ssh.cgroup"`
	Restricted bool   `part:"out:ssh.restricted"`
	Kubelet    string `part:"out:kubelet.kubelet"`
	Shared     string `part:"out:config.shared"`
}

// controlPlaneKind makes the master's control plane and keeps its kubelet
// running. Before the cluster is established all masters do this at the same
// time; afterwards one at a time, the next only when this one is ready.
func controlPlaneKind() tasks.Kind {
	return tasks.Define(graph.Kind{
		Phase: Phase, Part: "control-plane", Scope: graph.OnHost, Roles: []string{spec.Master},
		Pool: "apiserver", Guard: "apiserver", Recipe: 1,
		Needs: kubenode.OnHost(
			kubenode.Same(CertsKind), kubenode.Same(ConfigKind), kubenode.Same(kubenode.KubeletKind),
			kubenode.Same(kubenode.ImagesKind), kubenode.Same(kubenode.EndpointKind), kubenode.Same(kubenode.MeshKind),
			graph.Need{Kind: kubenode.EtcdHealthKind, Via: graph.ToCluster, Why: "an API server starts on an etcd that has a quorum"},
		),
		Title: "control plane",
	}, tasks.Def[controlPlaneIn]{
		Inputs: func(v *tasks.View) (controlPlaneIn, error) {
			ssh := v.Out(kubenode.SSHKind)
			return controlPlaneIn{
				Cluster: v.Spec.Name, Host: v.Host.Name, Node: v.Host.Node, MeshIP: v.Host.MeshIP,
				ProviderID: kubenode.ProviderID(v.Out(kubenode.ServerKind)["id"]),
				CgroupV1:   !kubenode.CgroupV2(ssh), Restricted: kubenode.Restricted(ssh),
				Kubelet: v.Out(kubenode.KubeletKind)["kubelet"], Shared: v.Out(ConfigKind)["shared"],
			}, nil
		},
		Declared: func(controlPlaneIn) remote.HostState { return controlPlaneState() },
		Run:      runControlPlane,
		Verify:   verifyControlPlane,
	})
}

// controlPlaneState is kubelet's unit, what kubeadm wrote, and the absence of
// the super administrator.
func controlPlaneState() remote.HostState {
	st := remote.HostState{Files: kubenode.WrittenByKubeadm(), Units: []remote.Unit{kubenode.Unit()}}
	for _, m := range kubenode.Manifests() {
		st.Files = append(st.Files, remote.File{Path: m, Mode: 0o600, Later: true})
	}
	st.Files = append(st.Files, remote.File{Path: superFile, Absent: true})
	return st
}

func runControlPlane(ctx context.Context, in controlPlaneIn, e *tasks.Env) error {
	seen, err := kubenode.Look(ctx, e.Host, in.Restricted, in.CgroupV1)
	if err != nil {
		return err
	}
	if e.Established && seen.HasControlPlane() {
		standing, err := kubenode.Standing(ctx, e, in.Node, in.ProviderID)
		// Without an API to ask, what is on the disk decides: a control plane
		// that once stood is started, not made anew.
		if err != nil || standing {
			return renew(ctx, e)
		}
	}
	if e.Established {
		if err := kubenode.DropStale(ctx, e, in.Node, in.ProviderID); err != nil {
			return err
		}
	}
	if err := initialise(ctx, in, seen, e); err != nil {
		return err
	}
	_, err = e.Host.Apply(ctx, kubenode.Now(controlPlaneState()))
	return err
}

// initialise runs kubeadm init. Its name as a job is the same whatever an
// earlier run left, so that one still running is found and waited for; what it
// has to ignore is in a file.
func initialise(ctx context.Context, in controlPlaneIn, seen kubenode.Seen, e *tasks.Env) (err error) {
	text, err := e.Host.Get(ctx, kubenode.KubeadmConfig)
	if err != nil {
		return err
	}
	text, err = withInit(text, func(o object) {
		reg, _ := o["nodeRegistration"].(object)
		if reg == nil {
			reg = object{}
			o["nodeRegistration"] = reg
		}
		reg["ignorePreflightErrors"] = kubenode.IgnoreInit(seen)
	})
	if err != nil {
		return err
	}
	super, err := superConf(in, e)
	if err != nil {
		return err
	}
	_, err = e.Host.Apply(ctx, remote.HostState{Files: []remote.File{
		{Path: initFile, Mode: 0o600, Content: text},
		{Path: superFile, Mode: 0o600, Secret: true, Content: super},
	}})
	if err != nil {
		return err
	}
	// Removed whatever happens: also when the build was interrupted.
	defer func() {
		rmCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 15*time.Second)
		defer cancel()
		_, rmErr := e.Host.Apply(rmCtx, remote.HostState{Files: []remote.File{{Path: superFile, Absent: true}}})
		err = errors.Join(err, rmErr)
	}()
	r, err := e.Job(ctx, remote.Job{Argv: initArgv(), Timeout: initLimit})
	if err != nil {
		return err
	}
	return kubenode.JobError(in.Host, "kubeadm init", r)
}

// initArgv leaves out what is done once for the cluster (upload-config,
// bootstrap-token, addon), what hk does itself (upload-certs) and what it did
// before (kubelet-finalize: kubelet.conf names the rotating certificate from
// the start).
func initArgv() []string {
	return []string{
		host.BinDir + "/kubeadm", "init", "--config", initFile,
		"--skip-phases=upload-config,upload-certs,bootstrap-token,kubelet-finalize,addon,show-join-command",
	}
}

// superConf is the super administrator's kubeconfig: kubeadm makes the
// administrators' binding with it, and would draw a fresh one if it were not
// there.
func superConf(in controlPlaneIn, e *tasks.Env) ([]byte, error) {
	ca, err := e.Vault.Authority(ClusterCA)
	if err != nil {
		return nil, err
	}
	leaf := superLeaf()
	leaf.Life = superLife
	p, err := ca.Issue(leaf, e.Now())
	if err != nil {
		return nil, err
	}
	return pki.Kubeconfig{
		Cluster: in.Cluster, User: superUser, Server: "https://" + kubenode.LocalEndpoint, CA: ca.CertPEM, Cert: p.CertPEM, Key: p.KeyPEM,
	}.Render(), nil
}

// renew brings a standing control plane to what its config says, touching only
// what differs. kubeadm renders into a directory of its own; files that are
// equal stay, those that are not are renamed into place, so that kubelet never
// sees half a manifest.
func renew(ctx context.Context, e *tasks.Env) error {
	for _, phase := range [][]string{{"control-plane", "all"}, {"kubelet-start"}} {
		argv := slices.Concat([]string{"env", "KUBEADM_INIT_DRYRUN_DIR=" + renderDir, host.BinDir + "/kubeadm", "init", "phase"},
			phase, []string{"--config", kubenode.KubeadmConfig, "--dry-run"})
		r, err := e.Host.Exec(ctx, remote.Command{Argv: argv, Timeout: time.Minute})
		if err != nil {
			return err
		}
		if r.Code != 0 {
			return fmt.Errorf("rendering with kubeadm init phase %s: exit code %d: %s", phase[0], r.Code, kubenode.LastLines(string(r.Stderr), 8))
		}
	}
	before, err := containers(ctx, e.Host, "kube-apiserver")
	if err != nil {
		return err
	}
	st := controlPlaneState()
	for i := range st.Files {
		f := &st.Files[i]
		if !f.Later {
			continue
		}
		if f.Content, err = e.Host.Get(ctx, renderDir+f.Path[strings.LastIndex(f.Path, "/"):]); err != nil {
			return fmt.Errorf("what kubeadm rendered: %w", err)
		}
		f.Later = false
	}
	applied, err := e.Host.Apply(ctx, st)
	if err != nil {
		return err
	}
	if kubeletMissed(applied) {
		if err := must(ctx, e.Host, time.Minute, "systemctl", "restart", host.KubeletUnit); err != nil {
			return err
		}
	}
	if !slices.Contains(applied.Changed, kubenode.Manifests()[0]) {
		return nil
	}
	return replaced(ctx, e.Host, before)
}

// kubeletMissed reports that a file kubelet reads at its start changed, and
// that kubelet was not restarted for another reason anyway.
func kubeletMissed(a *remote.Applied) bool {
	if slices.Contains(a.Restarted, host.KubeletUnit) {
		return false
	}
	for _, f := range kubenode.WrittenByKubeadm() {
		if slices.Contains(a.Changed, f.Path) {
			return true
		}
	}
	return false
}

// replaced waits until kubelet has put a new API server in the place of the one
// whose manifest changed: the old one's /readyz says nothing about the new.
func replaced(ctx context.Context, h remote.Host, before []string) error {
	return tasks.Poll(ctx, readyLimit, "waiting for the API server's new container", func(ctx context.Context) error {
		now, err := containers(ctx, h, "kube-apiserver")
		if err != nil {
			return err
		}
		if len(now) == 0 {
			return errors.New("none is running")
		}
		for _, id := range now {
			if slices.Contains(before, id) {
				return errors.New("the old one is still running")
			}
		}
		return nil
	})
}

func verifyControlPlane(ctx context.Context, in controlPlaneIn, e *tasks.Env) (fp.Output, error) {
	err := tasks.Poll(ctx, readyLimit, "waiting for the API server of "+in.Host, func(ctx context.Context) error {
		k, err := e.Kube()
		if err != nil {
			return err
		}
		ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
		defer cancel()
		return k.ReadyAt(ctx, in.Host)
	})
	if err != nil {
		return nil, err
	}
	return fp.Output{"shared": in.Shared}, kubenode.Registered(ctx, e, in.Node, in.ProviderID)
}
