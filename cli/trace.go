package cli

import (
	"encoding/json"
	"slices"
	"strings"
	"time"

	"hk/cli/ui"
)

// trace collects a run as a Chrome trace: one process for each host (the
// cluster first), one thread for each task that overlaps others there.
type trace struct {
	start time.Time
	open  map[string]span
	done  []span
}

type span struct {
	task, host, reason, status string
	from, to                   time.Time
	attempt                    int
}

func (t *trace) event(e ui.Event, at time.Time) {
	if t.start.IsZero() {
		t.start, t.open = at, map[string]span{}
	}
	switch e := e.(type) {
	case ui.TaskStarted:
		t.open[e.Task] = span{task: e.Task, host: e.Host, reason: e.Reason, from: at, attempt: e.Attempt}
	case ui.TaskRetry:
		t.end(e.Task, "retry", at)
	case ui.TaskFinished:
		t.end(e.Task, e.Status, at)
	}
}

func (t *trace) end(task, status string, at time.Time) {
	s, ok := t.open[task]
	if !ok {
		return
	}
	delete(t.open, task)
	s.to, s.status = at, status
	t.done = append(t.done, s)
}

// traceEvent is one entry of the format ("Trace Event Format", Google).
type traceEvent struct {
	Name string         `json:"name"`
	Cat  string         `json:"cat,omitempty"`
	Ph   string         `json:"ph"`
	TS   int64          `json:"ts"`
	Dur  int64          `json:"dur,omitempty"`
	PID  int            `json:"pid"`
	TID  int            `json:"tid"`
	Args map[string]any `json:"args,omitempty"`
}

func (t *trace) encode() []byte {
	hosts := []string{""}
	for _, s := range t.done {
		if !slices.Contains(hosts, s.host) {
			hosts = append(hosts, s.host)
		}
	}
	slices.Sort(hosts)
	events := []traceEvent{}
	for i, h := range hosts {
		name := h
		if h == "" {
			name = "cluster"
		}
		events = append(events, traceEvent{Name: "process_name", Ph: "M", PID: i + 1, Args: map[string]any{"name": name}})
	}
	spans := slices.Clone(t.done)
	slices.SortStableFunc(spans, func(a, b span) int { return a.from.Compare(b.from) })
	lanes := map[string][]time.Time{} // host -> when each lane is free again
	for _, s := range spans {
		l := lanes[s.host]
		lane := slices.IndexFunc(l, func(free time.Time) bool { return !free.After(s.from) })
		if lane < 0 {
			lane = len(l)
			l = append(l, time.Time{})
		}
		l[lane] = s.to
		lanes[s.host] = l
		phase, _, _ := strings.Cut(s.task, ".")
		events = append(events, traceEvent{
			Name: s.task, Cat: phase, Ph: "X", TS: s.from.Sub(t.start).Microseconds(), Dur: s.to.Sub(s.from).Microseconds(),
			PID: slices.Index(hosts, s.host) + 1, TID: lane + 1,
			Args: map[string]any{"status": s.status, "reason": s.reason, "attempt": s.attempt},
		})
	}
	b, err := json.Marshal(map[string]any{"traceEvents": events, "displayTimeUnit": "ms"})
	if err != nil {
		panic("bug: encoding the trace: " + err.Error())
	}
	return b
}
