package ha

import (
	"bufio"
	"context"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"

	"hk/remote"
	"hk/tasks/internal/fake"
	"hk/tasks/internal/golden"
)

func three() []backend {
	return []backend{{"master-1", "10.100.0.1"}, {"master-2", "10.100.0.2"}, {"master-3", "10.100.0.3"}}
}

func TestGolden(t *testing.T) {
	st := endpointState(endpointIn{three()})
	golden.Check(t, "haproxy.cfg.golden", st.Files[1].Content)
	golden.Check(t, "hk-endpoint.service.golden", st.Files[2].Content)
	if u := st.Units[0]; !u.Reload || !u.Enabled || !u.Active {
		t.Errorf("unit %+v: a change of masters must reload it", u)
	}
}

// table is what haproxy 2.6 writes, cut to the columns that matter.
const table = `# pxname,svname,qcur,qmax,status,weight
api,FRONTEND,,,OPEN,
masters,master-1,0,0,UP,1
masters,master-2,0,0,DOWN 1/1,1
masters,master-3,0,0,UP 1/2,1
masters,BACKEND,0,0,UP,2
stats,FRONTEND,,,OPEN,
`

// proxy answers as the local proxy's stats page does.
func proxy(body string) func(string) (net.Conn, error) {
	return func(string) (net.Conn, error) {
		ours, theirs := net.Pipe()
		go func() {
			defer theirs.Close()
			req, err := http.ReadRequest(bufio.NewReader(theirs))
			if err != nil {
				return
			}
			status := "200 OK"
			if req.URL.Path != "/;csv" {
				status = "404 Not Found"
			}
			_, _ = theirs.Write([]byte("HTTP/1.0 " + status + "\r\nContent-Type: text/plain\r\n\r\n" + body))
		}()
		return ours, nil
	}
}

func TestCheckWantsAMajorityAndNamesTheOthers(t *testing.T) {
	h := fake.NewHost("worker-1")
	h.OnDial = proxy(table)
	e := fake.Env(fake.NewVault(), h)
	var said []string
	e.Log = func(l string) { said = append(said, l) }
	if _, err := verifyCheck(t.Context(), checkIn{"worker-1", three()}, e); err != nil {
		t.Fatal(err)
	}
	if len(said) != 1 || !strings.Contains(said[0], "master-2 (DOWN)") {
		t.Errorf("said %v", said)
	}
}

func TestCheckFailsWithoutAMajority(t *testing.T) { synctest.Test(t, testCheckFailsWithoutAMajority) }

func testCheckFailsWithoutAMajority(t *testing.T) {
	h := fake.NewHost("worker-1")
	h.OnDial = proxy(strings.ReplaceAll(table, "UP", "DOWN"))
	_, err := verifyCheck(t.Context(), checkIn{"worker-1", three()}, fake.Env(fake.NewVault(), h))
	if err == nil || !strings.Contains(err.Error(), "0 of 3 are up, 2 are needed") {
		t.Errorf("error %v", err)
	}
}

func TestStatusesOfSomethingElse(t *testing.T) {
	if _, err := statuses([][]string{{"hello"}}); err == nil {
		t.Error("a table without a status column was accepted")
	}
	if _, err := statuses(nil); err == nil {
		t.Error("an empty table was accepted")
	}
}

// balancer is a cloud with one load balancer.
type balancer struct {
	remote.Cloud
	lb   remote.LoadBalancer
	sets int
}

func (b *balancer) LoadBalancer(context.Context, int64) (*remote.LoadBalancer, error) {
	lb := b.lb
	return &lb, nil
}

func (b *balancer) SetLoadBalancer(_ context.Context, lb remote.LoadBalancer) error {
	b.lb = lb
	b.sets++
	return nil
}

func TestExternalSetsOnceAndSeesDrift(t *testing.T) {
	in := externalIn{ID: 5, IPv4: "198.18.0.9", Servers: []int64{11, 12, 13}}
	b := &balancer{lb: remote.LoadBalancer{ID: 5}}
	e := fake.Env(fake.NewVault())
	k := &fake.Kube{}
	e.Cloud, e.Kube = b, func() (remote.Kube, error) { return k, nil }
	noted := ""
	e.Note = func(_, v string) { noted = v }
	run := func() {
		t.Helper()
		if err := runExternal(t.Context(), in, e); err != nil {
			t.Fatal(err)
		}
		if _, err := verifyExternal(t.Context(), in, e); err != nil {
			t.Fatal(err)
		}
	}
	run()
	run()
	if b.sets != 1 {
		t.Errorf("written %d times", b.sets)
	}
	b.lb.Targets = append(b.lb.Targets[:0:0], b.lb.Targets...)
	b.lb.Targets[0].Health = map[int]string{6443: "unhealthy"}
	if digest(&b.lb) != noted {
		t.Error("what a check sees just now counts as drift")
	}
	b.lb.Targets = b.lb.Targets[1:]
	if digest(&b.lb) == noted {
		t.Error("a missing target is not seen")
	}
}
