package cluster

import (
	"context"
	"errors"
	"sync"
	"time"

	"hk/remote"
)

// asking is a question to one host under way.
type asking struct {
	cancel context.CancelFunc
	start  time.Duration // by Timer.Boot

	done  chan struct{} // closed when facts, err and took are set
	facts *remote.Facts
	err   error
	took  time.Duration

	mu  sync.Mutex
	why string // it was given up for this reason
}

// hostLimit bounds the wait for a host whose server runs: least, so that a dead
// host costs little; longer, up to factor times what the slowest answer took, so
// that a computer under load does not make healthy hosts look dead; never over
// most, which also is the wait while nobody has answered.
const (
	hostLimitLeast  = 4 * time.Second
	hostLimitFactor = 4
	hostLimitMost   = 15 * time.Second
)

func (s *Session) ask(ctx context.Context, h *HostFound, q remote.FactsQuery) *asking {
	ctx, cancel := context.WithTimeout(ctx, hostLimitMost)
	a := &asking{cancel: cancel, start: s.o.Timer.Boot(), done: make(chan struct{})}
	host := s.open(*h.Record)
	go func() {
		defer close(a.done)
		a.facts, a.err = host.Facts(ctx, q)
		a.took = s.o.Timer.Boot() - a.start
	}()
	return a
}

func (a *asking) stop(why string) {
	a.mu.Lock()
	if a.why == "" {
		a.why = why
	}
	a.mu.Unlock()
	a.cancel()
}

// finish waits for all answers and gives up on those that take too long. A
// limit of 0 adapts to the slowest answer.
func finish(clock Timer, asked map[string]*asking, limit time.Duration) {
	if len(asked) == 0 {
		return
	}
	first := clock.Boot()
	for _, a := range asked {
		first = min(first, a.start)
	}
	answers := make(chan time.Duration, len(asked))
	var wg sync.WaitGroup
	for _, a := range asked {
		wg.Go(func() {
			<-a.done
			if a.err == nil {
				answers <- a.took
			} else {
				answers <- 0
			}
		})
	}
	adapt := limit == 0
	if adapt {
		limit = hostLimitLeast
	}
	slowest := time.Duration(0)
	timer := time.NewTimer(first + limit - clock.Boot())
	defer timer.Stop()
	for left := len(asked); left > 0; {
		select {
		case t := <-answers:
			left--
			slowest = max(slowest, t)
		case <-timer.C:
			more := min(max(limit, hostLimitFactor*slowest), hostLimitMost)
			if adapt && slowest == 0 {
				more = hostLimitMost // all may be slow
			}
			if wait := first + more - clock.Boot(); adapt && wait > 0 {
				timer.Reset(wait)
				continue
			}
			for _, a := range asked {
				select {
				case <-a.done:
				default:
					a.stop("no answer within " + (clock.Boot() - first).Round(100*time.Millisecond).String())
				}
			}
		}
	}
	wg.Wait()
	for _, a := range asked {
		a.cancel()
	}
}

// into files an answer.
func (a *asking) into(h *HostFound) {
	switch {
	case a.err == nil:
		h.Facts = a.facts
	case errors.Is(a.err, remote.ErrRebuilt):
		h.Rebuilt = "it shows the throw-away host key of its creation again"
	case errors.Is(a.err, remote.ErrHostKey):
		h.BadKey = a.err.Error()
	default:
		h.Down = a.err.Error()
		a.mu.Lock()
		if a.why != "" {
			h.Down = a.why
		}
		a.mu.Unlock()
	}
}
