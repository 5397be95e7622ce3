package ui

import (
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"
)

// The live view.
//
// The last lines of the terminal are the status area: a count, then the running
// tasks with the longest-running first. Lines that stay are written above it:
// the area is cleared, the lines are written, the area is drawn again, all in
// one write, so that nothing flickers and no half line is ever seen. It is
// drawn at most ten times a second.
//
// One goroutine owns the terminal. The width is asked for at each drawing, so a
// resize needs no signal: when the window became narrower the terminal has
// wrapped the old lines, and the way up is counted in wrapped ones. When hk is
// stopped and continued (SIGTSTP, SIGCONT) the shell has written below the old
// area; Pause clears it before, Resume starts a new one.

// redraw is the shortest time between two drawings.
const redraw = 100 * time.Millisecond

// Terminal is what the live view needs of one.
type Terminal interface {
	io.Writer
	// Size is columns and rows; 80 × 24 if unknown.
	Size() (cols, rows int)
}

type running struct {
	task, host, last string
	since            time.Time
}

// Fancy is the live view.
type Fancy struct {
	mu     sync.Mutex
	t      Terminal
	o      Options
	tell   teller
	run    map[string]*running
	area   []string // as drawn
	start  time.Time
	drawn  time.Time
	queue  []string // lines that stay, waiting for the next drawing
	paused bool
	closed bool
	stop   chan struct{}
	gone   chan struct{}
}

// NewFancy starts a live view; Close ends it. Ticks make time move in it; nil
// means a real ticker.
func NewFancy(t Terminal, o Options, ticks <-chan time.Time) *Fancy {
	f := &Fancy{
		t: t, o: o, tell: newTeller(o), run: map[string]*running{}, start: o.Now(),
		stop: make(chan struct{}), gone: make(chan struct{}),
	}
	var tick *time.Ticker
	if ticks == nil {
		tick = time.NewTicker(redraw)
		ticks = tick.C
	}
	go f.loop(ticks, tick)
	return f
}

func (f *Fancy) loop(ticks <-chan time.Time, tick *time.Ticker) {
	defer close(f.gone)
	if tick != nil {
		defer tick.Stop()
	}
	for {
		select {
		case <-f.stop:
			return
		case <-ticks:
			f.mu.Lock()
			if !f.closed && !f.paused {
				f.draw()
			}
			f.mu.Unlock()
		}
	}
}

// Event updates the view.
func (f *Fancy) Event(e Event) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return
	}
	switch e := e.(type) {
	case TaskStarted:
		f.run[e.Task] = &running{task: e.Task, host: e.Host, since: f.o.Now()}
	case TaskLog:
		if r := f.run[e.Task]; r != nil {
			r.last = e.Line
		}
	case TaskRetry:
		if r := f.run[e.Task]; r != nil {
			r.last = "waits: " + e.Error.Message
		}
	case TaskFinished:
		delete(f.run, e.Task)
	}
	f.add(f.tell.lines(e)...)
}

// add keeps lines for the next drawing, which is now unless the last one was
// a moment ago.
func (f *Fancy) add(lines ...string) {
	f.queue = append(f.queue, lines...)
	if len(f.queue) > 0 && f.o.Now().Sub(f.drawn) >= redraw {
		f.draw()
	}
}

// Log writes a line above the area.
func (f *Fancy) Log(line string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.closed {
		f.add(line)
	}
}

// Pause clears the area, for when the program is about to be stopped.
func (f *Fancy) Pause() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed || f.paused {
		return
	}
	f.paused = true
	f.flush(f.clear() + f.takeQueue())
	f.area = nil
}

// Resume draws again after Pause.
func (f *Fancy) Resume() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return
	}
	f.paused = false
	f.draw()
}

// Close removes the area and ends the view.
func (f *Fancy) Close() {
	f.mu.Lock()
	if f.closed {
		f.mu.Unlock()
		return
	}
	f.closed = true
	f.flush(f.clear() + f.takeQueue())
	f.area = nil
	f.mu.Unlock()
	close(f.stop)
	<-f.gone
}

func (f *Fancy) takeQueue() string {
	var b strings.Builder
	for _, l := range f.queue {
		b.WriteString(l + "\r\n")
	}
	f.queue = nil
	return b.String()
}

// draw writes the lines that stay and the area below them in one write.
func (f *Fancy) draw() {
	f.drawn = f.o.Now()
	if f.paused {
		f.flush(f.takeQueue())
		return
	}
	var b strings.Builder
	b.WriteString(f.clear())
	b.WriteString(f.takeQueue())
	cols, rows := f.t.Size()
	f.area = f.status(cols, rows)
	for i, l := range f.area {
		if i > 0 {
			b.WriteString("\r\n")
		}
		b.WriteString(l)
	}
	f.flush(b.String())
}

func (f *Fancy) flush(s string) {
	if s != "" {
		_, _ = io.WriteString(f.t, s) // a terminal that is gone hears nothing more
	}
}

// clear moves to the area's first line and erases to the end of the screen.
func (f *Fancy) clear() string {
	if len(f.area) == 0 {
		return ""
	}
	cols, _ := f.t.Size()
	up := -1
	for _, l := range f.area {
		up += max(1, (visible(l)+cols-1)/max(cols, 1))
	}
	s := "\r"
	if up > 0 {
		s += fmt.Sprintf("\x1b[%dA", up)
	}
	return s + "\x1b[J"
}

// status is the area: it never takes more than half of the screen and no line
// is wider than it.
func (f *Fancy) status(cols, rows int) []string {
	now := f.o.Now()
	head := fmt.Sprintf("%d/%d done, %d running", f.tell.done, f.tell.total, len(f.run))
	if n := f.tell.counts["failed"]; n > 0 {
		head += ", " + f.o.Style.Red(fmt.Sprintf("%d failed", n))
	}
	head += "  " + f.o.Style.Dim(Duration(now.Sub(f.start)))
	out := []string{head}
	list := make([]*running, 0, len(f.run))
	for _, r := range f.run {
		list = append(list, r)
	}
	slices.SortFunc(list, func(a, b *running) int {
		if c := a.since.Compare(b.since); c != 0 {
			return c
		}
		return strings.Compare(a.task, b.task)
	})
	most := max(1, rows/2-2)
	for i, r := range list {
		if i == most {
			out = append(out, fmt.Sprintf("  … and %d more", len(list)-i))
			break
		}
		l := fmt.Sprintf("  %6s  %s", Duration(now.Sub(r.since)), r.task)
		if r.last != "" {
			l += "  " + oneLine(r.last)
		}
		out = append(out, clip(l, cols-1))
	}
	return out
}

// escapes are the terminal sequences programs colour their output with.
var escapes = regexp.MustCompile("\x1b\\[[0-9;?]*[@-~]")

// oneLine keeps control characters of a task's output off the terminal.
func oneLine(s string) string {
	if strings.Contains(s, "\x1b[") {
		s = escapes.ReplaceAllString(s, "")
	}
	return strings.Map(func(r rune) rune {
		if r == '\t' {
			return ' '
		}
		if r < ' ' || r == 0x7f || r == utf8.RuneError {
			return -1
		}
		return r
	}, s)
}

func clip(s string, cols int) string {
	r := []rune(s)
	if cols < 8 || len(r) <= cols {
		return s
	}
	return string(r[:cols-1]) + "…"
}
