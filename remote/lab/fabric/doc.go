// Package fabric is the lab's network: one bridge all public traffic crosses, a
// router behind it, and one small router per private network.
//
//	this computer ── bridge hklN ──┬── port of server A ── eth0 in A's namespace
//	  198.18.x.1                   ├── port of server B ── eth0 in B's namespace
//	                               └── router's namespace (172.31.1.1, 198.18.x.2)
//
// As on the real cloud, servers have a /32 address and a gateway that is not in
// it; they cannot see each other on the wire (the bridge's ports are isolated),
// so every packet between two servers, or between this computer and a server,
// is routed by the router, and that is where firewalls act: statefully, with the
// connection tracking of the router's own namespace. The host's own firewall,
// sysctls and connection tracking play no part. There is no route out.
//
// A private network is a namespace with a bridge in it that holds the gateway
// address; its members have /32 addresses and MTU 1450 and are routed too.
//
// Three rules: every function can be repeated and repairs what is half made;
// every name starts with the lab's prefix, so that Down finds what a crash left;
// nothing is changed outside of what has that prefix.
//
// Everything here needs CAP_NET_ADMIN and CAP_SYS_ADMIN.
package fabric
