package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"hk/remote"
)

// The cloud lock (CLUSTER.md, Lock) is an inert firewall object by the cluster's
// name. Its labels say who holds it and until when, in Unix seconds by the
// cloud's own clock. Taking it is: create, list, lowest ID wins; names are
// unique in the real API, but that alone is not relied on. An expired lock is
// stolen by deleting the very object that was seen and creating another; nobody
// ever relabels somebody else's.
//
// A holder judges its own lease by CLOCK_BOOTTIME, counted from before the
// request that last extended it was sent: the clock goes on while the computer
// sleeps, and an answer that took long makes the lease shorter, never longer.
// No write starts in the last ten seconds, so that one that takes a while ends
// before anybody may steal.
const (
	leaseTime   = 60 * time.Second
	leaseRenew  = 15 * time.Second
	leaseMargin = 10 * time.Second
)

// Labels of the lock object besides remote.LabelLock.
const (
	labelHolder     = "hk-lock-holder"
	labelRun        = "hk-lock-run"
	labelNonce      = "hk-lock-nonce"
	labelHome       = "hk-lock-home"
	labelGeneration = "hk-lock-generation"
	labelSince      = "hk-lock-since"
	labelUntil      = "hk-lock-until"
)

// LockInfo is a lock as others see it.
type LockInfo struct {
	ID         int64     `json:"-"`
	Holder     string    `json:"holder"`
	Run        string    `json:"run"`
	Generation uint64    `json:"generation"`
	Since      time.Time `json:"since"`
	Until      time.Time `json:"until"`
	Expired    bool      `json:"expired"`

	nonce string
	home  string
	uid   string
}

// LockName is the name of a cluster's lock object.
func LockName(cluster string) string { return "hk-lock-" + cluster }

// locksOf are a cluster's locks, lowest ID first.
func locksOf(inv *remote.Inventory, cluster string) []LockInfo {
	var out []LockInfo
	for i := range inv.Firewalls {
		f := &inv.Firewalls[i]
		if f.Labels[remote.LabelLock] != cluster {
			continue
		}
		l := LockInfo{
			ID: f.ID, Holder: f.Labels[labelHolder], Run: f.Labels[labelRun], nonce: f.Labels[labelNonce],
			home: f.Labels[labelHome],
			uid:  f.Labels[remote.LabelUID], Since: unixTime(f.Labels[labelSince]), Until: unixTime(f.Labels[labelUntil]),
		}
		l.Generation, _ = strconv.ParseUint(f.Labels[labelGeneration], 10, 64) // 0 if somebody wrote nonsense
		if l.Until.IsZero() {
			l.Until = f.Created.Add(leaseTime)
		}
		l.Expired = inv.Time.After(l.Until)
		out = append(out, l)
	}
	slices.SortFunc(out, func(a, b LockInfo) int { return cmp.Compare(a.ID, b.ID) })
	return out
}

// lockOf is the lock that counts; nil if there is none.
func lockOf(inv *remote.Inventory, cluster string) *LockInfo {
	l := locksOf(inv, cluster)
	if len(l) == 0 {
		return nil
	}
	return &l[0]
}

func unixTime(s string) time.Time {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || n <= 0 {
		return time.Time{}
	}
	return time.Unix(n, 0).UTC()
}

// Timer is how a lease measures and waits; simulated worlds bring their own.
type Timer struct {
	// Boot is the time since the computer started, sleep included.
	Boot func() time.Duration
	// Wait returns after d or with the context.
	Wait func(ctx context.Context, d time.Duration) error
}

