package ssh

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"hk/remote"
)

// patience is how long a running job's host may be out of reach before hk
// gives up waiting for it; a reboot is shorter. The job is not touched.
const patience = 2 * time.Minute

// Run starts a job or attaches to it and returns what it left.
func (h *host) Run(ctx context.Context, j remote.Job) (*remote.JobResult, error) {
	if len(j.Argv) == 0 || j.Unit == "" || j.Task == "" {
		return nil, errors.New("bug: a job without argv, unit or task")
	}
	if j.Timeout == 0 {
		j.Timeout = 10 * time.Minute
	}
	what := "run " + words(j.Argv)
	q := wireJob{
		Lease: h.pool.o.Generation(), Unit: j.Unit, Task: j.Task, Argv: j.Argv, Env: j.Env, Stdin: j.Stdin,
		Timeout: j.Timeout.Seconds(),
	}
	// The unit has its own end; this one is for a host that does not tell.
	ctx, cancel := context.WithTimeout(ctx, j.Timeout+patience)
	defer cancel()
	r := new(remote.JobResult)
	if err := h.attend(ctx, what, q, r, j.Log); err != nil {
		return nil, err
	}
	return r, nil
}

// attend waits for a job through lost connections, and takes its result.
func (h *host) attend(ctx context.Context, what string, q wireJob, r *remote.JobResult, log func(string)) error {
	var since time.Time // when the host was lost
	for {
		l, err := h.link(ctx)
		if err == nil {
			since = time.Time{}
			if err = l.agent.call(ctx, "run", q, r, log); err == nil {
				return l.take(ctx, q)
			}
		}
		wrapped := h.hostError(what, err)
		if since.IsZero() {
			since = time.Now()
		}
		if !errors.Is(wrapped, remote.ErrUnreachable) || errors.Is(err, errAuth) || ctx.Err() != nil ||
			time.Since(since) > patience {
			return wrapped
		}
		h.pool.o.Log(h.Name(), "connecting again to a running job: "+err.Error())
		if err := sleep(ctx, 500*time.Millisecond); err != nil {
			return wrapped
		}
	}
}

// take tells the host that its result arrived. If that message is lost, the
// next run of the same job finds the result once more.
func (l *link) take(ctx context.Context, q wireJob) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	_ = l.agent.call(ctx, "ack", map[string]string{"unit": q.Unit, "task": q.Task}, new(struct{}), nil)
	return nil
}

func words(argv []string) string {
	return strings.Join(argv[:min(len(argv), 4)], " ")
}

func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("waiting: %w", ctx.Err())
	}
}
