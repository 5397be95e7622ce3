package masters

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"hk/cache/fp"
	"hk/graph"
	"hk/remote"
	"hk/tasks"
	"hk/tasks/host"
	"hk/tasks/kubenode"
	"hk/tasks/spec"
)

// tokenLife bounds the one bootstrap token there ever is: kubeadm makes the
// rules for joining only together with a token. hk deletes it right after.
const tokenLife = "15m0s"

// bornLimit bounds waiting for a master that was found ready before.
const bornLimit = 20 * time.Second

type bootstrapIn struct {
	Masters []string `part:"alloc:masters"`
	Shared  string   `part:"out:control-plane.shared"`
}

// bootstrapKind does for the cluster what no master may do for itself, and then
// writes down that the cluster lives. On an established cluster nothing is made
// anew: what masters share is uploaded again if it changed, and a master added
// later gets the mark.
func bootstrapKind() tasks.Kind {
	return tasks.Define(graph.Kind{
		Phase: Phase, Part: "bootstrap", Scope: graph.OnCluster, Recipe: 1, Once: true,
		Needs: []graph.Need{{
			Kind: ControlPlaneKind, Via: graph.ToRole, Role: spec.Master, Quorum: graph.Majority,
			Why: "it works through an API server, and an established cluster has to grow while a master is down",
		}},
		Title: "once-only steps and the born mark",
	}, tasks.Def[bootstrapIn]{
		Inputs: bootstrapInputs,
		Run:    runBootstrap,
		Verify: verifyBootstrap,
		Watch: func(in bootstrapIn, w *tasks.World) map[string]string {
			return map[string]string{watchBorn: tasks.Labelled(w.Inventory, w.UID, in.Masters, remote.LabelBorn)}
		},
	})
}

func bootstrapInputs(v *tasks.View) (bootstrapIn, error) {
	var in bootstrapIn
	votes := map[string]int{}
	for _, m := range v.Masters() {
		in.Masters = append(in.Masters, m.Name)
		if o, ok := v.OutOf(ControlPlaneKind, m.Name); ok {
			// What most masters run: one that is down still says the old.
			votes[o["shared"]]++
			if s := o["shared"]; votes[s] > votes[in.Shared] {
				in.Shared = s
			}
		}
	}
	return in, nil
}

// watchBorn is the observed key of the born mark's labels.
const watchBorn = "cloud:" + Born

func runBootstrap(ctx context.Context, in bootstrapIn, e *tasks.Env) error {
	h, text, err := anyMaster(ctx, in.Masters, e)
	if err != nil {
		return err
	}
	switch {
	case !e.Established:
		if err = allReady(ctx, in.Masters, e); err == nil {
			err = onceOnly(ctx, h, text, e)
		}
	case uploaded(ctx, e) != in.Shared:
		err = uploadAgain(ctx, h, text, e)
	}
	if err != nil {
		return err
	}
	if err := noteUploaded(ctx, in.Shared, e); err != nil {
		return err
	}
	return tasks.MarkServers(ctx, e, in.Masters, remote.LabelBorn, Born)
}

// allReady is what a cluster is born by: each master's own API server answers.
// A majority lets the task begin; until the mark is there it takes all of them.
func allReady(ctx context.Context, masters []string, e *tasks.Env) error {
	for _, m := range masters {
		err := tasks.Poll(ctx, bornLimit, "asking the API server of "+m, func(ctx context.Context) error {
			k, err := e.Kube()
			if err != nil {
				return err
			}
			ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
			defer cancel()
			return k.ReadyAt(ctx, m)
		})
		if err != nil {
			return fmt.Errorf("the cluster counts as established when every master has answered: %w", err)
		}
	}
	return nil
}

// anyMaster is the first master that answers, with its kubeadm.yaml.
func anyMaster(ctx context.Context, masters []string, e *tasks.Env) (remote.Host, []byte, error) {
	var errs error
	for _, m := range masters {
		h, err := e.HostOf(m)
		if err == nil {
			var text []byte
			if text, err = h.Get(ctx, kubenode.KubeadmConfig); err == nil {
				return h, text, nil
			}
		}
		errs = errors.Join(errs, err)
	}
	return nil, nil, errs
}

// Phases of kubeadm init that masters run for themselves, and those that make
// the once-only rules and token for joining.
const (
	ownPhases = "preflight,certs,kubeconfig,etcd,control-plane,kubelet-start,wait-control-plane," +
		"upload-certs,mark-control-plane,kubelet-finalize,show-join-command"
	joinPhases = "bootstrap-token"
)

// onceArgv runs exactly the once-only phases, in one process.
func onceArgv(skip string) []string {
	return []string{host.BinDir + "/kubeadm", "init", "--config", onceFile, "--skip-token-print", "--skip-phases=" + skip}
}

// onceOnly uploads the configuration, makes the rules for joining, and applies
// CoreDNS and kube-proxy.
func onceOnly(ctx context.Context, h remote.Host, text []byte, e *tasks.Env) error {
	token, err := drawToken(e.UID)
	if err != nil {
		return err
	}
	text, err = withInit(text, func(o object) {
		o["bootstrapTokens"] = []any{object{"token": token, "ttl": tokenLife, "description": "made by hk, deleted at once"}}
	})
	if err != nil {
		return err
	}
	err = runOnce(ctx, h, text, onceArgv(ownPhases), e)
	forgetToken(ctx, e)
	return err
}

