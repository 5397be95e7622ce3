package run

import (
	"context"
	"time"

	"hk/graph"
)

// Verdict is what Decide says of a task.
type Verdict uint8

const (
	// NotSelected: the plan does not cover the task.
	NotSelected Verdict = iota
	// Run: it is stale and will run.
	Run
	// Maybe: its own inputs are unchanged, but something it needs runs or may
	// run, and its output may change.
	Maybe
	// IsFresh: nothing to do.
	IsFresh
	// IsSpared: the user keeps it.
	IsSpared
	// IsUnverified: nobody can look at it; its record counts.
	IsUnverified
	// IsBlocked: it cannot run, because of what it needs or its inputs.
	IsBlocked

	verdicts
)

var verdictNames = [verdicts]string{"", "run", "maybe", "fresh", "spared", "unverified", "blocked"}

// String is the verdict's word in plans.
func (v Verdict) String() string { return verdictNames[v] }

// Plan is what a build would do, task by task.
type Plan struct {
	Graph    *graph.Graph
	Verdicts []Verdict // by task; NotSelected where not covered
	reasons  []string
	expected []time.Duration
	counts   [verdicts]int
}

// Reason is why the task has its verdict.
func (p *Plan) Reason(t graph.Task) string { return p.reasons[t] }

// Expected is how long the task took last time, or what tasks of its kind took
// on other hosts; 0 if unknown.
func (p *Plan) Expected(t graph.Task) time.Duration { return p.expected[t] }

// Count is the number of tasks with a verdict.
func (p *Plan) Count(v Verdict) int { return p.counts[v] }

func makePlan(context.Context, Options) (*Plan, error) { panic("bug: not built yet") }
func build(context.Context, Options) (*Summary, error) { panic("bug: not built yet") }
