//go:build lab

package cli

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// toolsImage answers on 8080: / says host name and client address, /bytes is 10
// MiB. The lab's registry has it.
const toolsImage = "registry.k8s.io/hk-tools:v1"

func podManifest(name, node, extra string) string {
	return fmt.Sprintf(`---
apiVersion: v1
kind: Pod
metadata: {name: %[1]s, labels: {app: %[1]s, checks: "1"}}
spec:
  nodeName: %[2]s
  terminationGracePeriodSeconds: 0
  containers:
    - name: tools
      image: %[3]s
      ports: [{containerPort: 8080%[4]s}]
      securityContext: {capabilities: {add: [NET_RAW]}}
`, name, node, toolsImage, extra)
}

func serviceManifest(name, app, kind string) string {
	return fmt.Sprintf("---\napiVersion: v1\nkind: Service\nmetadata: {name: %s, labels: {checks: \"1\"}}\nspec: {type: %s, selector: {app: %s}, ports: [{port: 80, targetPort: 8080}]}\n", name, kind, app)
}

// pods checks the pod network from the inside: addresses, MTU, Services by
// name, host ports, NodePorts through a load balancer, logs and exec, and that
// nothing but the mesh runs between the machines meanwhile.
func pods(t *testing.T, r *rig) {
	stop := r.capture()
	r.write("pods.yaml", podManifest("one", "demo-worker-1", ", hostPort: 18080")+podManifest("two", "demo-worker-2", "")+
		serviceManifest("one", "one", "ClusterIP")+serviceManifest("two", "two", "NodePort"))
	r.kube("apply", "-f", "pods.yaml")
	t.Cleanup(func() { r.kubectl("delete", "-f", "pods.yaml", "--wait=false") })
	r.kube("wait", "--for=condition=Ready", "pod/one", "pod/two", "--timeout=120s")
	ip := func(pod string) string { return r.kube("get", "pod", pod, "-o", "jsonpath={.status.podIP}") }
	one, two := ip("one"), ip("two")
	// After a kubelet was restarted the API server may still hold a connection
	// to the one before, and says so once.
	inside := func(pod string, args ...string) string {
		var out string
		r.eventually(time.Minute, "kubectl exec "+pod, func() error {
			a := r.kubectl(append([]string{"exec", pod, "--"}, args...)...)
			if strings.Contains(a.stderr, "error dialing backend") {
				return fmt.Errorf("%s", a.stderr)
			}
			if a.code != 0 {
				t.Fatalf("in pod %s: %s: exit %d: %s%s", pod, strings.Join(args, " "), a.code, a.stdout, a.stderr)
			}
			out = strings.TrimSpace(a.stdout)
			return nil
		})
		return out
	}
	get := func(pod, url string) string { return inside(pod, "hk-tools", "get", url) }
	want := func(what, got string, texts ...string) {
		for _, s := range texts {
			if !strings.Contains(got, s) {
				t.Errorf("%s: %q holds no %q", what, got, s)
			}
		}
	}
	want("pod to pod, with the pod's own address", get("one", "http://"+two+":8080/"), "two", one)
	want("Service by name, backend on another host", get("one", "http://two.default.svc.cluster.local/"), "two")
	// By its whole name: a pod's own name is its own address without a Service.
	want("Service whose backend is the client itself", get("one", "http://one.default.svc.cluster.local/"), "one")
	r.write("near.yaml", podManifest("near", "demo-worker-1", ""))
	r.kube("apply", "-f", "near.yaml")
	t.Cleanup(func() { r.kubectl("delete", "-f", "near.yaml", "--wait=false") })
	r.kube("wait", "--for=condition=Ready", "pod/near", "--timeout=120s")
	want("Service, backend on the same host", get("near", "http://one.default.svc.cluster.local/"), "one")
	mtu := r.on("worker-1", "cat /sys/class/net/hk0/mtu")
	if got := inside("one", "sh", "-c", "ping -c 2 -W 5 -M do -s $(( "+mtu+" - 28 )) "+two+" || busybox ping -c 2 -W 5 -s $(( "+mtu+" - 28 )) "+two); !strings.Contains(got, " 0% packet loss") {
		t.Errorf("full-size ping: %s", got)
	}
	if got := inside("one", "sh", "-c", "hk-tools get http://"+two+":8080/bytes | wc -c"); got != "10485760" {
		t.Errorf("a transfer of 10 MiB brought %s bytes", got)
	}
	mesh := r.on("worker-1", "ip -4 -o addr show dev hk0 | awk '{print $4}' | cut -d/ -f1")
	want("hostPort at the mesh address, from a pod on another host", get("two", "http://"+mesh+":18080/"), "one")
	want("logs", r.kube("-n", "kube-system", "logs", "deployment/coredns"), "CoreDNS-")
	want("exec", inside("two", "hostname"), "two")
	nodePort(t, r)
	if seen := stop(); seen != "" {
		t.Errorf("between the machines' public addresses ran more than the mesh:\n%s", seen)
	}
}

