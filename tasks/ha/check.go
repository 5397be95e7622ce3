package ha

import (
	"bufio"
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"hk/cache/fp"
	"hk/graph"
	"hk/remote"
	"hk/tasks"
	"hk/tasks/kubenode"
	"hk/tasks/spec"
)

const checkLimit = 60 * time.Second

type checkIn struct {
	Host    string    `part:"alloc:host"`
	Masters []backend `part:"alloc:masters"`
}

// checkKind asks the host's own proxy which masters it reaches: a majority has
// to answer, the others are named.
func checkKind() tasks.Kind {
	return tasks.Define(graph.Kind{
		Phase: Phase, Part: "check", Scope: graph.OnHost, Roles: []string{spec.Master, spec.Worker}, Recipe: 1,
		Needs: kubenode.OnHost(
			kubenode.Same(EndpointKind), kubenode.Same(kubenode.MeshCheckKind),
			graph.Need{Kind: kubenode.ControlPlaneKind, Via: graph.ToRole, Role: spec.Master, Quorum: graph.Majority, Why: "the proxy is judged by the API servers behind it"},
		),
		Title: "API servers reached through the local proxy",
	}, tasks.Def[checkIn]{
		Inputs: func(v *tasks.View) (checkIn, error) {
			return checkIn{Host: v.Host.Name, Masters: backends(v)}, nil
		},
		Verify: verifyCheck,
	})
}

func verifyCheck(ctx context.Context, in checkIn, e *tasks.Env) (fp.Output, error) {
	var down []string
	err := tasks.Poll(ctx, checkLimit, "reaching the API servers from "+in.Host, func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
		defer cancel()
		up, err := stats(ctx, e.Host)
		if err != nil {
			return err
		}
		down = down[:0]
		for _, m := range in.Masters {
			if s := up[m.Host]; s != "UP" {
				down = append(down, m.Host+" ("+orUnknown(s)+")")
			}
		}
		if have, need := len(in.Masters)-len(down), len(in.Masters)/2+1; have < need {
			return fmt.Errorf("%d of %d are up, %d are needed; not up: %s", have, len(in.Masters), need, strings.Join(down, ", "))
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	for _, d := range down {
		e.Log("not reached through the local proxy: " + d)
	}
	return nil, nil
}

func orUnknown(s string) string {
	if s == "" {
		return "unknown to the proxy"
	}
	return s
}

// stats reads the proxy's own table: backend name -> status without its
// transitional part ("UP 1/2" is still up).
func stats(ctx context.Context, h remote.Host) (map[string]string, error) {
	conn, err := h.Dial(ctx, statsAddr)
	if err != nil {
		return nil, fmt.Errorf("asking the local proxy: %w", err)
	}
	defer func() { _ = conn.Close() }() // only read from
	if at, ok := ctx.Deadline(); ok {
		if err := conn.SetDeadline(at); err != nil {
			return nil, fmt.Errorf("asking the local proxy: %w", err)
		}
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+statsAddr+"/;csv", nil)
	if err != nil {
		return nil, fmt.Errorf("bug: %w", err)
	}
	req.Close = true
	if err := req.Write(conn); err != nil {
		return nil, fmt.Errorf("asking the local proxy: %w", err)
	}
	resp, err := http.ReadResponse(bufio.NewReader(conn), req)
	if err != nil {
		return nil, fmt.Errorf("asking the local proxy: %w", err)
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("the local proxy answers %s", resp.Status)
	}
	r := csv.NewReader(resp.Body)
	r.FieldsPerRecord = -1
	r.Comment = 0
	rows, err := r.ReadAll()
	if err != nil {
		return nil, fmt.Errorf("reading the local proxy's table: %w", err)
	}
	return statuses(rows)
}

// statuses reads haproxy's CSV: a header "# pxname,svname,…,status,…", then a
// row a server.
func statuses(rows [][]string) (map[string]string, error) {
	if len(rows) == 0 {
		return nil, errors.New("the local proxy's table is empty")
	}
	col := map[string]int{}
	for i, name := range rows[0] {
		col[strings.TrimPrefix(name, "# ")] = i
	}
	px, okPx := col["pxname"]
	sv, okSv := col["svname"]
	st, okSt := col["status"]
	if !okPx || !okSv || !okSt {
		return nil, errors.New("the local proxy's table has no status column")
	}
	out := map[string]string{}
	for _, r := range rows[1:] {
		if len(r) <= max(px, sv, st) || r[px] != "masters" || r[sv] == "BACKEND" {
			continue
		}
		word, _, _ := strings.Cut(r[st], " ")
		out[r[sv]] = word
	}
	return out, nil
}
