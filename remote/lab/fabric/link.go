package fabric

import (
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// end is one end of a veth pair.
type end struct {
	ns   string // "" is this computer's own namespace
	name string
	mac  net.HardwareAddr
}

// ensureVeth makes the pair a–b with the MTU, or leaves it if it is whole.
func ensureVeth(a, b end, mtu int) error {
	if hasLink(a.ns, a.name) && hasLink(b.ns, b.name) {
		return nil
	}
	// One end cannot live without the other; what is left is in the way.
	if err := errors.Join(deleteLink(a.ns, a.name), deleteLink(b.ns, b.name)); err != nil {
		return err
	}
	bns, err := openNS(b.ns)
	if err != nil {
		return err
	}
	defer func() { _ = bns.Close() }()
	ans, err := openNS(a.ns)
	if err != nil {
		return err
	}
	defer func() { _ = ans.Close() }()

	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.MTU, attrs.HardwareAddr = a.name, mtu, a.mac
	attrs.Namespace = netlink.NsFd(ans)
	veth := &netlink.Veth{
		LinkAttrs: attrs, PeerName: b.name, PeerHardwareAddr: b.mac,
		PeerMTU: uint32(mtu), PeerNamespace: netlink.NsFd(bns),
	}
	return inNS("", func(h *netlink.Handle) error {
		if err := h.LinkAdd(veth); err != nil {
			return fmt.Errorf("making interface pair %s–%s: %w", a.name, b.name, err)
		}
		return nil
	})
}

func openNS(name string) (netns.NsHandle, error) {
	if name == "" {
		return netns.GetFromPath("/proc/thread-self/ns/net")
	}
	return netns.GetFromName(name)
}

func hasLink(ns, name string) bool {
	if ns != "" && !nsExists(ns) {
		return false
	}
	err := inNS(ns, func(h *netlink.Handle) error {
		_, err := h.LinkByName(name)
		return err
	})
	return err == nil
}

func deleteLink(ns, name string) error {
	if ns != "" && !nsExists(ns) {
		return nil
	}
	return inNS(ns, func(h *netlink.Handle) error {
		l, err := h.LinkByName(name)
		if notFound(err) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := h.LinkDel(l); err != nil && !errors.Is(err, unix.ENODEV) {
			return fmt.Errorf("deleting interface %s: %w", name, err)
		}
		return nil
	})
}

func notFound(err error) bool {
	var nf netlink.LinkNotFoundError
	return errors.As(err, &nf)
}

// ensureBridge makes a bridge without spanning tree and brings it up.
func ensureBridge(h *netlink.Handle, name string, mtu int) (netlink.Link, error) {
	l, err := h.LinkByName(name)
	if notFound(err) {
		attrs := netlink.NewLinkAttrs()
		attrs.Name, attrs.MTU = name, mtu
		snoop := false
		// A fixed address: a bridge otherwise takes over its lowest port's, and
		// what neighbours have learned goes stale when that port leaves.
		attrs.HardwareAddr = macFor("bridge/" + name)
		if err = h.LinkAdd(&netlink.Bridge{LinkAttrs: attrs, MulticastSnooping: &snoop}); err != nil {
			return nil, fmt.Errorf("making bridge %s: %w", name, err)
		}
		l, err = h.LinkByName(name)
	}
	if err != nil {
		return nil, err
	}
	return l, h.LinkSetUp(l)
}

// enslave puts port into bridge and brings it up.
func enslave(h *netlink.Handle, port string, bridge netlink.Link) error {
	l, err := h.LinkByName(port)
	if err != nil {
		return err
	}
	if l.Attrs().MasterIndex != bridge.Attrs().Index {
		if err := h.LinkSetMaster(l, bridge); err != nil {
			return fmt.Errorf("putting %s into bridge %s: %w", port, bridge.Attrs().Name, err)
		}
	}
	return h.LinkSetUp(l)
}

// iflaBrportIsolated is IFLA_BRPORT_ISOLATED of linux/if_link.h (Linux 4.18).
const iflaBrportIsolated = 33

// isolate keeps a bridge port from talking to other isolated ports of its
// bridge. The netlink library has no call for it.
func isolate(ns, port string) error {
	set := func() error {
		l, err := netlink.LinkByName(port)
		if err != nil {
			return err
		}
		req := nl.NewNetlinkRequest(unix.RTM_SETLINK, unix.NLM_F_ACK)
		msg := nl.NewIfInfomsg(unix.AF_BRIDGE)
		msg.Index = int32(l.Attrs().Index)
		req.AddData(msg)
		br := nl.NewRtAttr(unix.IFLA_PROTINFO|unix.NLA_F_NESTED, nil)
		br.AddRtAttr(iflaBrportIsolated, []byte{1})
		req.AddData(br)
		_, err = req.Execute(unix.NETLINK_ROUTE, 0)
		return err
	}
	var err error
	if ns == "" {
		err = set()
	} else {
		err = Do(ns, set)
	}
	if err != nil {
		return fmt.Errorf("isolating bridge port %s: %w", port, err)
	}
	return nil
}

// ensureAddr adds addr to the interface unless it has it.
func ensureAddr(h *netlink.Handle, l netlink.Link, addr netip.Prefix) error {
	err := h.AddrReplace(l, &netlink.Addr{IPNet: ipNet(addr)})
	if err != nil {
		return fmt.Errorf("address %s on %s: %w", addr, l.Attrs().Name, err)
	}
	return nil
}

// ensureRoute adds or replaces a route; via and src may be invalid (none).
func ensureRoute(h *netlink.Handle, l netlink.Link, dst netip.Prefix, via, src netip.Addr) error {
	// "static" is what systemd-networkd marks its routes with: one that it adds in
	// the machine is then this one, not a second.
	r := &netlink.Route{LinkIndex: l.Attrs().Index, Dst: ipNet(dst), Protocol: unix.RTPROT_STATIC}
	if via.IsValid() {
		r.Gw = via.AsSlice()
		r.Flags = int(netlink.FLAG_ONLINK)
	} else {
		r.Scope = netlink.SCOPE_LINK
	}
	if src.IsValid() {
		r.Src = src.AsSlice()
	}
	if err := h.RouteReplace(r); err != nil {
		return fmt.Errorf("route %s on %s: %w", dst, l.Attrs().Name, err)
	}
	return nil
}

func ipNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}

func host32(a netip.Addr) netip.Prefix { return netip.PrefixFrom(a, a.BitLen()) }
