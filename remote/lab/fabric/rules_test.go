package fabric

import (
	"net/netip"
	"strings"
	"testing"
)

func nets(cidrs ...string) []netip.Prefix {
	var out []netip.Prefix
	for _, c := range cidrs {
		out = append(out, netip.MustParsePrefix(c))
	}
	return out
}

func TestMatch(t *testing.T) {
	for want, r := range map[string]Rule{
		"tcp dport 22": {Protocol: "tcp", Ports: "22", Nets: nets("0.0.0.0/0", "::/0")},
		"ip saddr { 10.0.0.0/8, 192.0.2.1/32 } udp dport 80-85": {Protocol: "udp", Ports: "80-85", Nets: nets("192.0.2.1/32", "10.0.0.0/8", "10.0.0.0/8")},
		"meta l4proto tcp":  {Protocol: "tcp", Nets: nets("0.0.0.0/0")},
		"meta l4proto icmp": {Protocol: "icmp", Nets: nets("0.0.0.0/0")},
		// Only IPv6, which is not routed: must match nothing, not everything.
		"ip saddr 0.0.0.0 tcp dport 22": {Protocol: "tcp", Ports: "22", Nets: nets("::/0")},
	} {
		if got := match(r, "saddr"); got != want {
			t.Errorf("%+v:\n got %s\nwant %s", r, got, want)
		}
	}
}

func TestRender(t *testing.T) {
	f := &Fabric{Name: "t", Index: 1, Services: []uint16{8080}}
	text := f.render([]Guard{
		{Server: 7, Addr: f.At(10), In: []Rule{{Protocol: "tcp", Ports: "22", Nets: nets("0.0.0.0/0")}}},
		{Server: 8, Addr: f.At(11), Out: []Rule{{Protocol: "udp", Ports: "53", Nets: nets("0.0.0.0/0")}}},
	})
	for _, want := range []string{
		"ip daddr vmap { 198.18.4.10 : goto in-7, 198.18.4.11 : goto in-8 }",
		"ip saddr vmap { 198.18.4.11 : jump out-8 }", // server 7 has no outbound rule: all may go out
		"tcp dport { 53, 8080 } accept",
		"policy drop",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is missing in:\n%s", want, text)
		}
	}
	if in := text[strings.Index(text, "chain in-8"):]; strings.Contains(in[:strings.Index(in, "}")], "accept") {
		t.Error("a firewall without inbound rules lets something in")
	}
	// What is open stays open: before anything is judged.
	if strings.Index(text, "ct state established,related accept") > strings.Index(text, "vmap") {
		t.Error("open connections are judged by the rules")
	}
}

func TestAddresses(t *testing.T) {
	first, last := &Fabric{Index: 0}, &Fabric{Index: 127}
	if got := first.Subnet().String(); got != "198.18.0.0/22" {
		t.Errorf("first lab: %s", got)
	}
	if got := last.At(LastServer); got.String() != "198.19.255.253" || !last.Subnet().Contains(got) {
		t.Errorf("last address of the last lab: %s", got)
	}
	if !netip.MustParsePrefix("198.18.0.0/15").Contains(last.At(LastServer)) {
		t.Error("addresses outside of what is set aside for benchmarks")
	}
	if len((&Fabric{Index: 127}).port(9999999)) > 15 {
		t.Error("an interface name is too long")
	}
}
