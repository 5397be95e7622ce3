package lab

import (
	"context"
	"sync"
)

// newOnce calls f until it succeeds and remembers what it returned then.
func newOnce[T any](f func(context.Context) (T, error)) func(context.Context) (T, error) {
	var mu sync.Mutex
	var done bool
	var v T
	return func(ctx context.Context) (T, error) {
		mu.Lock()
		defer mu.Unlock()
		if done {
			return v, nil
		}
		got, err := f(ctx)
		if err == nil {
			v, done = got, true
		}
		return got, err
	}
}

// forget makes the next load look again.
func (i *images) forget() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.set = nil
}
