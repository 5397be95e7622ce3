package cli

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"hk/cache"
	"hk/cli/ui"
	"hk/graph/run"
	"hk/tasks/cluster"
	"hk/tasks/spec"
)

// judgeCluster knows the errors that say their exit code themselves, or by
// their type.
func judgeCluster(err error) (verdict, bool) {
	if e, ok := errors.AsType[*buildError](err); ok {
		return verdict{e.ExitCode(), e.class}, true
	}
	if e, ok := errors.AsType[*cluster.Refusal](err); ok {
		return verdict{e.Exit, e.World}, true
	}
	if _, ok := errors.AsType[*spec.ConfigError](err); ok {
		return verdict{ExitConfig, classConfig}, true
	}
	if _, ok := errors.AsType[*run.StaleNeedError](err); ok {
		return verdict{ExitUsage, classConfig}, true
	}
	if _, ok := errors.AsType[*run.RefusedError](err); ok {
		return verdict{ExitUsage, classConfig}, true
	}
	switch {
	case errors.Is(err, errInterrupted):
		return verdict{ExitInterrupted, classState}, true
	case errors.Is(err, cache.ErrLocked), errors.Is(err, cluster.ErrLocked), errors.Is(err, cluster.ErrLeaseLost):
		return verdict{ExitLocked, classState}, true
	case errors.Is(err, cache.ErrState):
		return verdict{ExitState, classState}, true
	case strings.HasPrefix(err.Error(), "bug:"):
		return verdict{ExitBug, classBug}, true
	}
	return verdict{}, false
}

// problems are an error as people read it, one for each thing that is wrong.
func problems(err error) []*ui.Problem {
	if all, ok := errors.AsType[spec.Problems](err); ok && len(all) > 0 {
		out := make([]*ui.Problem, len(all))
		for i, e := range all {
			out[i] = configProblem(e)
		}
		return out
	}
	if e, ok := errors.AsType[*spec.ConfigError](err); ok {
		return []*ui.Problem{configProblem(e)}
	}
	p := &ui.Problem{Message: err.Error()}
	if e, ok := errors.AsType[*cluster.Refusal](err); ok {
		p.Details, p.Hints = atMost(e.Details, 20), e.Hints
		return []*ui.Problem{p}
	}
	if e, ok := errors.AsType[*buildError](err); ok {
		p.Details = e.details
	}
	p.Hints = hintsOf(err)
	return []*ui.Problem{p}
}

// atMost cuts a list that nobody would read to its end.
func atMost(lines []string, n int) []string {
	if len(lines) <= n {
		return lines
	}
	return append(slices.Clone(lines[:n-1]), fmt.Sprintf("… and %d more", len(lines)-n+1))
}

func configProblem(e *spec.ConfigError) *ui.Problem {
	p := &ui.Problem{Message: e.Msg, File: e.File, Line: e.Line, Col: e.Col}
	if e.Path != "" {
		p.Message = e.Path + ": " + e.Msg
	}
	if e.Hint != "" {
		p.Hints = []string{e.Hint}
	}
	return p
}

// hintsOf are the first hints found on the way to an error's causes.
func hintsOf(err error) []string {
	if err == nil {
		return nil
	}
	switch e := err.(type) { //nolint:errorlint // the chain is walked by hand: the first hint counts, not the first hinter
	case interface{ Hint() string }:
		if h := e.Hint(); h != "" {
			return []string{h}
		}
	case *cluster.Refusal:
		return e.Hints
	case *cache.LockedError:
		return []string{"wait until it ends; hk status names what it does"}
	case *run.StaleNeedError:
		return []string{"leave --only out to build what is needed too"}
	case *run.RefusedError:
		return []string{"leave " + e.Flag + " out"}
	}
	switch e := err.(type) { //nolint:errorlint // as above
	case interface{ Unwrap() error }:
		return hintsOf(e.Unwrap())
	case interface{ Unwrap() []error }:
		for _, c := range e.Unwrap() {
			if h := hintsOf(c); len(h) > 0 {
				return h
			}
		}
	}
	return nil
}
