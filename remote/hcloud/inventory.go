package hcloud

import (
	"context"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
	"golang.org/x/sync/errgroup"

	"hk/remote"
)

// pageSize is the largest the API gives.
const pageSize = 50

// pages lists everything: the first page, then all others at once.
func pages[T any](ctx context.Context, c *Client, op string, list func(context.Context, hcloud.ListOpts) ([]T, *hcloud.Response, error)) ([]T, time.Time, error) {
	var out [][]T
	var date time.Time
	get := func(ctx context.Context, n int) (*hcloud.Response, error) {
		var res *hcloud.Response
		err := c.read(ctx, op, func(ctx context.Context) error {
			got, r, err := list(ctx, hcloud.ListOpts{Page: n, PerPage: pageSize})
			if err == nil {
				out[n-1], res = got, r
			}
			return err
		})
		return res, err
	}
	out = make([][]T, 1)
	res, err := get(ctx, 1)
	if err != nil {
		return nil, date, err
	}
	if t, err := http.ParseTime(res.Header.Get("Date")); err == nil {
		date = t
	}
	if p := res.Meta.Pagination; p != nil && p.LastPage > 1 {
		out = append(out, make([][]T, p.LastPage-1)...)
		g, ctx := errgroup.WithContext(ctx)
		g.SetLimit(4)
		for n := 2; n <= p.LastPage; n++ {
			g.Go(func() error { _, err := get(ctx, n); return err })
		}
		if err := g.Wait(); err != nil {
			return nil, date, err
		}
	}
	var flat []T
	for _, page := range out {
		flat = append(flat, page...)
	}
	return flat, date, nil
}

// Inventory looks at everything hk can own: one list call a kind, at once, and
// one more for each further page.
func (c *Client) Inventory(ctx context.Context) (*remote.Inventory, error) {
	inv := new(remote.Inventory)
	var mu sync.Mutex
	seen := func(t time.Time) {
		mu.Lock()
		defer mu.Unlock()
		if t.After(inv.Time) {
			inv.Time = t
		}
	}
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		return gather(ctx, c, seen, "list servers", &inv.Servers, func(ctx context.Context, o hcloud.ListOpts) ([]*hcloud.Server, *hcloud.Response, error) {
			return c.api.Server.List(ctx, hcloud.ServerListOpts{ListOpts: o})
		}, fromServer)
	})
	g.Go(func() error {
		return gather(ctx, c, seen, "list networks", &inv.Networks, func(ctx context.Context, o hcloud.ListOpts) ([]*hcloud.Network, *hcloud.Response, error) {
			return c.api.Network.List(ctx, hcloud.NetworkListOpts{ListOpts: o})
		}, fromNetwork)
	})
	g.Go(func() error {
		return gather(ctx, c, seen, "list firewalls", &inv.Firewalls, func(ctx context.Context, o hcloud.ListOpts) ([]*hcloud.Firewall, *hcloud.Response, error) {
			return c.api.Firewall.List(ctx, hcloud.FirewallListOpts{ListOpts: o})
		}, fromFirewall)
	})
	g.Go(func() error {
		return gather(ctx, c, seen, "list placement groups", &inv.PlacementGroups, func(ctx context.Context, o hcloud.ListOpts) ([]*hcloud.PlacementGroup, *hcloud.Response, error) {
			return c.api.PlacementGroup.List(ctx, hcloud.PlacementGroupListOpts{ListOpts: o})
		}, fromPlacementGroup)
	})
	g.Go(func() error {
		return gather(ctx, c, seen, "list load balancers", &inv.LoadBalancers, func(ctx context.Context, o hcloud.ListOpts) ([]*hcloud.LoadBalancer, *hcloud.Response, error) {
			return c.api.LoadBalancer.List(ctx, hcloud.LoadBalancerListOpts{ListOpts: o})
		}, fromLoadBalancer)
	})
	g.Go(func() error {
		return gather(ctx, c, seen, "list SSH keys", &inv.SSHKeys, func(ctx context.Context, o hcloud.ListOpts) ([]*hcloud.SSHKey, *hcloud.Response, error) {
			return c.api.SSHKey.List(ctx, hcloud.SSHKeyListOpts{ListOpts: o})
		}, fromSSHKey)
	})
	if err := g.Wait(); err != nil {
		return nil, err
	}
	return inv, nil
}

// gather lists one kind into out.
func gather[T, R any](ctx context.Context, c *Client, seen func(time.Time), op string, out *[]R,
	list func(context.Context, hcloud.ListOpts) ([]T, *hcloud.Response, error), from func(T) *R,
) error {
	all, date, err := pages(ctx, c, op, list)
	if err != nil {
		return err
	}
	seen(date)
	for _, x := range all {
		*out = append(*out, *from(x))
	}
	return nil
}

// Catalog looks at what can be had, and for how much.
func (c *Client) Catalog(ctx context.Context) (*remote.Catalog, error) {
	cat := &remote.Catalog{
		ServerTypes: map[string]remote.ServerType{}, LBTypes: map[string]map[string]float64{}, Locations: map[string]string{},
	}
	never := func(time.Time) {}
	var types []remote.ServerType
	var lbs []lbType
	var locations []hcloud.Location
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		return gather(ctx, c, never, "list server types", &types, func(ctx context.Context, o hcloud.ListOpts) ([]*hcloud.ServerType, *hcloud.Response, error) {
			return c.api.ServerType.List(ctx, hcloud.ServerTypeListOpts{ListOpts: o})
		}, fromServerType)
	})
	g.Go(func() error {
		return gather(ctx, c, never, "list load balancer types", &lbs, func(ctx context.Context, o hcloud.ListOpts) ([]*hcloud.LoadBalancerType, *hcloud.Response, error) {
			return c.api.LoadBalancerType.List(ctx, hcloud.LoadBalancerTypeListOpts{ListOpts: o})
		}, fromLBType)
	})
	g.Go(func() error {
		return gather(ctx, c, never, "list locations", &locations, func(ctx context.Context, o hcloud.ListOpts) ([]*hcloud.Location, *hcloud.Response, error) {
			return c.api.Location.List(ctx, hcloud.LocationListOpts{ListOpts: o})
		}, func(l *hcloud.Location) *hcloud.Location { return l })
	})
	g.Go(func() error {
		return gather(ctx, c, never, "list images", &cat.Images, func(ctx context.Context, o hcloud.ListOpts) ([]*hcloud.Image, *hcloud.Response, error) {
			return c.api.Image.List(ctx, hcloud.ImageListOpts{ListOpts: o, Type: []hcloud.ImageType{hcloud.ImageTypeSystem, hcloud.ImageTypeSnapshot}})
		}, fromImage)
	})
	g.Go(func() error {
		return c.read(ctx, "look at prices", func(ctx context.Context) error {
			p, _, err := c.api.Pricing.Get(ctx)
			if err == nil {
				cat.Currency = p.Currency
			}
			return err
		})
	})
	if err := g.Wait(); err != nil {
		return nil, err
	}
	for _, t := range types {
		cat.ServerTypes[t.Name] = t
	}
	for _, t := range lbs {
		cat.LBTypes[t.name] = t.prices
	}
	for _, l := range locations {
		cat.Locations[l.Name] = string(l.NetworkZone)
	}
	return cat, nil
}

func price(p hcloud.Price) float64 {
	f, err := strconv.ParseFloat(p.Gross, 64)
	if err != nil {
		return 0
	}
	return f
}
