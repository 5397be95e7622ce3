package fabric

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os/exec"
	"strconv"
	"strings"
	"sync"

	"github.com/vishvananda/netlink"
)

// MTUs of the real cloud.
const (
	publicMTU  = 1500
	privateMTU = 1450
)

// PublicGateway is the gateway every server has on its public interface; it is
// the real cloud's.
const PublicGateway = "172.31.1.1"

// Fabric is one lab's network. Its methods may be called at the same time for
// different objects.
type Fabric struct {
	Name  string // of the lab
	Index int    // 0..127, unique on this computer: bridge name and addresses follow from it

	// Services are the TCP ports on this computer's lab address that machines
	// may reach, beside DNS.
	Services []uint16

	mu      sync.Mutex // one change at a time to what all share: bridge, router, rules
	applied string     // the rules as they were last given to the router
}

// Bridge is the name of the bridge all public traffic crosses.
func (f *Fabric) Bridge() string { return fmt.Sprintf("hkl%d", f.Index) }

// Subnet is the lab's share of 198.18.0.0/15, which is set aside for
// benchmarks (RFC 2544) and routed nowhere.
func (f *Fabric) Subnet() netip.Prefix {
	base := uint32(198)<<24 | uint32(18)<<16 | uint32(f.Index)<<10
	return netip.PrefixFrom(addr4(base), 22)
}

// Host is this computer's address in the lab.
func (f *Fabric) Host() netip.Addr { return f.At(1) }

// At is the nth address of the subnet.
func (f *Fabric) At(n int) netip.Addr {
	b := f.Subnet().Addr().As4()
	return addr4(uint32(b[0])<<24 | uint32(b[1])<<16 | uint32(b[2])<<8 | uint32(b[3]) + uint32(n))
}

// FirstServer and LastServer bound the numbers that At may be given for
// servers and load balancers; below are this computer and the router.
const (
	FirstServer = 10
	LastServer  = 1021
)

func (f *Fabric) routerAddr() netip.Addr { return f.At(2) }

func addr4(v uint32) netip.Addr {
	return netip.AddrFrom4([4]byte{byte(v >> 24), byte(v >> 16), byte(v >> 8), byte(v)})
}

func (f *Fabric) prefix() string { return "hk-" + f.Name + "." }

// RouterNS names the router's namespace.
func (f *Fabric) RouterNS() string { return f.prefix() + "router" }

// NetworkNS names a private network's namespace.
func (f *Fabric) NetworkNS(id int64) string { return fmt.Sprintf("%snet-%d", f.prefix(), id) }

// ServerNS names a server's namespace.
func (f *Fabric) ServerNS(id int64) string { return fmt.Sprintf("%ssrv-%d", f.prefix(), id) }

// BalancerNS names a load balancer's namespace.
func (f *Fabric) BalancerNS(id int64) string { return fmt.Sprintf("%slb-%d", f.prefix(), id) }

// port names an endpoint's port. It holds the index, not the lab's name: an interface
// name has room for 15 bytes.
func (f *Fabric) port(id int64) string { return fmt.Sprintf("%s.%d", f.Bridge(), id) }

// macFor derives a locally administered unicast address from a name.
func macFor(name string) net.HardwareAddr {
	sum := sha256.Sum256([]byte(name))
	mac := net.HardwareAddr(sum[:6])
	mac[0] = mac[0]&^1 | 2
	return mac
}

// ServerMAC is the address of a server's public interface.
func (f *Fabric) ServerMAC(id int64) net.HardwareAddr {
	return macFor(fmt.Sprintf("%s/srv/%d", f.Name, id))
}

// NICMAC is the address of a member's interface in a private network. n counts
// attachments: as on the real cloud, a network attached again has a new one.
func (f *Fabric) NICMAC(network, member int64, n int) net.HardwareAddr {
	return macFor(fmt.Sprintf("%s/net/%d/%d/%d", f.Name, network, member, n))
}

