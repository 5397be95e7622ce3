package cluster

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"hk/remote"
)

// bubbleTimer measures a test bubble's time. asleep is added to it: time that
// passed while the process was stopped and its timers stood still.
func bubbleTimer(asleep *atomic.Int64) Timer {
	start := time.Now()
	t := RealTimer()
	t.Boot = func() time.Duration {
		d := time.Since(start)
		if asleep != nil {
			d += time.Duration(asleep.Load())
		}
		return d
	}
	return t
}

func acquire(ctx context.Context, c *fakeCloud, who string, asleep *atomic.Int64) (*Lease, context.Context, error) {
	l, ctx, _, err := Acquire(ctx, LeaseOptions{
		Cloud: c, Cluster: "demo", Holder: who, Run: "run-" + who, Nonce: "nonce-" + who, Timer: bubbleTimer(asleep),
	})
	return l, ctx, err
}

func TestLeaseIsHeldByOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCloud(time.Now)
		a, actx, err := acquire(t.Context(), c, "a@x:1", nil)
		if err != nil {
			t.Fatal(err)
		}
		_, _, err = acquire(t.Context(), c, "b@y:2", nil)
		r := refusal(t, err, ExitLocked)
		if !errors.Is(err, ErrLocked) || !strings.Contains(r.Message, "a.x-1") || !strings.Contains(r.Message, "run-a.x-1") {
			t.Errorf("who holds it: %q", r.Message)
		}
		// Renewals go on for as long as it is held.
		time.Sleep(10 * time.Minute)
		if err := a.Check(); err != nil || actx.Err() != nil {
			t.Fatalf("after ten minutes: %v %v", err, actx.Err())
		}
		if _, _, err := acquire(t.Context(), c, "b", nil); err == nil {
			t.Fatal("a held lock was taken")
		}
		gen := a.Generation()
		if err := a.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := a.Check(); !errors.Is(err, ErrLeaseLost) {
			t.Errorf("after release: %v", err)
		}
		if len(c.inv.Firewalls) != 0 {
			t.Errorf("left in the cloud: %+v", c.inv.Firewalls)
		}
		b, _, err := acquire(t.Context(), c, "b", nil)
		if err != nil {
			t.Fatal(err)
		}
		if b.Generation() < gen {
			t.Errorf("generation %d after %d", b.Generation(), gen)
		}
		if err := b.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
	})
}

// A holder whose computer sleeps loses the lease without hearing of it, and
// starts no write when it wakes.
func TestLeaseOfASleeper(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCloud(time.Now)
		var asleep atomic.Int64
		a, actx, err := acquire(t.Context(), c, "a", &asleep)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(20 * time.Second)
		// It stops for 90 s; what it had under way stays as it is.
		stopped := int64(90 * time.Second)
		c.mu.Lock()
		real := c.now
		c.now = func() time.Time { return real().Add(90 * time.Second) }
		c.mu.Unlock()
		b, _, err := acquire(t.Context(), c, "b", nil)
		if err != nil {
			t.Fatalf("an expired lock cannot be taken: %v", err)
		}
		asleep.Store(stopped)
		if err := a.Check(); !errors.Is(err, ErrLeaseLost) {
			t.Fatalf("the sleeper may write: %v", err)
		}
		if actx.Err() == nil || !errors.Is(context.Cause(actx), ErrLeaseLost) {
			t.Errorf("its context: %v", context.Cause(actx))
		}
		if b.Generation() <= a.Generation() {
			t.Errorf("generations %d and %d: hosts could not tell", a.Generation(), b.Generation())
		}
		if err := a.Release(t.Context()); !errors.Is(err, ErrLeaseLost) {
			t.Errorf("releasing a lost lease: %v", err)
		}
		if err := b.Check(); err != nil {
			t.Errorf("the sleeper's release hurt the new holder: %v", err)
		}
		if err := b.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
	})
}

// While the API does not answer the lease runs on, and writes end ten seconds
// before others may steal it.
func TestLeaseWhileTheCloudIsDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCloud(time.Now)
		var lost atomic.Bool
		l, ctx, _, err := Acquire(t.Context(), LeaseOptions{
			Cloud: c, Cluster: "demo", Holder: "a", Run: "r", Nonce: "n", Timer: bubbleTimer(nil), Lost: func(error) { lost.Store(true) },
		})
		if err != nil {
			t.Fatal(err)
		}
		until := lockOf(must(c.Inventory(t.Context())), "demo").Until
		c.mu.Lock()
		c.fault = func(op string, _ bool) error {
			return &remote.CloudError{Op: op, Again: true, Message: "bad gateway", Status: 502}
		}
		c.mu.Unlock()
		for l.Check() == nil {
			time.Sleep(time.Second)
			if time.Until(until) < leaseMargin-2*time.Second {
				t.Fatal("a write may still start in the last ten seconds")
			}
		}
		synctest.Wait()
		if !lost.Load() || ctx.Err() == nil {
			t.Error("nobody was told")
		}
		c.mu.Lock()
		c.fault = nil
		c.mu.Unlock()
		_ = l.Release(t.Context())
	})
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// A renewal that comes back later keeps the lease.
func TestLeaseSurvivesAStumble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCloud(time.Now)
		a, _, err := acquire(t.Context(), c, "a", nil)
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		c.mu.Lock()
		c.fault = func(string, bool) error {
			if n++; n < 8 {
				return &remote.CloudError{Again: true, Message: "429"}
			}
			return nil
		}
		c.mu.Unlock()
		time.Sleep(5 * time.Minute)
		if err := a.Check(); err != nil {
			t.Errorf("lost: %v", err)
		}
		c.mu.Lock()
		c.fault = nil
		c.mu.Unlock()
		if err := a.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
	})
}

