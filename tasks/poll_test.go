package tasks

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestPollAsksUntilItIsSo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start, n := time.Now(), 0
		err := Poll(t.Context(), time.Minute, "waiting", func(context.Context) error {
			if n++; n < 4 {
				return errors.New("not yet")
			}
			return nil
		})
		if err != nil || n != 4 {
			t.Errorf("asked %d times: %v", n, err)
		}
		if took := time.Since(start); took > 300*time.Millisecond {
			t.Errorf("the first questions took %s", took)
		}
	})
}

func TestPollSaysWhatItSawLast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start, n := time.Now(), 0
		err := Poll(t.Context(), 10*time.Second, "waiting for it", func(ctx context.Context) error {
			n++
			if ctx.Err() != nil {
				return ctx.Err()
			}
			return errors.New("it is blue")
		})
		var tr interface{ Transient() bool }
		if err == nil || !strings.Contains(err.Error(), "waiting for it") || !strings.Contains(err.Error(), "it is blue") || !errors.As(err, &tr) {
			t.Errorf("error %v", err)
		}
		if took := time.Since(start); took != 10*time.Second {
			t.Errorf("gave up after %s", took)
		}
		if n < 20 || n > 40 {
			t.Errorf("asked %d times in ten seconds", n)
		}
	})
}

func TestPollEndsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		cause := errors.New("it never will")
		err := Poll(t.Context(), time.Minute, "waiting", func(context.Context) error { return Final{cause} })
		var tr interface{ Transient() bool }
		if !errors.Is(err, cause) || errors.As(err, &tr) || time.Since(start) != 0 {
			t.Errorf("error %v after %s", err, time.Since(start))
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := Poll(ctx, time.Minute, "waiting", func(context.Context) error { return cause }); !errors.Is(err, context.Canceled) || errors.As(err, &tr) {
			t.Errorf("an interrupt is %v", err)
		}
	})
}