// Up makes bridge and router.
func (f *Fabric) Up(ctx context.Context) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	var bridge netlink.Link
	err := inNS("", func(h *netlink.Handle) error {
		var err error
		if bridge, err = ensureBridge(h, f.Bridge(), publicMTU); err != nil {
			return err
		}
		return ensureAddr(h, bridge, host32(f.Host()))
	})
	if err != nil {
		return err
	}
	if err := f.router(bridge); err != nil {
		return err
	}
	err = inNS("", func(h *netlink.Handle) error {
		if err := ensureRoute(h, bridge, host32(f.routerAddr()), netip.Addr{}, f.Host()); err != nil {
			return err
		}
		return ensureRoute(h, bridge, f.Subnet(), f.routerAddr(), f.Host())
	})
	if err != nil {
		return err
	}
	if err := f.guardHost(ctx); err != nil {
		return err
	}
	return f.openForward(ctx)
}

// router makes the namespace that routes between all public addresses.
func (f *Fabric) router(bridge netlink.Link) error {
	ns := f.RouterNS()
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
	up := f.Bridge() + ".r"
	if err := ensureVeth(end{name: up}, end{ns: ns, name: "pub", mac: macFor(f.Name + "/router")}, publicMTU); err != nil {
		return err
	}
	err = inNS("", func(h *netlink.Handle) error { return enslave(h, up, bridge) })
	if err != nil {
		return err
	}
	return inNS(ns, func(h *netlink.Handle) error {
		pub, err := h.LinkByName("pub")
		if err != nil {
			return err
		}
		if err := h.LinkSetUp(pub); err != nil {
			return err
		}
		for _, a := range []netip.Addr{netip.MustParseAddr(PublicGateway), f.routerAddr()} {
			if err := ensureAddr(h, pub, host32(a)); err != nil {
				return err
			}
		}
		return ensureRoute(h, pub, f.Subnet(), netip.Addr{}, f.routerAddr())
	})
}

// Endpoint is a server or a load balancer as the public network sees it.
type Endpoint struct {
	ID   int64
	NS   string // ServerNS or BalancerNS
	Addr netip.Addr
	MAC  net.HardwareAddr
}

// Attach makes the endpoint's namespace with a configured eth0 in it.
func (f *Fabric) Attach(e Endpoint) error {
	if err := ensureNS(e.NS); err != nil {
		return err
	}
	port := f.port(e.ID)
	if err := ensureVeth(end{name: port}, end{ns: e.NS, name: "eth0", mac: e.MAC}, publicMTU); err != nil {
		return err
	}
	err := inNS("", func(h *netlink.Handle) error {
		bridge, err := h.LinkByName(f.Bridge())
		if err != nil {
			return err
		}
		return enslave(h, port, bridge)
	})
	if err != nil {
		return err
	}
	if err := isolate("", port); err != nil {
		return err
	}
	gw := netip.MustParseAddr(PublicGateway)
	return inNS(e.NS, func(h *netlink.Handle) error {
		eth, err := h.LinkByName("eth0")
		if err != nil {
			return err
		}
		if err := h.LinkSetUp(eth); err != nil {
			return err
		}
		if err := ensureAddr(h, eth, host32(e.Addr)); err != nil {
			return err
		}
		if err := ensureRoute(h, eth, host32(gw), netip.Addr{}, e.Addr); err != nil {
			return err
		}
		return ensureRoute(h, eth, netip.MustParsePrefix("0.0.0.0/0"), gw, netip.Addr{})
	})
}

// Detach removes an endpoint's namespace and all its interfaces.
func (f *Fabric) Detach(id int64, ns string) error {
	return errors.Join(deleteLink("", f.port(id)), removeNS(ns))
}

// Isolated takes an endpoint's port off the bridge (true) or puts it back: a
// network partition.
func (f *Fabric) Isolated(id int64, off bool) error {
	return inNS("", func(h *netlink.Handle) error {
		l, err := h.LinkByName(f.port(id))
		if err != nil {
			return err
		}
		if off {
			return h.LinkSetDown(l)
		}
		return h.LinkSetUp(l)
	})
}

// nft runs nft with input and returns what it wrote.
func nft(ctx context.Context, input string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "nft", args...)
	cmd.Stdin = strings.NewReader(input)
	var out, errb strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &errb
	if err := cmd.Run(); err != nil {
		return out.String(), fmt.Errorf("nft %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(errb.String()))
	}
	return out.String(), nil
}

