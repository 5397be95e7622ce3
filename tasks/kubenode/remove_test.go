package kubenode

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"hk/remote"
	"hk/tasks"
	"hk/tasks/internal/fake"
)

// removal is a Node with pods on it, about to go.
func removal() (*fake.Kube, *fake.Host, *tasks.Env) {
	n := node("n")
	n.Ready = true
	k := &fake.Kube{NodeMap: map[string]*remote.Node{"n": n}, Pods: map[string][]remote.Pod{"n": {
		{Namespace: "a", Name: "web", UID: "1"},
		{Namespace: "a", Name: "db", UID: "2"},
		{Namespace: "s", Name: "proxy", UID: "3", Bound: true},
		{Namespace: "a", Name: "job", UID: "4", Finished: true},
	}}}
	h := fake.NewHost("worker-1")
	e := fake.Env(fake.NewVault(), h)
	e.Established = true
	e.Kube = func() (remote.Kube, error) { return k, nil }
	return k, h, e
}

var leaving = RemoveIn{Host: "worker-1", Node: "n", Server: 7}

func remove(t *testing.T, e *tasks.Env) error {
	t.Helper()
	if err := runRemove(t.Context(), leaving, e); err != nil {
		return err
	}
	_, err := verifyRemove(t.Context(), leaving, e)
	return err
}

func TestRemoveDrainsFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k, h, e := removal()
		tries := 0
		k.OnEvict = func(p remote.Pod) error {
			if tries++; p.Name == "db" && tries < 5 {
				return fmt.Errorf("%w: db needs two", remote.ErrBudget)
			}
			return nil
		}
		if err := remove(t, e); err != nil {
			t.Fatal(err)
		}
		want := []string{"cordon n true", "evict a/web", "evict a/db", "evict a/db", "evict a/db", "evict a/db", "delete node n"}
		if !slices.Equal(k.Calls, want) {
			t.Errorf("calls %v, want %v", k.Calls, want)
		}
		if calls := h.Called(""); !slices.Equal(calls, []string{"exec systemctl stop kubelet.service"}) {
			t.Errorf("on the host: %v", calls)
		}
		if err := remove(t, e); err != nil {
			t.Errorf("again, with nothing left: %v", err)
		}
	})
}

func TestRemoveGivesUpAtItsDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k, _, e := removal()
		k.OnEvict = func(p remote.Pod) error {
			if p.Name == "db" {
				return remote.ErrBudget
			}
			return nil
		}
		start := time.Now()
		err := remove(t, e)
		if took := time.Since(start); took != drainLimit {
			t.Errorf("after %s", took)
		}
		if err == nil || !strings.Contains(err.Error(), "still there: a/db (a disruption budget does not allow it)") {
			t.Fatalf("error %v", err)
		}
		w, ok := errors.AsType[*remote.WorldError](err)
		if !ok || w.Class() != "kube" || w.Transient() {
			t.Errorf("%#v: it would be tried two times more by itself", err)
		}
		if k.NodeMap["n"] == nil {
			t.Error("the Node was deleted all the same")
		}
	})
}

// TestRemoveOfASilentHost: what the API can do is done, once, and nothing is
// waited for.
func TestRemoveOfASilentHost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k, _, e := removal()
		k.NodeMap["n"].Ready = false
		k.OnEvict = func(remote.Pod) error { return remote.ErrBudget }
		e.HostOf = func(string) (remote.Host, error) { return nil, remote.ErrUnreachable }
		start := time.Now()
		if err := remove(t, e); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(start); took != 0 {
			t.Errorf("waited %s", took)
		}
		if want := []string{"cordon n true", "evict a/web", "evict a/db", "delete node n"}; !slices.Equal(k.Calls, want) {
			t.Errorf("calls %v, want %v", k.Calls, want)
		}
	})
}

// TestRemoveIsPatientWithTheAPIOnly: an API server that is away for a while is
// waited for, a refusal is not.
func TestRemoveIsPatientWithTheAPIOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k, _, e := removal()
		away := 3
		k.OnEvict = func(remote.Pod) error {
			if away--; away > 0 {
				return &remote.WorldError{World: "kube", Op: "evict", Again: true, Err: errors.New("no API server answers")}
			}
			return nil
		}
		if err := remove(t, e); err != nil {
			t.Error(err)
		}
		k, _, e = removal()
		k.OnEvict = func(remote.Pod) error { return errors.New("forbidden") }
		start := time.Now()
		if err := remove(t, e); err == nil || time.Since(start) != 0 || k.NodeMap["n"] == nil {
			t.Errorf("%v after %s", err, time.Since(start))
		}
	})
}

// TestRemoveWithoutAnAPI: on a cluster that was up it is an error that may pass;
// on one that never was there is nothing to drain.
func TestRemoveWithoutAnAPI(t *testing.T) {
	_, _, e := removal()
	e.Kube = func() (remote.Kube, error) {
		return nil, fmt.Errorf("no master was contacted yet: %w", remote.ErrNotFound)
	}
	if err := remove(t, e); err == nil {
		t.Error("removed without knowing")
	}
	e.Established = false
	if err := remove(t, e); err != nil {
		t.Error(err)
	}
}
