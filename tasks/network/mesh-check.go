package network

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"hk/cache/fp"
	"hk/graph"
	"hk/remote"
	"hk/tasks"
	"hk/tasks/spec"
)

// Times of the check. WireGuard repeats a handshake after 5 s, so the deadline
// leaves room for several.
const (
	checkTime  = 30 * time.Second
	checkPause = 300 * time.Millisecond
	pingWait   = 2 // seconds
)

// smallPing is a ping that passes every path.
const smallPing = 56

// headers are IPv4's and ICMP's bytes in a ping of a given size.
const headers = 28

type meshCheckIn struct {
	Host    string   `part:"alloc:host"`
	Masters []master `part:"alloc:masters"`
	MTU     int      `part:"out:mesh.mtu"`
}

type master struct{ Host, MeshIP string }

// meshCheckKind proves the path: a packet of the mesh's full size, not to be
// fragmented, to a majority of the masters and back. A majority, because a
// master that is down must not hold up the others.
func meshCheckKind() tasks.Kind {
	return tasks.Define(graph.Kind{
		Phase: Phase, Part: "mesh-check", Scope: graph.OnHost, Recipe: 1,
		Needs: []graph.Need{
			{Kind: MeshKind, Via: graph.Same},
			{Kind: MeshKind, Via: graph.ToRole, Role: spec.Master, Quorum: graph.Majority, Why: "it takes both ends to shake hands"},
		},
		Title: "handshake and full packets to the masters",
	}, tasks.Def[meshCheckIn]{
		Inputs: func(v *tasks.View) (meshCheckIn, error) {
			in := meshCheckIn{Host: v.Host.Name}
			var err error
			if in.MTU, err = strconv.Atoi(v.Out(MeshKind)["mtu"]); err != nil {
				return in, errors.New("the mesh handed over no MTU")
			}
			for _, m := range v.Masters() {
				in.Masters = append(in.Masters, master{m.Name, m.MeshIP})
			}
			return in, nil
		},
		Verify: verifyMeshCheck,
	})
}

func verifyMeshCheck(ctx context.Context, in meshCheckIn, e *tasks.Env) (fp.Output, error) {
	ctx, cancel := context.WithTimeout(ctx, checkTime)
	defer cancel()
	need := len(in.Masters)/2 + 1
	var open []master
	for _, m := range in.Masters {
		if m.Host != in.Host {
			open = append(open, m)
		}
	}
	for {
		var err error
		if open, err = in.round(ctx, e.Host, open); err != nil {
			return nil, err
		}
		if len(in.Masters)-len(open) >= need {
			for _, m := range open {
				e.Log("no answer from " + m.Host + " over the mesh")
			}
			return nil, nil
		}
		select {
		case <-ctx.Done():
			return nil, tasks.Again("%d of %d masters answer over the mesh, %d are needed; silent: %s",
				len(in.Masters)-len(open), len(in.Masters), need, names(open))
		case <-time.After(checkPause):
		}
	}
}

func names(list []master) string {
	var out []string
	for _, m := range list {
		out = append(out, m.Host)
	}
	return strings.Join(out, ", ")
}

// round pings all at once and returns those that did not answer.
func (in meshCheckIn) round(ctx context.Context, h remote.Host, to []master) ([]master, error) {
	answered, errs := make([]bool, len(to)), make([]error, len(to))
	var wg sync.WaitGroup
	for i, m := range to {
		wg.Go(func() { answered[i], errs[i] = in.ping(ctx, h, m) })
	}
	wg.Wait()
	var silent []master
	for i, m := range to {
		if errs[i] != nil && ctx.Err() == nil {
			return nil, errs[i]
		}
		if !answered[i] {
			silent = append(silent, m)
		}
	}
	return silent, nil
}

// ping sends a full packet; if that is not answered, a small one tells a path
// that is too narrow, which no waiting helps, from a master that is not there.
func (in meshCheckIn) ping(ctx context.Context, h remote.Host, m master) (bool, error) {
	full, err := pingOnce(ctx, h, m.MeshIP, in.MTU-headers)
	if err != nil || full {
		return full, err
	}
	small, err := pingOnce(ctx, h, m.MeshIP, smallPing)
	if err != nil || !small {
		return false, err
	}
	// The handshake may have come up between the two.
	if full, err = pingOnce(ctx, h, m.MeshIP, in.MTU-headers); err != nil || full {
		return full, err
	}
	return false, fmt.Errorf("%s answers over the mesh, but not packets of %d bytes: the path's MTU is smaller than the interfaces'", m.Host, in.MTU)
}

func pingOnce(ctx context.Context, h remote.Host, ip string, size int) (bool, error) {
	r, err := h.Exec(ctx, remote.Command{Argv: []string{
		"ping", "-n", "-q", "-c", "1", "-W", strconv.Itoa(pingWait), "-M", "do", "-s", strconv.Itoa(size), ip,
	}})
	if err != nil {
		return false, err
	}
	return r.Code == 0, nil
}
