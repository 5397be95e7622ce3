package fabric

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Network is a private network as the fabric needs to know it.
type Network struct {
	ID      int64
	Range   netip.Prefix
	Subnets []netip.Prefix
	Routes  []Route
}

// Route sends a destination to a member of the network.
type Route struct {
	Destination netip.Prefix
	Gateway     netip.Addr
}

// Gateway is the address every member routes through: the first of the range.
func (n Network) Gateway() netip.Addr { return n.Range.Addr().Next() }

// NIC is a member's interface in a private network.
type NIC struct {
	Network Network
	Member  int64  // server or load balancer
	NS      string // the member's namespace
	Name    string // of the interface in it
	Addr    netip.Addr
	MAC     net.HardwareAddr
}

const netBridge = "br"

// SyncNetwork makes a network's router, or brings it to what n says.
func (f *Fabric) SyncNetwork(n Network) error {
	ns := f.NetworkNS(n.ID)
	if err := ensureNS(ns); err != nil {
		return err
	}
	err := sysctls(ns, map[string]string{
		"net.ipv4.ip_forward":                  "1",
		"net.ipv4.conf.all.send_redirects":     "0",
		"net.ipv4.conf.default.send_redirects": "0",
		"net.ipv4.conf.all.rp_filter":          "0",
		"net.ipv4.conf.default.rp_filter":      "0",
	})
	if err != nil {
		return err
	}
	return inNS(ns, func(h *netlink.Handle) error {
		br, err := ensureBridge(h, netBridge, privateMTU)
		if err != nil {
			return err
		}
		if err := ensureAddr(h, br, host32(n.Gateway())); err != nil {
			return err
		}
		want := map[string]bool{}
		for _, s := range n.Subnets {
			want[s.String()] = true
			if err := ensureRoute(h, br, s, netip.Addr{}, n.Gateway()); err != nil {
				return err
			}
		}
		for _, r := range n.Routes {
			want[r.Destination.String()] = true
			if err := ensureRoute(h, br, r.Destination, r.Gateway, netip.Addr{}); err != nil {
				return err
			}
		}
		return dropOtherRoutes(h, br, want)
	})
}

// dropOtherRoutes removes routes through l that are not wanted.
func dropOtherRoutes(h *netlink.Handle, l netlink.Link, want map[string]bool) error {
	routes, err := h.RouteList(l, netlink.FAMILY_V4)
	if err != nil {
		return err
	}
	for _, r := range routes {
		if r.Dst == nil || want[r.Dst.String()] || r.Protocol == unix.RTPROT_KERNEL {
			continue
		}
		if err := h.RouteDel(&r); err != nil && !errors.Is(err, unix.ESRCH) {
			return fmt.Errorf("removing route %s: %w", r.Dst, err)
		}
	}
	return nil
}

// RemoveNetwork removes a network's router and with it its members' interfaces.
func (f *Fabric) RemoveNetwork(id int64) error { return removeNS(f.NetworkNS(id)) }

// Join gives a member its interface, configured: /32 address, the network's
// range through the gateway. The member's system needs to do nothing, and may
// do what the real cloud's DHCP would have it do: the result is the same.
func (f *Fabric) Join(n NIC) error {
	ns := f.NetworkNS(n.Network.ID)
	port := fmt.Sprintf("m%d", n.Member)
	if err := ensureVeth(end{ns: ns, name: port}, end{ns: n.NS, name: n.Name, mac: n.MAC}, privateMTU); err != nil {
		return err
	}
	err := inNS(ns, func(h *netlink.Handle) error {
		br, err := h.LinkByName(netBridge)
		if err != nil {
			return err
		}
		return enslave(h, port, br)
	})
	if err != nil {
		return err
	}
	if err := isolate(ns, port); err != nil {
		return err
	}
	return inNS(n.NS, func(h *netlink.Handle) error {
		l, err := h.LinkByName(n.Name)
		if err != nil {
			return err
		}
		if err := h.LinkSetUp(l); err != nil {
			return err
		}
		if err := ensureAddr(h, l, host32(n.Addr)); err != nil {
			return err
		}
		gw := n.Network.Gateway()
		if err := ensureRoute(h, l, host32(gw), netip.Addr{}, n.Addr); err != nil {
			return err
		}
		return ensureRoute(h, l, n.Network.Range, gw, n.Addr)
	})
}

// Leave takes a member's interface away.
func (f *Fabric) Leave(network, member int64) error {
	return deleteLink(f.NetworkNS(network), fmt.Sprintf("m%d", member))
}

// NICName names a member's nth private interface, the first being 0, as the
// real cloud's current machines do.
func NICName(n int) string { return fmt.Sprintf("enp%ds0", 7+n) }

// Members lists who has an interface in a network: what Leave would take.
func (f *Fabric) Members(network int64) ([]int64, error) {
	ns := f.NetworkNS(network)
	if !nsExists(ns) {
		return nil, nil
	}
	var ids []int64
	err := inNS(ns, func(h *netlink.Handle) error {
		links, err := h.LinkList()
		for _, l := range links {
			var id int64
			if n := l.Attrs().Name; strings.HasPrefix(n, "m") {
				if _, err := fmt.Sscanf(n, "m%d", &id); err == nil {
					ids = append(ids, id)
				}
			}
		}
		return err
	})
	return ids, err
}
