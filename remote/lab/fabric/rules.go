package fabric

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/vishvananda/netns"
)

// Rule is one rule of a cloud firewall.
type Rule struct {
	Protocol string         // tcp, udp, icmp, esp, gre
	Ports    string         // "22", "80-85", "" for all
	Nets     []netip.Prefix // where from (inbound) or where to (outbound)
}

// Guard is what a server's firewalls come to. A server with no firewall has
// none: everything may reach it.
type Guard struct {
	Server int64
	Addr   netip.Addr
	In     []Rule // nothing else may come in
	Out    []Rule // nothing else may go out, unless empty: then everything may
}

// SyncRules brings the router's rules to what the guards say, in one step:
// connections that are open stay open, new ones are judged by the new rules.
func (f *Fabric) SyncRules(ctx context.Context, guards []Guard) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	text := f.render(guards)
	if text == f.applied {
		return nil
	}
	err := inNSProcess(f.RouterNS(), func() error {
		_, err := nft(ctx, text, "-f", "-")
		return err
	})
	if err != nil {
		return fmt.Errorf("firewall rules of the lab: %w", err)
	}
	f.applied = text
	return nil
}

// inNSProcess runs f, which starts a process, on a thread inside the namespace:
// the process inherits it.
func inNSProcess(name string, f func() error) error {
	return onThread(func() error {
		ns, err := netns.GetFromName(name)
		if err != nil {
			return err
		}
		defer func() { _ = ns.Close() }()
		if err := netns.Set(ns); err != nil {
			return err
		}
		return f()
	})
}

// render writes the router's whole rule set. "add, delete, table" in one
// transaction replaces a table whether it is there or not.
func (f *Fabric) render(guards []Guard) string {
	var b strings.Builder
	p := func(format string, a ...any) { fmt.Fprintf(&b, format+"\n", a...) }
	p("add table inet lab")
	p("delete table inet lab")
	p("table inet lab {")
	var in, out []string
	for _, g := range guards {
		in = append(in, fmt.Sprintf("%s : goto in-%d", g.Addr, g.Server))
		p("  chain in-%d {", g.Server)
		for _, r := range g.In {
			p("    %s accept", match(r, "saddr"))
		}
		p("    drop")
		p("  }")
		if len(g.Out) == 0 {
			continue
		}
		out = append(out, fmt.Sprintf("%s : jump out-%d", g.Addr, g.Server))
		p("  chain out-%d {", g.Server)
		for _, r := range g.Out {
			p("    %s return", match(r, "daddr"))
		}
		p("    drop")
		p("  }")
	}
	p("  chain forward {")
	p("    type filter hook forward priority 0; policy drop;")
	p("    ct state established,related accept")
	p("    ip daddr %s jump host", f.Host())
	if len(out) > 0 {
		p("    ip saddr vmap { %s }", strings.Join(out, ", "))
	}
	if len(in) > 0 {
		p("    ip daddr vmap { %s }", strings.Join(in, ", "))
	}
	p("    ip daddr %s accept", f.Subnet())
	p("  }")
	p("  chain host {") // this computer: the lab's services and nothing else
	p("    tcp dport { %s } accept", f.servicePorts())
	p("    udp dport 53 accept")
	p("    icmp type echo-request accept")
	p("    reject with icmpx admin-prohibited")
	p("  }")
	p("}")
	return b.String()
}

func (f *Fabric) servicePorts() string {
	ports := []string{"53"}
	for _, s := range f.Services {
		ports = append(ports, fmt.Sprint(s))
	}
	return strings.Join(ports, ", ")
}

// match renders the conditions of one rule.
func match(r Rule, side string) string {
	var parts []string
	var nets []string
	all := false
	for _, n := range r.Nets {
		if n.Addr().Is4() {
			nets = append(nets, n.Masked().String())
			all = all || n.Bits() == 0
		}
	}
	slices.Sort(nets)
	nets = slices.Compact(nets)
	switch {
	case all:
	case len(nets) == 0: // only IPv6, which the lab does not route: never matches
		parts = append(parts, "ip "+side+" 0.0.0.0")
	default:
		parts = append(parts, fmt.Sprintf("ip %s { %s }", side, strings.Join(nets, ", ")))
	}
	switch r.Protocol {
	case "tcp", "udp":
		if r.Ports == "" {
			parts = append(parts, "meta l4proto "+r.Protocol)
		} else {
			parts = append(parts, fmt.Sprintf("%s dport %s", r.Protocol, r.Ports))
		}
	default:
		parts = append(parts, "meta l4proto "+r.Protocol)
	}
	return strings.Join(parts, " ")
}
