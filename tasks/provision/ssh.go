package provision

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"hk/cache/fp"
	"hk/graph"
	"hk/remote"
	"hk/tasks"
)

// contactTime is how long a new machine may take until it answers: Hetzner's
// boot in under a minute, the rest is for a slow day.
const contactTime = 5 * time.Minute

// capSysResource is the number of CAP_SYS_RESOURCE in Linux's capability sets.
const capSysResource = 24

// defaultMTU is Ethernet's, and that of Hetzner's public interfaces.
const defaultMTU = 1500

// Values of the output "kernel".
const (
	// OwnKernel: a machine of its own.
	OwnKernel = "own"
	// SharedKernel: a container-like machine; modules and the sysctls that are
	// not per network namespace belong to the computer around it.
	SharedKernel = "shared"
)

type sshIn struct {
	Cluster      string `part:"config:name"`
	Host         string `part:"alloc:host"`
	Index        int    `part:"alloc:index"`
	User         string `part:"config:ssh.user"`
	Port         int    `part:"config:ssh.port"`
	IPv4         string `part:"out:server.ipv4"`
	Installation string `part:"out:server.installation"`
}

// sshKind is first contact. The key that user data handed over is checked once
// and replaced over that channel; from then on only the final key is accepted.
// Its output is the few coarse facts that rendered files depend on.
func sshKind() tasks.Kind {
	return tasks.Define(graph.Kind{
		Phase: Phase, Part: "ssh", Scope: graph.OnHost, Recipe: 1,
		Needs: []graph.Need{{Kind: ServerKind, Via: graph.Same}},
		Title: "first contact, host key, what the machine is",
	}, tasks.Def[sshIn]{
		Inputs: func(v *tasks.View) (sshIn, error) {
			o := v.Out(ServerKind)
			return sshIn{
				Cluster: v.Spec.Name, Host: v.Host.Name, Index: v.Host.Index,
				User: v.Spec.SSH.User, Port: v.Spec.SSH.Port, IPv4: o["ipv4"], Installation: o["installation"],
			}, nil
		},
		Run:    runSSH,
		Verify: verifySSH,
	})
}

func runSSH(ctx context.Context, in sshIn, e *tasks.Env) error {
	rec, ok := e.Vault.Host(in.Host)
	if !ok {
		return fmt.Errorf("the credential unit has no host key for %s: %w", in.Host, remote.ErrNotFound)
	}
	ctx, cancel := context.WithTimeout(ctx, contactTime)
	defer cancel()
	want := remote.HostIdentity{
		UID: e.UID, Cluster: in.Cluster, Host: in.Host, Index: in.Index, Installation: in.Installation,
	}
	got, err := e.Hosts.Install(ctx, remote.Contact{
		Host: in.Host, Addr: in.IPv4, Port: in.Port, User: in.User,
		HostKey: rec.HostKey, Throwaway: rec.Throwaway, Seen: rec.Seen,
	}, []byte(rec.HostKeyPEM), want)
	if err != nil {
		return err
	}
	if err := sameHost(got, want); err != nil {
		return err
	}
	if rec.Seen && rec.HostKeyPEM == "" && rec.ThrowawayPEM == "" && rec.Addr == in.IPv4 {
		return nil
	}
	rec.Seen, rec.HostKeyPEM, rec.ThrowawayPEM, rec.Addr = true, "", "", in.IPv4
	if err := e.Vault.SaveHost(rec); err != nil {
		return fmt.Errorf("writing that the host key was seen: %w", err)
	}
	return nil
}

// sameHost compares who the host says it is with who it must be.
func sameHost(got, want remote.HostIdentity) error {
	switch {
	case got.UID != want.UID:
		return fmt.Errorf("host %s belongs to the cluster with UID %s, not to this one", want.Host, got.UID)
	case got.Host != want.Host || got.Index != want.Index:
		return fmt.Errorf("the machine of host %s says it is %s with index %d", want.Host, got.Host, got.Index)
	case got.Installation != want.Installation:
		return fmt.Errorf("host %s: %w: its installation file is another one", want.Host, remote.ErrRebuilt)
	}
	return nil
}

func verifySSH(ctx context.Context, in sshIn, e *tasks.Env) (fp.Output, error) {
	h, err := e.HostOf(in.Host)
	if err != nil {
		return nil, err
	}
	f, err := h.Facts(ctx, remote.FactsQuery{})
	if err != nil {
		return nil, err
	}
	err = sameHost(f.Host, remote.HostIdentity{UID: e.UID, Host: in.Host, Index: in.Index, Installation: in.Installation})
	if err != nil {
		return nil, err
	}
	kernel, err := kernelOf(ctx, h)
	if err != nil {
		return nil, err
	}
	out := fp.Output{
		"arch": f.Arch, "cgroup": "v1", "wg": "user", "kernel": kernel,
		"restricted": strconv.FormatBool(f.Capabilities&(1<<capSysResource) == 0),
		"mtu":        strconv.Itoa(publicMTU(f.Links, in.IPv4)),
		// Whoever needs first contact is stale on another disk (law 5).
		"installation": in.Installation,
	}
	if f.CgroupV2 {
		out["cgroup"] = "v2"
	}
	if f.KernelWG {
		out["wg"] = "kernel"
	}
	return out, nil
}

// kernelOf asks systemd whether the machine is a container.
func kernelOf(ctx context.Context, h remote.Host) (string, error) {
	r, err := h.Exec(ctx, remote.Command{Argv: []string{"systemd-detect-virt", "--container"}})
	if err != nil {
		return "", err
	}
	if r.Code == 0 && strings.TrimSpace(string(r.Stdout)) != "none" {
		return SharedKernel, nil
	}
	return OwnKernel, nil
}

// publicMTU is the MTU of the interface that holds the public address. Where
// none does (the address is translated on its way) it is Ethernet's; mesh-check
// proves the path later in any case.
func publicMTU(links map[string]remote.Link, addr string) int {
	for _, l := range links {
		for _, a := range l.Addrs {
			if ip, _, _ := strings.Cut(a, "/"); ip == addr && l.MTU > 0 {
				return l.MTU
			}
		}
	}
	return defaultMTU
}
