package fabric

import (
	"context"
	"fmt"
	"os"
	"strings"
)

// hostTable is the one nftables table the lab has on this computer itself.
func (f *Fabric) hostTable() string { return "hk-lab-" + f.Name }

// guardHost keeps machines from reaching anything on this computer but the
// lab's services, and from being routed anywhere by it, should a machine talk
// to the bridge past the router. It is stateless on purpose: a rule that looks
// at connection state would switch on connection tracking for the whole
// computer.
func (f *Fabric) guardHost(ctx context.Context) error {
	br := f.Bridge()
	text := fmt.Sprintf(`add table inet %[1]s
delete table inet %[1]s
table inet %[1]s {
  chain input {
    type filter hook input priority -10;
    iifname != "%[2]s" accept
    ip saddr != %[3]s drop
    tcp flags & (syn | ack) != syn accept
    tcp dport { %[4]s } accept
    udp dport { 53, 32768-65535 } accept
    meta l4proto icmp accept
    drop
  }
  chain forward {
    type filter hook forward priority -10;
    iifname "%[2]s" oifname != "%[2]s" drop
    iifname != "%[2]s" oifname "%[2]s" drop
  }
}
`, f.hostTable(), br, f.Subnet(), f.servicePorts())
	if _, err := nft(ctx, text, "-f", "-"); err != nil {
		return fmt.Errorf("guarding this computer against the lab: %w", err)
	}
	return nil
}

// forwardComment marks the one rule the lab may have to put into another's
// chain; see openForward.
func (f *Fabric) forwardComment() string { return "hk-lab " + f.Name }

// openForward lets frames pass the bridge on a computer whose iptables FORWARD
// chain drops by default (Docker's doing) and whose bridges ask it
// (net.bridge.bridge-nf-call-iptables). Without both there is nothing to do and
// nothing is changed.
func (f *Fabric) openForward(ctx context.Context) error {
	on, err := os.ReadFile("/proc/sys/net/bridge/bridge-nf-call-iptables")
	if err != nil || strings.TrimSpace(string(on)) != "1" {
		return nil //nolint:nilerr // no br_netfilter: bridges ask nobody
	}
	out, err := nft(ctx, "", "list", "chain", "ip", "filter", "FORWARD")
	if err != nil {
		return nil //nolint:nilerr // no such chain: nothing drops
	}
	if strings.Contains(out, f.forwardComment()) {
		return nil
	}
	if !strings.Contains(out, "policy drop") && !strings.Contains(out, "drop") && !strings.Contains(out, "reject") && !strings.Contains(out, "jump") {
		return nil
	}
	rule := fmt.Sprintf("insert rule ip filter FORWARD iifname %q oifname %q counter accept comment %q\n",
		f.Bridge(), f.Bridge(), f.forwardComment())
	if _, err := nft(ctx, rule, "-f", "-"); err != nil {
		return fmt.Errorf("this computer's FORWARD chain drops the lab's frames and cannot be opened for bridge %s: %w", f.Bridge(), err)
	}
	return nil
}

// KeepForwardOpen repeats what Up did about a dropping FORWARD chain; for a
// firewall that was loaded or reset after Up.
func (f *Fabric) KeepForwardOpen(ctx context.Context) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.openForward(ctx)
}

// unguardHost takes the lab's table and rule away again.
func (f *Fabric) unguardHost(ctx context.Context) error {
	t := f.hostTable()
	if _, err := nft(ctx, fmt.Sprintf("add table inet %s\ndelete table inet %s\n", t, t), "-f", "-"); err != nil {
		return err
	}
	out, err := nft(ctx, "", "-a", "list", "chain", "ip", "filter", "FORWARD")
	if err != nil {
		return nil // no such chain
	}
	for line := range strings.Lines(out) {
		if !strings.Contains(line, fmt.Sprintf("comment %q", f.forwardComment())) {
			continue
		}
		_, handle, ok := strings.Cut(strings.TrimSpace(line), "# handle ")
		if !ok {
			continue
		}
		if _, err := nft(ctx, "", "delete", "rule", "ip", "filter", "FORWARD", "handle", handle); err != nil {
			return err
		}
	}
	return nil
}