// The lock was deleted under the holder (hk unlock): the next renewal finds out.
func TestLeaseThatWasUnlocked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCloud(time.Now)
		a, ctx, err := acquire(t.Context(), c, "a", nil)
		if err != nil {
			t.Fatal(err)
		}
		locks, err := Unlock(t.Context(), c, "demo")
		if err != nil || len(locks) != 1 || locks[0].Holder != "a" {
			t.Fatalf("unlocked %+v, %v", locks, err)
		}
		time.Sleep(leaseRenew + time.Second)
		synctest.Wait()
		if !errors.Is(context.Cause(ctx), ErrLeaseLost) {
			t.Errorf("its context: %v", context.Cause(ctx))
		}
		_ = a.Release(t.Context())
	})
}

// An answer that was lost after the lock was made does not lock its own maker
// out, and leaves one lock.
func TestLeaseAfterALostAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCloud(time.Now)
		c.fault = func(op string, after bool) error {
			if after && strings.HasPrefix(op, "create firewall") {
				return &remote.CloudError{Op: op, Again: true, Message: "connection reset"}
			}
			return nil
		}
		a, _, err := acquire(t.Context(), c, "a", nil)
		if err != nil {
			t.Fatal(err)
		}
		if len(c.inv.Firewalls) != 1 {
			t.Errorf("locks: %+v", c.inv.Firewalls)
		}
		if err := a.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
	})
}

// Many at once, with and without unique names, with and without an expired lock
// in the way: exactly one gets it.
func TestLeaseRace(t *testing.T) {
	for _, unique := range []bool{true, false} {
		for _, stale := range []bool{true, false} {
			t.Run(fmt.Sprintf("unique=%t,stale=%t", unique, stale), func(t *testing.T) {
				for seed := range uint64(30) {
					synctest.Test(t, func(t *testing.T) { race(t, seed, unique, stale) })
				}
			})
		}
	}
}

// slowCloud takes a random time for each call, before and after its effect.
type slowCloud struct {
	*fakeCloud
	mu  sync.Mutex
	rnd *rand.Rand
}

func (c *slowCloud) wait() {
	c.mu.Lock()
	d := time.Duration(c.rnd.IntN(300)) * time.Millisecond
	c.mu.Unlock()
	time.Sleep(d)
}

func (c *slowCloud) Inventory(ctx context.Context) (*remote.Inventory, error) {
	c.wait()
	defer c.wait()
	return c.fakeCloud.Inventory(ctx)
}

func (c *slowCloud) CreateFirewall(ctx context.Context, f remote.Firewall) (*remote.Firewall, error) {
	c.wait()
	defer c.wait()
	return c.fakeCloud.CreateFirewall(ctx, f)
}

func (c *slowCloud) DeleteFirewall(ctx context.Context, id int64) error {
	c.wait()
	defer c.wait()
	return c.fakeCloud.DeleteFirewall(ctx, id)
}

func race(t *testing.T, seed uint64, unique, stale bool) {
	t.Helper()
	c := &slowCloud{fakeCloud: newCloud(time.Now), rnd: rand.New(rand.NewPCG(seed, 1))}
	c.unique = unique
	if stale {
		a, _, err := acquire(t.Context(), c.fakeCloud, "dead", nil)
		if err != nil {
			t.Fatal(err)
		}
		close(a.stop) // it dies
		a.once.Do(func() {})
		time.Sleep(leaseTime + 5*time.Second)
	}
	var wg sync.WaitGroup
	var mu sync.Mutex
	var winners []*Lease
	for i := range 4 {
		wg.Go(func() {
			c.wait()
			l, _, _, err := Acquire(t.Context(), LeaseOptions{
				Cloud: c, Cluster: "demo", Holder: fmt.Sprint("h", i), Run: "r", Nonce: fmt.Sprint("n", i), Timer: bubbleTimer(nil),
			})
			if err != nil {
				if !errors.Is(err, ErrLocked) {
					t.Errorf("seed %d: %v", seed, err)
				}
				return
			}
			mu.Lock()
			winners = append(winners, l)
			mu.Unlock()
		})
	}
	wg.Wait()
	if len(winners) > 1 {
		t.Errorf("seed %d: %d hold the lock", seed, len(winners))
	}
	if len(winners) == 0 && unique {
		t.Errorf("seed %d: nobody got the lock", seed)
	}
	for _, l := range winners {
		if err := l.Release(t.Context()); err != nil {
			t.Error(err)
		}
	}
	if n := len(locksOf(must(c.fakeCloud.Inventory(t.Context())), "demo")); n != 0 {
		t.Errorf("seed %d: %d locks are left", seed, n)
	}
}

func TestLabelValue(t *testing.T) {
	for in, want := range map[string]string{
		"me@host:12": "me.host-12", "a b": "a-b", "_x_": "x", "": "", strings.Repeat("a", 70): strings.Repeat("a", 63), "ü": "",
	} {
		if got := LabelValue(in); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
}

// A holder at 63 bytes may end in the middle of something: it still is a label.
func TestLabelValueIsAlwaysOne(t *testing.T) {
	for n := range 80 {
		v := LabelValue(strings.Repeat("a-", n))
		if len(v) > 63 || strings.HasSuffix(v, "-") {
			t.Errorf("%q", v)
		}
	}
}