// RealTimer is CLOCK_BOOTTIME and ordinary timers.
func RealTimer() Timer {
	return Timer{Boot: bootTime, Wait: func(ctx context.Context, d time.Duration) error {
		t := time.NewTimer(d)
		defer t.Stop()
		select {
		case <-t.C:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}}
}

// LeaseOptions say who takes a lease on what.
type LeaseOptions struct {
	Cloud   remote.Cloud
	Cluster string
	UID     string // of the cluster, if known
	Holder  string // user@host:pid
	Run     string
	Nonce   string // random; finds our own lock after a lost answer
	// Home names the state directory on this computer. Whoever takes a lease
	// holds the directory's own run lock, so a lock with the same name is one of
	// a process that died: it is taken over without waiting for its end. "" takes
	// nothing over.
	Home  string
	Timer Timer
	// Least is the newest lease generation known; the new one is higher.
	Least uint64
	// Seen is a look of before, At the boot time when it was asked for; they
	// save one look. nil looks first.
	Seen *remote.Inventory
	At   time.Duration
	// Lost is told once when the lease is lost.
	Lost func(error)
}

// Lease is a lock that is held. It renews itself until Release.
type Lease struct {
	o          LeaseOptions
	id         int64
	generation uint64
	since      time.Time
	cancel     context.CancelCauseFunc
	stop       chan struct{}
	once       sync.Once
	done       chan struct{}

	mu    sync.Mutex
	until time.Duration // by Boot
	err   error         // why it is lost

	api time.Time     // the cloud's time ...
	at  time.Duration // ... at this boot time
}

// look lists what is there and keeps the cloud's time.
func (l *Lease) look(ctx context.Context) (*remote.Inventory, error) {
	if inv := l.o.Seen; inv != nil {
		l.o.Seen, l.api, l.at = nil, inv.Time, l.o.At
		return inv, nil
	}
	at := l.o.Timer.Boot()
	inv, err := l.o.Cloud.Inventory(ctx)
	if err != nil {
		return nil, fmt.Errorf("looking for the lock of %s: %w", l.o.Cluster, err)
	}
	l.api, l.at = inv.Time, at
	return inv, nil
}

// now is the cloud's time, as its last answer and the time since allow to say.
func (l *Lease) now(boot time.Duration) time.Time { return l.api.Add(boot - l.at) }

// Acquire takes the lease. The inventory it returns was read while the lock was
// held. The context it returns dies, with ErrLeaseLost as its cause, when the
// lease is lost.
func Acquire(ctx context.Context, o LeaseOptions) (*Lease, context.Context, *remote.Inventory, error) {
	l := &Lease{o: o, stop: make(chan struct{}), done: make(chan struct{})}
	inv, err := l.take(ctx)
	if err != nil {
		return nil, ctx, nil, err
	}
	ctx, l.cancel = context.WithCancelCause(ctx)
	go l.renew(context.WithoutCancel(ctx))
	return l, ctx, inv, nil
}

// take creates the lock object and makes sure that it is the one that counts.
func (l *Lease) take(ctx context.Context) (*remote.Inventory, error) {
	// Each turn either ends or removes one expired lock; a few are enough for
	// any honest race, and more means somebody else wins every time.
	for range 5 {
		inv, err := l.look(ctx)
		if err != nil {
			return nil, err
		}
		seen := lockOf(inv, l.o.Cluster)
		if seen != nil && seen.nonce != l.o.Nonce {
			if !seen.Expired && (l.o.Home == "" || seen.home != l.o.Home) {
				return nil, locked(l.o.Cluster, seen)
			}
			l.o.Least = max(l.o.Least, seen.Generation)
			if err := l.o.Cloud.DeleteFirewall(ctx, seen.ID); err != nil {
				return nil, fmt.Errorf("removing the lock that a dead hk left of %s: %w", l.o.Cluster, err)
			}
			seen = nil
		}
		if seen == nil {
			if err := l.create(ctx, l.now(l.o.Timer.Boot())); err != nil {
				return nil, err
			}
		}
		if inv, err = l.check(ctx); inv != nil || err != nil {
			return inv, err
		}
	}
	return nil, &Refusal{
		Exit: ExitLocked, World: "state", Err: ErrLocked,
		Message: "the lock of " + l.o.Cluster + " could not be taken: others take it all the time",
	}
}

// create makes the lock object. A name that is taken, or an answer that was
// lost, is settled by the look that follows.
func (l *Lease) create(ctx context.Context, now time.Time) error {
	l.generation = max(uint64(max(now.Unix(), 1)), l.o.Least+1)
	l.since = now
	_, err := l.o.Cloud.CreateFirewall(ctx, remote.Firewall{
		Name: LockName(l.o.Cluster), Labels: l.labels(now.Add(leaseTime)),
	})
	var ce *remote.CloudError
	if err != nil && (!errors.As(err, &ce) || ce.Code != "uniqueness_error" && !ce.Again) {
		return fmt.Errorf("taking the lock of %s: %w", l.o.Cluster, err)
	}
	return ctx.Err()
}

// check lists the locks again: ours counts if it has the lowest ID. It returns
// nothing if another turn is needed.
func (l *Lease) check(ctx context.Context) (*remote.Inventory, error) {
	inv, err := l.look(ctx)
	if err != nil {
		return nil, err
	}
	var first, mine *LockInfo
	locks := locksOf(inv, l.o.Cluster)
	for i := range locks {
		if first == nil {
			first = &locks[i]
		}
		if locks[i].nonce == l.o.Nonce {
			mine = &locks[i]
		}
	}
	switch {
	case mine != nil && mine == first:
		l.id, l.generation = mine.ID, mine.Generation
		l.mu.Lock()
		l.until = l.at + mine.Until.Sub(inv.Time)
		l.mu.Unlock()
		return inv, nil
	case mine != nil:
		if err := l.o.Cloud.DeleteFirewall(ctx, mine.ID); err != nil {
			return nil, fmt.Errorf("giving back the lock of %s: %w", l.o.Cluster, err)
		}
	}
	if first != nil && !first.Expired {
		return nil, locked(l.o.Cluster, first)
	}
	return nil, nil
}

func (l *Lease) labels(until time.Time) map[string]string {
	m := map[string]string{
		remote.LabelLock: l.o.Cluster,
		labelHolder:      LabelValue(l.o.Holder),
		labelRun:         LabelValue(l.o.Run),
		labelNonce:       l.o.Nonce,
		labelGeneration:  strconv.FormatUint(l.generation, 10),
		labelSince:       strconv.FormatInt(l.since.Unix(), 10),
		labelUntil:       strconv.FormatInt(until.Unix(), 10),
	}
	if l.o.Home != "" {
		m[labelHome] = l.o.Home
	}
	if l.o.UID != "" {
		m[remote.LabelUID] = l.o.UID
	}
	return m
}

// renew extends the lease until Release, or until it is lost.
func (l *Lease) renew(ctx context.Context) {
	defer close(l.done)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		select {
		case <-l.stop:
			cancel()
		case <-ctx.Done():
		}
	}()
	wait := leaseRenew
	for {
		if l.o.Timer.Wait(ctx, wait) != nil {
			return
		}
		wait = leaseRenew
		if err := l.Check(); err != nil {
			return // Check has said so
		}
		switch err := l.extend(ctx); {
		case err == nil:
		case ctx.Err() != nil:
			return
		case errors.Is(err, remote.ErrNotFound):
			_ = l.lose(fmt.Errorf("%w: its lock object is gone, somebody else took it", ErrLeaseLost)) // who writes next hears it
			return
		default:
			wait = 2 * time.Second // the API stumbles; the lease still runs
		}
	}
}