// capture listens on the lab's bridge until stopped and returns what was not
// the mesh between the machines' public addresses. ARP and IPv6 neighbour
// discovery are no traffic of theirs.
func (r *rig) capture() (stop func() string) {
	r.t.Helper()
	var hosts []string
	for _, s := range r.servers() {
		hosts = append(hosts, s.Public.IPv4.IP)
	}
	any := func(dir string) string {
		return "(" + dir + " host " + strings.Join(hosts, " or "+dir+" host ") + ")"
	}
	filter := any("src") + " and " + any("dst") + " and not (udp port 51820) and not arp"
	cmd := exec.Command("tcpdump", "-n", "-l", "-i", r.info.Bridge, "-c", "20", filter)
	var out, errOut strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &errOut
	if err := cmd.Start(); err != nil {
		r.t.Fatalf("tcpdump is needed for this check: %v", err)
	}
	return func() string {
		time.Sleep(300 * time.Millisecond) //nolint:forbidigo // what was captured is written a moment later
		_ = cmd.Process.Signal(os.Interrupt)
		_ = cmd.Wait() // ended by the signal
		if !strings.Contains(errOut.String(), "packets captured") {
			r.t.Errorf("tcpdump did not run: %s", errOut.String())
		}
		return strings.TrimSpace(out.String()) // tcpdump ends a line when it is interrupted
	}
}

// nodePort reaches a NodePort from outside, through a load balancer of the lab
// that talks to the private addresses.
func nodePort(t *testing.T, r *rig) {
	port := r.kube("get", "service", "two", "-o", "jsonpath={.spec.ports[0].nodePort}")
	api := func(method, path, body string) string {
		args := []string{"-fsS", "-X", method, "-H", "Authorization: Bearer " + r.info.Token, "-H", "Content-Type: application/json"}
		if body != "" {
			args = append(args, "-d", body)
		}
		a := outcome(t, exec.Command("curl", append(args, r.info.Endpoint+path)...))
		if a.code != 0 {
			t.Fatalf("%s %s: %s%s", method, path, a.stdout, a.stderr)
		}
		return a.stdout
	}
	pick := func(json, query string) string {
		cmd := exec.Command("jq", "-r", query)
		cmd.Stdin = strings.NewReader(json)
		return strings.TrimSpace(outcome(t, cmd).stdout)
	}
	net := pick(api("GET", "/networks?name=demo", ""), ".networks[0].id")
	lb := api("POST", "/load_balancers", `{"name":"check","load_balancer_type":"lb11","location":"fsn1","network":`+net+`,"algorithm":{"type":"round_robin"},
		"services":[{"protocol":"tcp","listen_port":80,"destination_port":`+port+`,"proxyprotocol":false,
		"health_check":{"protocol":"tcp","port":`+port+`,"interval":3,"timeout":2,"retries":2}}],
		"targets":[{"type":"server","server":{"id":`+fmt.Sprint(r.serverID("worker-1"))+`},"use_private_ip":true}]}`)
	id, ip := pick(lb, ".load_balancer.id"), pick(lb, ".load_balancer.public_net.ipv4.ip")
	t.Cleanup(func() { api("DELETE", "/load_balancers/"+id, "") })
	took := r.eventually(30*time.Second, "NodePort through the load balancer", func() error {
		a := outcome(t, exec.Command("curl", "-fsS", "-m", "3", "http://"+ip+"/"))
		if a.code != 0 || !strings.Contains(a.stdout, "two") {
			return fmt.Errorf("%s%s", a.stdout, a.stderr)
		}
		return nil
	})
	t.Logf("NodePort through a load balancer answered after %s", took.Round(time.Millisecond))
}
