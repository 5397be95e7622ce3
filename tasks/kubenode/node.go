package kubenode

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"hk/remote"
	"hk/tasks"
	"hk/tasks/host"
)

// Deadlines of waiting for a Node.
const (
	registerLimit = 2 * time.Minute
	readyLimit    = 3 * time.Minute
)

// waitingForNetwork is what a kubelet's Ready condition says while nothing but
// the pod network is missing.
const waitingForNetwork = "NetworkPluginNotReady"

// Registered waits until the Node is there with its identity, its kubelet
// healthy and nothing bad about it but a missing pod network.
func Registered(ctx context.Context, e *tasks.Env, name, providerID string) error {
	return judge(ctx, e, registerLimit, "waiting for Node "+name, name, func(n *remote.Node) error {
		if err := sameServer(n, providerID); err != nil {
			return err
		}
		if !n.Ready && !strings.Contains(n.NotReadyMessage, waitingForNetwork) {
			return fmt.Errorf("it is not ready: %s: %s", orNone(n.NotReadyReason), orNone(n.NotReadyMessage))
		}
		return pressure(n)
	})
}

// Ready waits until the Node is Ready.
func Ready(ctx context.Context, e *tasks.Env, name, providerID string) error {
	return judge(ctx, e, readyLimit, "waiting for Node "+name+" to be Ready", name, func(n *remote.Node) error {
		if err := sameServer(n, providerID); err != nil {
			return err
		}
		if !n.Ready {
			return fmt.Errorf("%s: %s", orNone(n.NotReadyReason), orNone(n.NotReadyMessage))
		}
		return pressure(n)
	})
}

func judge(ctx context.Context, e *tasks.Env, limit time.Duration, what, name string, ok func(*remote.Node) error) error {
	return tasks.Poll(ctx, limit, what, func(ctx context.Context) error {
		k, err := e.Kube()
		if err != nil {
			return err
		}
		n, err := k.Node(ctx, name)
		if err != nil {
			return err
		}
		return ok(n)
	})
}

func sameServer(n *remote.Node, providerID string) error {
	if n.ProviderID == "" {
		return fmt.Errorf("it has no providerID yet")
	}
	if n.ProviderID != providerID {
		return fmt.Errorf("it is the Node of %s, not of %s", n.ProviderID, providerID)
	}
	return nil
}

func pressure(n *remote.Node) error {
	if len(n.Pressure) > 0 {
		return fmt.Errorf("its kubelet reports %s", strings.Join(n.Pressure, ", "))
	}
	return nil
}

func orNone(s string) string {
	if s == "" {
		return "no reason given"
	}
	return s
}

// DropStale deletes the Node object of a server that is gone, so that the new
// server of the same name can register: a providerID cannot be changed. It
// refuses while the other server still exists.
func DropStale(ctx context.Context, e *tasks.Env, name, providerID string) error {
	k, err := e.Kube()
	if err != nil {
		return err
	}
	n, err := k.Node(ctx, name)
	if errors.Is(err, remote.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	if n.ProviderID == "" || n.ProviderID == providerID {
		return nil
	}
	id, err := strconv.ParseInt(strings.TrimPrefix(n.ProviderID, "hcloud://"), 10, 64)
	if err != nil {
		return fmt.Errorf("the Node %s is one of %s, which is no server of this cloud", name, n.ProviderID)
	}
	if _, err := e.Cloud.Server(ctx, id); !errors.Is(err, remote.ErrNotFound) {
		if err != nil {
			return err
		}
		return fmt.Errorf("the Node %s belongs to server %d, which still exists; this host is %s", name, id, providerID)
	}
	e.Log("deleting Node " + name + " of server " + strconv.FormatInt(id, 10) + ", which is gone")
	return k.DeleteNode(ctx, name)
}

// Standing reports whether the Node is there, of this server, and its kubelet
// is heard of; false without an error if it is not.
func Standing(ctx context.Context, e *tasks.Env, name, providerID string) (bool, error) {
	k, err := e.Kube()
	if err != nil {
		return false, err
	}
	n, err := k.Node(ctx, name)
	if errors.Is(err, remote.ErrNotFound) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return n.ProviderID == providerID, nil
}

// RegisterAgain restarts a running kubelet whose Node object is gone: it
// registers only when it starts. Without an API to ask there is nothing to do;
// the verification says what is missing.
func RegisterAgain(ctx context.Context, e *tasks.Env, name string) error {
	k, err := e.Kube()
	if err != nil {
		return nil
	}
	ctx2, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	if _, err := k.Node(ctx2, name); !errors.Is(err, remote.ErrNotFound) {
		return ctx.Err()
	}
	r, err := e.Host.Exec(ctx, remote.Command{Argv: []string{"systemctl", "restart", host.KubeletUnit}, Timeout: time.Minute})
	if err != nil {
		return err
	}
	if r.Code != 0 {
		return fmt.Errorf("restarting %s: exit code %d: %s", host.KubeletUnit, r.Code, strings.TrimSpace(string(r.Stderr)))
	}
	return nil
}

// hasTaint compares key, value and effect.
func hasTaint(list []remote.Taint, t remote.Taint) bool { return slices.Contains(list, t) }