func (l *Lease) extend(ctx context.Context) error {
	sent := l.o.Timer.Boot()
	l.mu.Lock()
	left := l.until - sent
	l.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, max(left-leaseMargin, time.Second))
	defer cancel()
	if err := l.o.Cloud.LabelFirewall(ctx, l.id, l.labels(l.now(sent).Add(leaseTime))); err != nil {
		return err
	}
	l.mu.Lock()
	l.until = sent + leaseTime
	l.mu.Unlock()
	return nil
}

// Check is nil while a write may start. It is cheap and asked before each one.
func (l *Lease) Check() error {
	now := l.o.Timer.Boot()
	l.mu.Lock()
	err, left := l.err, l.until-now
	l.mu.Unlock()
	if err != nil {
		return err
	}
	if left <= leaseMargin {
		return l.lose(fmt.Errorf("%w: it was not renewed in time", ErrLeaseLost))
	}
	return nil
}

func (l *Lease) lose(err error) error {
	l.mu.Lock()
	if l.err != nil {
		defer l.mu.Unlock()
		return l.err
	}
	l.err = err
	l.mu.Unlock()
	l.cancel(err)
	if l.o.Lost != nil {
		l.o.Lost(err)
	}
	return err
}

// Generation is what hosts compare: they refuse an older one.
func (l *Lease) Generation() uint64 { return l.generation }

