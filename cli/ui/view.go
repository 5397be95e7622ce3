package ui

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"time"
)

// View shows a build while it runs. Event may be called from several
// goroutines; after Close nothing more is written.
type View interface {
	Event(e Event)
	// Log shows a line that belongs to no task, above everything live.
	Log(line string)
	Close()
}

// Options of a view.
type Options struct {
	Style   Style
	Verbose bool // tasks that were fresh, and task output, are told too
	Quiet   bool // only what failed
	Now     func() time.Time
}

// JSON writes one event per line.
type JSON struct {
	mu      sync.Mutex
	w       io.Writer
	verbose bool
	now     func() time.Time
}

// NewJSON returns a view that writes the event contract to w.
func NewJSON(w io.Writer, o Options) *JSON { return &JSON{w: w, verbose: o.Verbose, now: o.Now} }

// Event writes the events of the contract; a line is one write, so that a
// reader never sees half of one.
func (j *JSON) Event(e Event) {
	switch e := e.(type) {
	case TaskLog, Note:
		return
	case TaskFinished:
		if e.Status == "fresh" && !j.verbose {
			return
		}
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	_, _ = j.w.Write(append(EncodeEvent(e, j.now()), '\n')) // a closed pipe ends the program by itself
}

// Log does nothing: stdout carries events only.
func (j *JSON) Log(string) {}

// Close does nothing.
func (j *JSON) Close() {}

// Plain writes one line per event.
type Plain struct {
	mu   sync.Mutex
	w    io.Writer
	o    Options
	tell teller
}

// NewPlain returns a view for what is not a terminal.
func NewPlain(w io.Writer, o Options) *Plain { return &Plain{w: w, o: o, tell: newTeller(o)} }

// Event writes its line, if it has one.
func (p *Plain) Event(e Event) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if s, ok := e.(TaskStarted); ok && !p.o.Quiet {
		fmt.Fprintf(p.w, "start %s%s: %s\n", s.Task, attemptSuffix(s.Attempt), s.Reason)
	}
	if l, ok := e.(TaskLog); ok && p.o.Verbose {
		fmt.Fprintf(p.w, "%s | %s\n", l.Task, oneLine(l.Line))
	}
	for _, line := range p.tell.lines(e) {
		fmt.Fprintln(p.w, line)
	}
}

// Log writes the line.
func (p *Plain) Log(line string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	fmt.Fprintln(p.w, line)
}

// Close does nothing.
func (p *Plain) Close() {}

// Tee gives every event to several views.
type Tee []View

// Event passes it on.
func (t Tee) Event(e Event) {
	for _, v := range t {
		v.Event(e)
	}
}

// Log passes it on.
func (t Tee) Log(line string) {
	for _, v := range t {
		v.Log(line)
	}
}

// Close closes all.
func (t Tee) Close() {
	for _, v := range t {
		v.Close()
	}
}

// Aside runs do while a live view is off the screen: a question asked meanwhile
// is seen, and what is typed is not drawn over.
func Aside(v View, do func()) {
	switch v := v.(type) {
	case interface {
		Pause()
		Resume()
	}:
		v.Pause()
		defer v.Resume()
	case Tee:
		if len(v) > 1 {
			Aside(v[0], func() { Aside(v[1:], do) })
			return
		}
		if len(v) == 1 {
			Aside(v[0], do)
			return
		}
	}
	do()
}

// teller turns events into the lines that stay on the screen, for the plain and
// the live view alike. It counts, and keeps the output of running tasks so that
// a failed one's is shown whole.
type teller struct {
	o       Options
	total   int
	done    int
	counts  map[string]int
	output  map[string][]string
	dropped map[string]int
}

// keepLines is how much output of one task is kept for the case that it fails;
// kubeadm init writes about 60 lines.
const keepLines = 400

func newTeller(o Options) teller {
	return teller{o: o, counts: map[string]int{}, output: map[string][]string{}, dropped: map[string]int{}}
}

func (t *teller) lines(e Event) []string {
	switch e := e.(type) {
	case BuildStarted:
		t.total = e.Selected
	case Note:
		if t.o.Quiet {
			return nil
		}
		return []string{t.o.Style.Dim(e.Text)}
	case KeyCreated:
		if t.o.Verbose {
			return []string{fmt.Sprintf("key created: %s %s", e.Name, t.o.Style.Dim(e.KeyID))}
		}
	case TaskLog:
		t.keep(e)
	case TaskRetry:
		return []string{fmt.Sprintf("%s %s: attempt %d failed: %s; again in %s", t.o.Style.Yellow("retry"), e.Task,
			e.Attempt, e.Error.Message, Duration(time.Duration(e.WaitMS)*time.Millisecond))}
	case TaskFinished:
		return t.finished(e)
	}
	return nil
}

func (t *teller) keep(e TaskLog) {
	l := t.output[e.Task]
	if len(l) == keepLines {
		l = l[1:]
		t.dropped[e.Task]++
	}
	t.output[e.Task] = append(l, oneLine(e.Line))
}

func (t *teller) finished(e TaskFinished) []string {
	t.done++
	t.counts[e.Status]++
	out, dropped := t.output[e.Task], t.dropped[e.Task]
	delete(t.output, e.Task)
	delete(t.dropped, e.Task)
	count := fmt.Sprintf("[%*d/%d]", len(fmt.Sprint(t.total)), t.done, t.total)
	took := Duration(time.Duration(e.DurationMS) * time.Millisecond)
	st := t.o.Style
	switch e.Status {
	case "ran":
		if t.o.Quiet {
			return nil
		}
		return []string{fmt.Sprintf("%s %s %s %s  %s", st.Dim(count), st.Green("ran"), e.Task, took, st.Dim(e.Reason))}
	case "failed":
		lines := []string{fmt.Sprintf("%s %s %s %s: %s", st.Dim(count), st.Red("FAILED"), e.Task, took, errText(e.Error))}
		if dropped > 0 {
			lines = append(lines, fmt.Sprintf("    … %d earlier lines", dropped))
		}
		for _, l := range out {
			lines = append(lines, "    "+l)
		}
		return lines
	case "fresh":
		if !t.o.Verbose {
			return nil
		}
		return []string{fmt.Sprintf("%s fresh %s  %s", st.Dim(count), e.Task, st.Dim(e.Reason))}
	case "blocked":
		if !t.o.Verbose {
			return nil // they are a count at the end: the root causes come first
		}
		return []string{fmt.Sprintf("%s blocked %s  %s", st.Dim(count), e.Task, st.Dim(e.Reason))}
	}
	if t.o.Quiet && e.Status == "spared" {
		return nil
	}
	return []string{fmt.Sprintf("%s %s %s  %s", st.Dim(count), st.Yellow(e.Status), e.Task, e.Reason)}
}

func errText(e *TaskError) string {
	if e == nil {
		return "no reason was given"
	}
	return strings.TrimSpace(e.Message)
}

func attemptSuffix(n int) string {
	if n < 2 {
		return ""
	}
	return fmt.Sprintf(" (attempt %d)", n)
}

// Duration is a time span in the precision people read: 320ms, 4.2s, 1m05s,
// 2h03m.
func Duration(d time.Duration) string {
	switch {
	case d < time.Second:
		return fmt.Sprintf("%dms", d.Milliseconds())
	case d < time.Minute:
		return fmt.Sprintf("%.1fs", d.Seconds())
	case d < time.Hour:
		return fmt.Sprintf("%dm%02ds", int(d.Minutes()), int(d.Seconds())%60)
	}
	return fmt.Sprintf("%dh%02dm", int(d.Hours()), int(d.Minutes())%60)
}