// uploadAgain makes an established cluster's own copy of its configuration, and
// the two addons made from it, what the masters' is.
func uploadAgain(ctx context.Context, h remote.Host, text []byte, e *tasks.Env) error {
	return runOnce(ctx, h, text, onceArgv(ownPhases+","+joinPhases), e)
}

// runOnce runs kubeadm on a master as a job of this cluster task. Its name is
// the same for every attempt, so that one still running is found.
func runOnce(ctx context.Context, h remote.Host, text []byte, argv []string, e *tasks.Env) error {
	_, err := h.Apply(ctx, remote.HostState{Files: []remote.File{{Path: onceFile, Mode: 0o600, Secret: true, Content: text}}})
	if err != nil {
		return err
	}
	sum := sha256.Sum256([]byte(strings.Join(append([]string{e.UID, e.Task}, argv...), " ")))
	r, err := h.Run(ctx, remote.Job{
		Unit: "hk-" + hex.EncodeToString(sum[:])[:20], Task: e.Task, Argv: argv, Timeout: 5 * time.Minute, Log: e.Log,
	})
	if err == nil {
		err = kubenode.JobError(h.Name(), "kubeadm init (once-only phases)", r)
	}
	rmCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 15*time.Second)
	defer cancel()
	_, rmErr := h.Apply(rmCtx, remote.HostState{Files: []remote.File{{Path: onceFile, Absent: true}}})
	return errors.Join(err, rmErr)
}

// uploadedRef is where the cluster itself keeps which configuration was
// uploaded last.
func uploadedRef() remote.ObjectRef {
	return remote.ObjectRef{Version: "v1", Resource: "configmaps", Namespace: "kube-system", Name: "hk-kubeadm"}
}

// uploaded is the digest of what was uploaded last; "" if that is not known:
// uploading it again does no harm.
func uploaded(ctx context.Context, e *tasks.Env) string {
	k, err := e.Kube()
	if err != nil {
		return ""
	}
	b, err := k.Get(ctx, uploadedRef())
	if err != nil {
		return ""
	}
	var o struct {
		Data struct {
			Shared string `json:"shared"`
		} `json:"data"`
	}
	if json.Unmarshal(b, &o) != nil {
		return ""
	}
	return o.Data.Shared
}

func noteUploaded(ctx context.Context, shared string, e *tasks.Env) error {
	return tasks.Poll(ctx, time.Minute, "noting which configuration the cluster has", func(ctx context.Context) error {
		k, err := e.Kube()
		if err != nil {
			return err
		}
		ref := uploadedRef()
		return k.Apply(ctx, fmt.Appendf(nil, "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: %s\n  namespace: %s\ndata:\n  shared: %q\n",
			ref.Name, ref.Namespace, shared))
	})
}

// tokenID is the same for every attempt, so that a later one overwrites what an
// earlier one left.
func tokenID(uid string) string {
	sum := sha256.Sum256([]byte("bootstrap-token " + uid))
	return hex.EncodeToString(sum[:])[:6]
}

func drawToken(uid string) (string, error) {
	b := make([]byte, 8)
	if _, err := rand.Read(b); err != nil {
		return "", fmt.Errorf("drawing a bootstrap token: %w", err)
	}
	return tokenID(uid) + "." + hex.EncodeToString(b), nil
}

// forgetToken removes the token from the cluster. Should the API not answer just
// now, it ends by itself.
func forgetToken(ctx context.Context, e *tasks.Env) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 15*time.Second)
	defer cancel()
	k, err := e.Kube()
	if err == nil {
		err = k.Delete(ctx, remote.ObjectRef{
			Version: "v1", Resource: "secrets", Namespace: "kube-system", Name: "bootstrap-token-" + tokenID(e.UID),
		})
	}
	if err != nil && !errors.Is(err, remote.ErrNotFound) {
		e.Log("the bootstrap token ends by itself in 15 minutes: " + err.Error())
	}
}

// onceObjects are what the once-only phases leave that nodes cannot join
// without.
func onceObjects() []remote.ObjectRef {
	return []remote.ObjectRef{
		{Version: "v1", Resource: "configmaps", Namespace: "kube-system", Name: "kubeadm-config"},
		{Version: "v1", Resource: "configmaps", Namespace: "kube-system", Name: "kubelet-config"},
		{Version: "v1", Resource: "configmaps", Namespace: "kube-public", Name: "cluster-info"},
		{Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "clusterrolebindings", Name: "kubeadm:node-autoapprove-bootstrap"},
		{Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "clusterrolebindings", Name: adminGroup},
	}
}

func verifyBootstrap(ctx context.Context, _ bootstrapIn, e *tasks.Env) (fp.Output, error) {
	err := tasks.Poll(ctx, time.Minute, "looking for what every node needs", func(ctx context.Context) error {
		k, err := e.Kube()
		if err != nil {
			return err
		}
		var missing []string
		for _, o := range onceObjects() {
			if _, err := k.Get(ctx, o); errors.Is(err, remote.ErrNotFound) {
				missing = append(missing, o.Resource+"/"+o.Name)
			} else if err != nil {
				return err
			}
		}
		if len(missing) > 0 {
			return fmt.Errorf("the cluster has no %s", strings.Join(missing, ", "))
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	e.Note(watchBorn, tasks.MarkedAll)
	return nil, nil
}
