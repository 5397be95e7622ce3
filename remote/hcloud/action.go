package hcloud

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"

	"hk/remote"
)

// waiter waits for all actions of the client together: however many servers are
// being made, one request asks about 25 of them. It has a goroutine only while
// something is waited for.
type waiter struct {
	list   func(ctx context.Context, ids []int64) ([]*hcloud.Action, error)
	scarce func() bool

	mu      sync.Mutex
	pending map[int64]*watch
	polling bool
	wake    chan struct{} // what is pending changed
}

// watch is one action waited for.
type watch struct {
	done    chan struct{} // closed when err is final
	err     error
	waiting int       // callers
	due     time.Time // when to ask next
	pause   time.Duration
	missing int // answers in a row that did not have it
}

// How often is asked: early, since in the lab most actions take milliseconds,
// then less and less.
const (
	firstPoll   = 100 * time.Millisecond
	lastPoll    = 2 * time.Second
	scarcePoll  = 10 * time.Second
	pollSlack   = 60 * time.Millisecond // due soon enough to share a request
	perRequest  = 25
	maxMissing  = 5
	maxPollErrs = 20 // tries of a request whose error may pass
)

func newWaiter(list func(context.Context, []int64) ([]*hcloud.Action, error), scarce func() bool) *waiter {
	return &waiter{list: list, scarce: scarce, pending: map[int64]*watch{}, wake: make(chan struct{}, 1)}
}

// actions asks about actions by their IDs; asking without is refused.
func (c *Client) actions(ctx context.Context, ids []int64) ([]*hcloud.Action, error) {
	list, _, err := c.api.Action.List(ctx, hcloud.ActionListOpts{ID: ids, ListOpts: hcloud.ListOpts{PerPage: 50}})
	return list, err
}

// all waits for actions to end, all of them, and returns the first error of
// one that failed.
func (w *waiter) all(ctx context.Context, op string, actions ...*hcloud.Action) error {
	var errs []error
	var watches []*watch
	var ids []int64
	for _, a := range actions {
		switch {
		case a == nil:
		case a.Status == hcloud.ActionStatusRunning:
			watches = append(watches, w.watch(ctx, a.ID))
			ids = append(ids, a.ID)
		default:
			errs = append(errs, actionError(a))
		}
	}
	for i, x := range watches {
		select {
		case <-x.done:
			errs = append(errs, x.err)
		case <-ctx.Done():
			for j := i; j < len(watches); j++ {
				w.leave(ids[j], watches[j])
			}
			return classify(op, ctx.Err())
		}
	}
	for _, err := range errs {
		if err == nil {
			continue
		}
		if ce, ok := errors.AsType[*remote.CloudError](err); ok {
			with := *ce
			with.Op = op
			return &with
		}
		return classify(op, err)
	}
	return nil
}

func actionError(a *hcloud.Action) error {
	if a.Status != hcloud.ActionStatusError {
		return nil
	}
	return &remote.CloudError{
		Op: a.Command, Code: a.ErrorCode, Message: a.ErrorMessage, Again: again[hcloud.ErrorCode(a.ErrorCode)], Err: a.Error(),
	}
}

func (w *waiter) watch(ctx context.Context, id int64) *watch {
	w.mu.Lock()
	defer w.mu.Unlock()
	x := w.pending[id]
	if x == nil {
		x = &watch{done: make(chan struct{}), pause: firstPoll, due: time.Now().Add(firstPoll)}
		w.pending[id] = x
	}
	x.waiting++
	if !w.polling {
		w.polling = true
		go w.poll(context.WithoutCancel(ctx)) // for whoever else waits too
		return x
	}
	w.poke()
	return x
}

// poke makes the poller look at what is pending now.
func (w *waiter) poke() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

func (w *waiter) leave(id int64, x *watch) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if x.waiting--; x.waiting == 0 && w.pending[id] == x {
		delete(w.pending, id)
		w.poke() // it may have been the last
	}
}

// poll asks about what is due until nothing is pending.
func (w *waiter) poll(ctx context.Context) {
	failed := 0
	for {
		ids, sleep := w.next()
		if sleep < 0 {
			return
		}
		if sleep > 0 {
			t := time.NewTimer(sleep)
			select {
			case <-t.C:
			case <-w.wake:
				t.Stop()
			}
			continue
		}
		for part := range slices.Chunk(ids, perRequest) {
			once, cancel := context.WithTimeout(ctx, 2*requestTimeout)
			found, err := w.list(once, part)
			cancel()
			if err == nil {
				failed = 0
				w.answer(part, found)
				continue
			}
			err = classify("look at actions", err)
			failed++
			var ce *remote.CloudError
			w.trouble(part, err, failed >= maxPollErrs || !errors.As(err, &ce) || !ce.Again)
		}
	}
}

// next returns what to ask about now, or how long to wait; less than 0 means
// that nothing is left and the poller has ended.
func (w *waiter) next() (ids []int64, sleep time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.pending) == 0 {
		w.polling = false
		return nil, -1
	}
	now := time.Now()
	var first time.Time
	for id, x := range w.pending {
		if x.due.Before(now.Add(pollSlack)) {
			ids = append(ids, id)
		}
		if first.IsZero() || x.due.Before(first) {
			first = x.due
		}
	}
	if d := first.Sub(now); d > 0 {
		return nil, d
	}
	slices.Sort(ids)
	return ids, 0
}

// answer takes in what the API said about some actions.
func (w *waiter) answer(ids []int64, found []*hcloud.Action) {
	byID := map[int64]*hcloud.Action{}
	for _, a := range found {
		byID[a.ID] = a
	}
	slow := w.scarce()
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, id := range ids {
		x, a := w.pending[id], byID[id]
		switch {
		case x == nil:
		case a == nil:
			if x.missing++; x.missing >= maxMissing {
				w.end(id, x, &remote.CloudError{Code: "action_lost", Message: "the API forgot a running action", Again: true})
				continue
			}
			x.later(slow)
		case a.Status == hcloud.ActionStatusRunning:
			x.missing = 0
			x.later(slow)
		default:
			w.end(id, x, actionError(a))
		}
	}
}

// trouble takes in that some actions could not be asked about.
func (w *waiter) trouble(ids []int64, err error, final bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, id := range ids {
		x := w.pending[id]
		switch {
		case x == nil:
		case final:
			w.end(id, x, err)
		default:
			x.later(true)
		}
	}
}

func (w *waiter) end(id int64, x *watch, err error) {
	x.err = err
	delete(w.pending, id)
	close(x.done)
}

func (x *watch) later(slow bool) {
	x.pause = min(lastPoll, x.pause*13/10)
	pause := x.pause
	if slow {
		pause = min(scarcePoll, pause*5)
	}
	x.due = time.Now().Add(pause)
}
