package run

import (
	"context"
	"fmt"
	"runtime/debug"
	"sync"

	"hk/cache/fp"
	"hk/graph"
)

// lookWidth is how many looks are on their way at a time. A look mostly waits
// for the facts of its host, which whoever implements Work reads once for all
// tasks of the host, so this is about the number of hosts asked at a time.
const lookWidth = 256

// look calls Work.Look. An error or a panic of it is not drift: nobody could
// look.
func look(ctx context.Context, w Work, g *graph.Graph, t graph.Task, rec *fp.Record) (l Look) {
	defer func() {
		if r := recover(); r != nil {
			err := &panicError{what: "look at " + g.Name(t), value: r, stack: debug.Stack()}
			l = Look{Unreachable: err.Error()}
		}
	}()
	l, err := w.Look(ctx, t, rec)
	if err != nil {
		return Look{Unreachable: err.Error()}
	}
	return l
}

// lookAll looks at many tasks at once and reads their records in chunks, so
// that a plan over a large cluster does not hold them all. each is called from
// this goroutine.
func (b *book) lookAll(ctx context.Context, tasks []graph.Task, each func(graph.Task, *fp.Record, Look)) error {
	const chunk = 1024
	for len(tasks) > 0 {
		part := tasks[:min(chunk, len(tasks))]
		tasks = tasks[len(part):]
		recs, err := b.whole(ctx, part)
		if err != nil {
			return err
		}
		looks := make([]Look, len(part))
		var wg sync.WaitGroup
		next := make(chan int)
		for range min(lookWidth, len(part)) {
			wg.Go(func() {
				for i := range next {
					looks[i] = look(ctx, b.work, b.g, part[i], recs[i])
				}
			})
		}
		for i := range part {
			if recs[i] != nil {
				next <- i
			}
		}
		close(next)
		wg.Wait()
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("looking: %w", context.Cause(ctx))
		}
		for i, t := range part {
			each(t, recs[i], looks[i])
		}
	}
	return nil
}