// Down removes everything of the lab from the network, whoever made it.
func (f *Fabric) Down(ctx context.Context) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	var errs []error
	names, err := listNS(f.prefix())
	errs = append(errs, err)
	links, err := f.hostLinks()
	errs = append(errs, err)
	for _, l := range links {
		errs = append(errs, deleteLink("", l))
	}
	for _, n := range names {
		errs = append(errs, removeNS(n))
	}
	errs = append(errs, f.unguardHost(ctx))
	return errors.Join(errs...)
}

// hostLinks are the lab's interfaces in this computer's namespace, the bridge last.
func (f *Fabric) hostLinks() ([]string, error) {
	links, err := netlink.LinkList()
	if err != nil {
		return nil, err
	}
	var ports, bridge []string
	for _, l := range links {
		switch n := l.Attrs().Name; {
		case n == f.Bridge():
			bridge = append(bridge, n)
		case strings.HasPrefix(n, f.Bridge()+"."):
			ports = append(ports, n)
		}
	}
	return append(ports, bridge...), nil
}

// Left lists what of the lab is in the network, by kind: what Down would remove.
func (f *Fabric) Left(ctx context.Context) (map[string][]string, error) {
	left := map[string][]string{}
	ns, err := listNS(f.prefix())
	if err != nil {
		return nil, err
	}
	links, err := f.hostLinks()
	if err != nil {
		return nil, err
	}
	if len(ns) > 0 {
		left["netns"] = ns
	}
	if len(links) > 0 {
		left["interface"] = links
	}
	if out, err := nft(ctx, "", "list", "table", "inet", f.hostTable()); err == nil && out != "" {
		left["firewall"] = []string{f.hostTable()}
	}
	return left, nil
}

// FreeIndex finds an index whose bridge name and addresses nobody on this
// computer uses. The caller holds a lock that other labs' callers hold too.
func FreeIndex(taken map[int]bool) (int, error) {
	addrs, err := netlink.AddrList(nil, netlink.FAMILY_V4)
	if err != nil {
		return 0, err
	}
next:
	for i := range 128 {
		f := Fabric{Index: i}
		if taken[i] {
			continue
		}
		if hasLink("", f.Bridge()) {
			continue
		}
		for _, a := range addrs {
			if ip, ok := netip.AddrFromSlice(a.IP.To4()); ok && f.Subnet().Contains(ip) {
				continue next
			}
		}
		return i, nil
	}
	return 0, errors.New("all 128 address ranges for labs are in use")
}

// Namespace makes a namespace without a public interface.
func (f *Fabric) Namespace(ns string) error { return ensureNS(ns) }

// Unplug takes an endpoint's public interface away.
func (f *Fabric) Unplug(id int64) error { return deleteLink("", f.port(id)) }

// Claim makes the bridge with a note of who owns it. An index is taken if its
// bridge has another's note.
func (f *Fabric) Claim(owner string) error {
	return inNS("", func(h *netlink.Handle) error {
		l, err := ensureBridge(h, f.Bridge(), publicMTU)
		if err != nil {
			return err
		}
		switch alias := l.Attrs().Alias; alias {
		case owner:
			return nil
		case "":
			return h.LinkSetAlias(l, owner)
		default:
			return fmt.Errorf("bridge %s and its addresses belong to the lab in %s by now; take one of the two down", f.Bridge(), alias)
		}
	})
}

// NSOwner is the ID of whose namespace it is, 0 for the router's.
func (f *Fabric) NSOwner(ns string) int64 {
	_, id, _ := strings.Cut(strings.TrimPrefix(ns, f.prefix()), "-")
	n, _ := strconv.ParseInt(id, 10, 64)
	return n
}

// PortOwner is the ID of whose bridge port it is.
func (f *Fabric) PortOwner(link string) (int64, bool) {
	id, err := strconv.ParseInt(strings.TrimPrefix(link, f.Bridge()+"."), 10, 64)
	return id, err == nil
}
