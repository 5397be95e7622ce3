package provision

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"hk/remote"
	"hk/tasks"
	"hk/tasks/spec"
)

// Codes of the cloud API that are branched on.
const uniquenessError = "uniqueness_error"

// labels are on everything hk makes.
func labels(e *tasks.Env) map[string]string {
	l := map[string]string{remote.LabelCluster: e.Cluster, remote.LabelUID: e.UID}
	if e.Version != "" {
		l[remote.LabelVersion] = labelValue(e.Version)
	}
	return l
}

// labelValue makes text fit a label: letters, digits, '.', '_', '-', at most 63,
// with a letter or digit at both ends.
func labelValue(s string) string {
	v := strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', r == '.', r == '_', r == '-':
			return r
		}
		return '-'
	}, s)
	return strings.Trim(v[:min(len(v), 63)], "._-")
}

// ours reports whether labels carry the cluster's UID: the only proof of
// ownership there is.
func ours(l map[string]string, uid string) bool { return uid != "" && l[remote.LabelUID] == uid }

// byName finds an object of ours in a list.
func byName[T any](list []T, uid, name string, what func(*T) (string, map[string]string)) *T {
	for i := range list {
		if n, l := what(&list[i]); n == name && ours(l, uid) {
			return &list[i]
		}
	}
	return nil
}

func networkName(n *remote.Network) (string, map[string]string) { return n.Name, n.Labels }

func firewallName(f *remote.Firewall) (string, map[string]string) { return f.Name, f.Labels }

func groupName(g *remote.PlacementGroup) (string, map[string]string) { return g.Name, g.Labels }

func loadBalancerName(l *remote.LoadBalancer) (string, map[string]string) { return l.Name, l.Labels }

// found is an object as the last look has it, else as a new look has it. It is
// an error wrapping remote.ErrNotFound if neither has it.
func found[T any](ctx context.Context, e *tasks.Env, what string, pick func(*remote.Inventory) *T) (*T, error) {
	if inv := e.Found(); inv != nil {
		if o := pick(inv); o != nil {
			return o, nil
		}
	}
	inv, err := e.Cloud.Inventory(ctx)
	if err != nil {
		return nil, err
	}
	if o := pick(inv); o != nil {
		return o, nil
	}
	return nil, fmt.Errorf("%s: %w", what, remote.ErrNotFound)
}

// ensure returns the object of ours, or makes it. The UID on its label is the
// intent: after a create whose answer was lost, or whose name is taken, another
// look settles whether the object is ours.
func ensure[T any](ctx context.Context, e *tasks.Env, what string, pick func(*remote.Inventory) *T, create func() (*T, error)) (*T, error) {
	if inv := e.Found(); inv != nil {
		if o := pick(inv); o != nil {
			return o, nil
		}
	}
	o, err := create()
	if err == nil {
		return o, nil
	}
	if o, again := lookAgain(ctx, e, pick); again == nil && o != nil {
		e.Log(what + " was there already")
		return o, nil
	}
	return nil, notOurs(what, err)
}

// lookAgain asks the cloud once more; nil without an error if there is nothing.
func lookAgain[T any](ctx context.Context, e *tasks.Env, pick func(*remote.Inventory) *T) (*T, error) {
	inv, err := e.Cloud.Inventory(ctx)
	if err != nil {
		return nil, err
	}
	return pick(inv), nil
}

// notOurs explains a name that is taken by something without our UID.
func notOurs(what string, err error) error {
	var ce *remote.CloudError
	if errors.As(err, &ce) && ce.Code == uniquenessError {
		return fmt.Errorf("%s exists and does not carry this cluster's UID: it is not ours and stays untouched: %w", what, err)
	}
	return err
}

// zone is the network zone of a location.
func zone(ctx context.Context, e *tasks.Env, location string) (string, error) {
	c, err := e.Cloud.Catalog(ctx)
	if err != nil {
		return "", err
	}
	z, ok := c.Locations[location]
	if !ok {
		return "", fmt.Errorf("the cloud has no location %s", location)
	}
	return z, nil
}

// withLoadBalancer reports whether the cluster has a load balancer.
func withLoadBalancer(c *spec.Cluster) bool { return c.Endpoint.Kind() == spec.EndpointLoadBalancer }
