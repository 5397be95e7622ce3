package masters

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
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

type bootstrapIn struct {
	Masters []string `part:"alloc:masters"`
}

// bootstrapKind does once for the cluster what no master may do for itself, and
// then writes down that the cluster lives. On an established cluster it makes
// nothing: it only sees to it that a master added later carries the mark.
func bootstrapKind() tasks.Kind {
	return tasks.Define(graph.Kind{
		Phase: Phase, Part: "bootstrap", Scope: graph.OnCluster, Recipe: 1, Once: true,
		Needs: []graph.Need{{
			Kind: ControlPlaneKind, Via: graph.ToRole, Role: spec.Master,
			Why: "the cluster counts as born when every master has answered /readyz",
		}},
		Title: "once-only steps and the born mark",
	}, tasks.Def[bootstrapIn]{
		Inputs: func(v *tasks.View) (bootstrapIn, error) {
			var in bootstrapIn
			for _, m := range v.Masters() {
				in.Masters = append(in.Masters, m.Name)
			}
			return in, nil
		},
		Run:    runBootstrap,
		Verify: verifyBootstrap,
		Watch: func(in bootstrapIn, w *tasks.World) map[string]string {
			return map[string]string{watchBorn: tasks.Labelled(w.Inventory, w.UID, in.Masters, remote.LabelBorn)}
		},
	})
}

// watchBorn is the observed key of the born mark's labels.
const watchBorn = "cloud:" + Born

func runBootstrap(ctx context.Context, in bootstrapIn, e *tasks.Env) error {
	if !e.Established {
		if err := onceOnly(ctx, in.Masters[0], e); err != nil {
			return err
		}
	}
	return tasks.MarkServers(ctx, e, in.Masters, remote.LabelBorn, Born)
}

// onceArgv runs exactly the three once-only phases, in one process.
func onceArgv() []string {
	return []string{
		host.BinDir + "/kubeadm", "init", "--config", onceFile, "--skip-token-print",
		"--skip-phases=preflight,certs,kubeconfig,etcd,control-plane,kubelet-start,wait-control-plane," +
			"upload-certs,mark-control-plane,kubelet-finalize,show-join-command",
	}
}

func onceOnly(ctx context.Context, master string, e *tasks.Env) error {
	h, err := e.HostOf(master)
	if err != nil {
		return err
	}
	text, err := h.Get(ctx, kubenode.KubeadmConfig)
	if err != nil {
		return err
	}
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
	if _, err = h.Apply(ctx, remote.HostState{Files: []remote.File{{Path: onceFile, Mode: 0o600, Secret: true, Content: text}}}); err != nil {
		return err
	}
	sum := sha256.Sum256([]byte(e.UID + " " + e.Task))
	r, err := h.Run(ctx, remote.Job{
		Unit: "hk-" + hex.EncodeToString(sum[:])[:20], Task: e.Task, Argv: onceArgv(), Timeout: 5 * time.Minute, Log: e.Log,
	})
	if err == nil {
		err = kubenode.JobError(master, "kubeadm init (once-only phases)", r)
	}
	return errors.Join(err, forgetToken(ctx, h, e))
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

// forgetToken removes the token from the host and from the cluster. Should the
// API not answer just now, it ends by itself.
func forgetToken(ctx context.Context, h remote.Host, e *tasks.Env) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 15*time.Second)
	defer cancel()
	if k, err := e.Kube(); err != nil {
		e.Log("the bootstrap token ends by itself in 15 minutes: " + err.Error())
	} else if err := k.Delete(ctx, remote.ObjectRef{
		Version: "v1", Resource: "secrets", Namespace: "kube-system", Name: "bootstrap-token-" + tokenID(e.UID),
	}); err != nil && !errors.Is(err, remote.ErrNotFound) {
		e.Log("the bootstrap token ends by itself in 15 minutes: " + err.Error())
	}
	_, err := h.Apply(ctx, remote.HostState{Files: []remote.File{{Path: onceFile, Absent: true}}})
	return err
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
