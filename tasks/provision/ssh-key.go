package provision

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"hk/cache/fp"
	"hk/graph"
	"hk/remote"
	"hk/tasks"
	"hk/tasks/host"
)

// OperatorKey is the credential unit's name for the operator's public SSH key
// in authorized_keys form. Whoever opens the unit puts it there before a build.
const OperatorKey = "ssh.pub"

type sshKeyIn struct {
	Name  string `part:"config:name"`
	KeyID string `part:"secret:ssh-key"`
}

// sshKeyKind makes the operator's public key known to the cloud. A project
// holds each public key once: where the same key is there without our UID, it
// is used and stays whose it is; it is neither labelled nor deleted later.
func sshKeyKind() tasks.Kind {
	return tasks.Define(graph.Kind{
		Phase: Phase, Part: "ssh-key", Scope: graph.OnCluster, Pool: cloudPool, Recipe: 1,
		Title: "operator's public key",
	}, tasks.Def[sshKeyIn]{
		Inputs: func(v *tasks.View) (sshKeyIn, error) {
			return sshKeyIn{Name: v.Spec.Name, KeyID: v.KeyID(OperatorKey)}, nil
		},
		Run:    runSSHKey,
		Verify: verifySSHKey,
	})
}

// pickKey finds the key by its public half. Comments do not count.
func pickKey(public string) func(*remote.Inventory) *remote.SSHKey {
	want := keyBody(public)
	return func(inv *remote.Inventory) *remote.SSHKey {
		for i := range inv.SSHKeys {
			if keyBody(inv.SSHKeys[i].PublicKey) == want {
				return &inv.SSHKeys[i]
			}
		}
		return nil
	}
}

func keyBody(authorized string) string {
	f := strings.Fields(authorized)
	if len(f) < 2 {
		return ""
	}
	return f[0] + " " + f[1]
}

func operatorKey(e *tasks.Env) (string, error) {
	b, err := e.Vault.Secret(OperatorKey)
	if err != nil {
		return "", fmt.Errorf("reading the operator's public key: %w", err)
	}
	if _, err := host.KeyLabel(string(b)); err != nil {
		return "", fmt.Errorf("the operator's public key: %w", err)
	}
	return strings.TrimSpace(string(b)), nil
}

func runSSHKey(ctx context.Context, in sshKeyIn, e *tasks.Env) error {
	public, err := operatorKey(e)
	if err != nil {
		return err
	}
	_, err = ensure(ctx, e, "ssh key "+in.Name, pickKey(public), func() (*remote.SSHKey, error) {
		return e.Cloud.CreateSSHKey(ctx, remote.SSHKey{Name: in.Name, PublicKey: public, Labels: labels(e)})
	})
	return err
}

func verifySSHKey(ctx context.Context, in sshKeyIn, e *tasks.Env) (fp.Output, error) {
	public, err := operatorKey(e)
	if err != nil {
		return nil, err
	}
	k, err := found(ctx, e, "ssh key "+in.Name, pickKey(public))
	if err != nil {
		return nil, err
	}
	return fp.Output{"id": strconv.FormatInt(k.ID, 10)}, nil
}
