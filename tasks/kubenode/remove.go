package kubenode

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
)

// Times of draining. A pod is given its own grace period by its kubelet, which is
// half a minute unless it says otherwise; a budget may need its other pods to
// come up first.
const (
	drainLimit = 5 * time.Minute
	drainPause = 2 * time.Second // between two rounds; the first ones are quicker
	stopLimit  = 20 * time.Second
)

// RemoveIn is a Node that goes for good.
type RemoveIn struct {
	Host   string `part:"alloc:host"`
	Node   string `part:"alloc:node"`
	Server int64  `part:"alloc:server"`
}

// RemoveKind is the kind `remove` of masters and of workers: the Node is drained
// and its object deleted. It is done from outside, so that a host that is off,
// cut off or gone already does not hold it up.
//
// One host holds the slot of `drain` until its Node is gone: budgets are kept one
// Node after the other, and where one cannot be drained the next is left alone.
func RemoveKind(phase, role string, needs ...graph.Need) tasks.Kind {
	return tasks.Define(graph.Kind{
		Phase: phase, Part: "remove", Scope: graph.OnHost, Roles: []string{role}, Leaving: true,
		Pool: "drain", Guard: "drain", Recipe: 1, Needs: needs,
		Title: "drained and its Node deleted",
	}, tasks.Def[RemoveIn]{
		Inputs: func(v *tasks.View) (RemoveIn, error) {
			l := v.Leaver()
			return RemoveIn{Host: l.Name, Node: l.Node, Server: l.ServerID}, nil
		},
		Run:    runRemove,
		Verify: verifyRemove,
	})
}

func runRemove(ctx context.Context, in RemoveIn, e *tasks.Env) error {
	k, n, err := in.find(ctx, e)
	if err != nil || n == nil {
		return err
	}
	if err := k.Cordon(ctx, in.Node, true); err != nil {
		return err
	}
	if err := drain(ctx, k, in.Node, e.Log); err != nil {
		return err
	}
	in.stopKubelet(ctx, e)
	return k.DeleteNode(ctx, in.Node)
}

// find is the Node; nil if there is none, or if the cluster never was up and has
// no API that could know it.
func (in RemoveIn) find(ctx context.Context, e *tasks.Env) (remote.Kube, *remote.Node, error) {
	k, err := e.Kube()
	if err == nil {
		var n *remote.Node
		switch n, err = k.Node(ctx, in.Node); {
		case err == nil:
			return k, n, nil
		case errors.Is(err, remote.ErrNotFound):
			return nil, nil, nil
		}
	}
	if !e.Established && ctx.Err() == nil {
		e.Log("the cluster was never up, so no pods run on " + in.Host)
		return nil, nil, nil
	}
	return nil, nil, err
}

// drain evicts what can run elsewhere and waits until it is gone. From a Node
// whose kubelet is not heard of nothing is waited for: nobody is there to stop
// its pods, and the API forgets them with the Node.
func drain(ctx context.Context, k remote.Kube, node string, log func(string)) error {
	ctx2, cancel := context.WithTimeout(ctx, drainLimit)
	defer cancel()
	for pause := drainPause / 16; ; pause = min(2*pause, drainPause) {
		left, err := drainRound(ctx2, k, node)
		if err == nil && len(left) == 0 {
			return nil
		}
		if err == nil {
			var n *remote.Node
			switch n, err = k.Node(ctx2, node); {
			case errors.Is(err, remote.ErrNotFound):
				return nil
			case err == nil && !n.Ready:
				log(node + " does not answer; going on without waiting for " + list(left))
				return nil
			}
		}
		if err != nil && !passes(err) {
			return err
		}
		select {
		case <-time.After(pause):
			continue
		case <-ctx2.Done():
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err == nil {
			err = fmt.Errorf("still there: %s; see why they do not go (kubectl get pdb,pods -A), then run the same command again", list(left))
		}
		// The time is up: trying again is for whoever has looked at it.
		return &remote.WorldError{World: "kube", Op: fmt.Sprintf("draining %s: not within %s", node, drainLimit), Err: err}
	}
}

// passes reports whether an API server may answer in another way soon.
func passes(err error) bool {
	w, ok := errors.AsType[*remote.WorldError](err)
	return ok && w.Transient()
}

// drainRound evicts every pod that was not asked to go yet, and says which are
// still there.
func drainRound(ctx context.Context, k remote.Kube, node string) (left []string, err error) {
	pods, err := k.PodsOn(ctx, node)
	if err != nil {
		return nil, err
	}
	for _, p := range pods {
		if p.Bound || p.Finished {
			continue
		}
		name := p.Namespace + "/" + p.Name
		if !p.Leaving {
			switch err := k.Evict(ctx, p); {
			case errors.Is(err, remote.ErrBudget):
				name += " (" + remote.ErrBudget.Error() + ")"
			case err != nil:
				return nil, err
			}
		}
		left = append(left, name)
	}
	slices.Sort(left)
	return left, nil
}

// list names the first few.
func list(names []string) string {
	const most = 5
	if len(names) <= most {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
}

// stopKubelet keeps the kubelet from registering its Node again, which it does
// when it starts. On a host that does not answer there is nobody to stop.
func (in RemoveIn) stopKubelet(ctx context.Context, e *tasks.Env) {
	ctx, cancel := context.WithTimeout(ctx, stopLimit)
	defer cancel()
	h, err := e.HostOf(in.Host)
	if err == nil {
		_, err = h.Exec(ctx, remote.Command{Argv: []string{"systemctl", "stop", host.KubeletUnit}, Timeout: stopLimit})
	}
	if err != nil {
		e.Log("the kubelet of " + in.Host + " was not stopped: " + err.Error())
	}
}

func verifyRemove(ctx context.Context, in RemoveIn, e *tasks.Env) (fp.Output, error) {
	_, n, err := in.find(ctx, e)
	if err == nil && n != nil {
		err = tasks.Again("the Node %s is still there", in.Node)
	}
	return nil, err
}