// Expire ends the lease and leaves its object, as one that is over: what a
// destroy that failed half-way leaves to say that it was begun in this project.
func (l *Lease) Expire(ctx context.Context) error {
	if err := l.end(); err != nil {
		return err
	}
	if err := l.o.Cloud.LabelFirewall(ctx, l.id, l.labels(l.since.Add(-time.Second))); err != nil {
		return fmt.Errorf("ending the lock of %s (it ends by itself in %s): %w", l.o.Cluster, leaseTime, err)
	}
	return nil
}

// end stops renewing; an error if the lease was lost before.
func (l *Lease) end() error {
	l.once.Do(func() { close(l.stop) })
	<-l.done
	l.mu.Lock()
	lost := l.err
	if lost == nil {
		l.err = fmt.Errorf("%w: it was released", ErrLeaseLost)
	}
	l.mu.Unlock()
	l.cancel(nil)
	return lost
}

// Release stops renewing and deletes the lock object, if it is still ours. A
// lease that was lost leaves the other's alone.
func (l *Lease) Release(ctx context.Context) error {
	if err := l.end(); err != nil {
		return err
	}
	if err := l.o.Cloud.DeleteFirewall(ctx, l.id); err != nil {
		return fmt.Errorf("releasing the lock of %s (it ends by itself in %s): %w", l.o.Cluster, leaseTime, err)
	}
	return nil
}

func locked(cluster string, l *LockInfo) error {
	return &Refusal{
		Exit: ExitLocked, World: "state", Err: ErrLocked,
		Message: fmt.Sprintf("%s is locked by %s, run %s, since %s", cluster, orNothing(l.Holder), orNothing(l.Run), l.Since.Format(time.RFC3339)),
		Hints: []string{
			"wait until it ends; the lock of a dead hk ends at " + l.Until.Format(time.RFC3339) + " by itself",
			"hk unlock " + cluster + " removes it at once; make sure that the other hk is dead",
		},
	}
}

// LabelValue makes text fit a label: letters, digits, '.', '_' and '-', at most
// 63, a letter or digit at both ends.
func LabelValue(s string) string {
	v := strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', r == '.', r == '_', r == '-':
			return r
		case r == '@':
			return '.'
		}
		return '-'
	}, s)
	return strings.Trim(v[:min(len(v), 63)], "._-")
}

// Unlock removes a cluster's locks and says whose they were.
func Unlock(ctx context.Context, cloud remote.Cloud, cluster string) ([]LockInfo, error) {
	inv, err := cloud.Inventory(ctx)
	if err != nil {
		return nil, fmt.Errorf("looking for the lock of %s: %w", cluster, err)
	}
	locks := locksOf(inv, cluster)
	for _, l := range locks {
		if err := cloud.DeleteFirewall(ctx, l.ID); err != nil {
			return nil, fmt.Errorf("removing the lock of %s: %w", cluster, err)
		}
	}
	return locks, nil
}
