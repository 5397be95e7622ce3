package provision

import (
	"context"
	"strconv"

	"golang.org/x/sync/errgroup"

	"hk/cache/fp"
	"hk/graph"
	"hk/remote"
	"hk/tasks"
	"hk/tasks/spec"
)

// Limits of the cloud: servers in one spread group, groups in one project.
const (
	groupSize = 10
	maxGroups = 50
)

type placementIn struct {
	Name   string   `part:"config:name"`
	Groups []string `part:"alloc:groups"`
}

// Group is the placement group of a host: shards of ten by the host's number in
// its pool, so that a pool of N hosts takes N/10 groups and a new host finds its
// group without moving another. A project holds 50 groups; hosts of the last
// pools beyond that have none, and "" is returned for them.
func Group(c *spec.Cluster, h *spec.Host) string {
	shard, before := (h.Number-1)/groupSize, 0
	for _, p := range pools(c) {
		if p.name == h.Pool {
			break
		}
		before += p.shards()
	}
	if before+shard >= maxGroups {
		return ""
	}
	return groupOf(c.Name, h.Pool, shard)
}

func groupOf(cluster, pool string, shard int) string {
	return cluster + "-" + pool + "-" + strconv.Itoa(shard+1)
}

type pool struct {
	name  string
	count int
}

func (p pool) shards() int { return (p.count + groupSize - 1) / groupSize }

// pools are all pools in the order of hosts.
func pools(c *spec.Cluster) []pool {
	out := []pool{{spec.Master, c.Masters.Count}, {spec.Etcd, c.Etcd.Count}}
	for i := range c.Workers {
		out = append(out, pool{c.Workers[i].Pool, c.Workers[i].Count})
	}
	return out
}

// groups are the names of all groups, at most maxGroups.
func groups(c *spec.Cluster) []string {
	var out []string
	for _, p := range pools(c) {
		for i := range p.shards() {
			if len(out) < maxGroups {
				out = append(out, groupOf(c.Name, p.name, i))
			}
		}
	}
	return out
}

func pickGroup(uid, name string) func(*remote.Inventory) *remote.PlacementGroup {
	return func(inv *remote.Inventory) *remote.PlacementGroup {
		return byName(inv.PlacementGroups, uid, name, groupName)
	}
}

// placementKind spreads the hosts of a pool over different hardware.
func placementKind() tasks.Kind {
	return tasks.Define(graph.Kind{
		Phase: Phase, Part: "placement", Scope: graph.OnCluster, Pool: cloudPool, Recipe: 1,
		Title: "placement groups",
	}, tasks.Def[placementIn]{
		Inputs: func(v *tasks.View) (placementIn, error) {
			return placementIn{Name: v.Spec.Name, Groups: groups(v.Spec)}, nil
		},
		Run:    runPlacement,
		Verify: verifyPlacement,
	})
}

// runPlacement makes the groups side by side: five hundred hosts have fifty.
func runPlacement(ctx context.Context, in placementIn, e *tasks.Env) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(8)
	for _, name := range in.Groups {
		g.Go(func() error {
			_, err := ensure(ctx, e, "placement group "+name, pickGroup(e.UID, name), func() (*remote.PlacementGroup, error) {
				return e.Cloud.CreatePlacementGroup(ctx, remote.PlacementGroup{Name: name, Labels: labels(e)})
			})
			return err
		})
	}
	return g.Wait()
}

// verifyPlacement hands nothing over: who joins a group knows it by name.
func verifyPlacement(ctx context.Context, in placementIn, e *tasks.Env) (fp.Output, error) {
	_, err := found(ctx, e, "placement groups of "+in.Name, func(inv *remote.Inventory) *bool {
		for _, name := range in.Groups {
			if pickGroup(e.UID, name)(inv) == nil {
				return nil
			}
		}
		return new(true)
	})
	return nil, err
}
