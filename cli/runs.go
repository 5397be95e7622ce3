package cli

import (
	"bufio"
	"cmp"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"hk/cli/ui"
)

// Runs leave two things under the state directory:
//
//	runs/history.jsonl       one line for each run, a verified no-op too
//	runs/RUN.jsonl           every event of a run that started a task
//	runs/RUN.trace.json      the same as a Chrome trace (chrome://tracing, Perfetto)
//
// The last keepRuns logs and traces are kept; history keeps keepHistory lines.
const (
	keepRuns    = 5
	keepHistory = 1000
)

// newRunID is a run's name: when it started, for people, and four random bytes,
// because two may start in one second.
func newRunID(now time.Time) string {
	b := make([]byte, 4)
	_, _ = rand.Read(b) // never fails (crypto/rand)
	return now.UTC().Format("20060102-150405-") + hex.EncodeToString(b)
}

// historyLine is what is remembered of a run for good.
type historyLine struct {
	V       int       `json:"v"`
	Time    time.Time `json:"time"`
	Command string    `json:"command"`
	Logged  bool      `json:"logged"` // it started a task and so left a log
	ui.BuildFinished
}

// runLog writes a run's event log and trace. Nothing is made before the first
// task starts.
type runLog struct {
	mu    sync.Mutex
	dir   string
	id    string
	now   func() time.Time
	early [][]byte // events before the first task
	f     *os.File
	w     *bufio.Writer
	trace trace
	err   error
}

func newRunLog(home, id string, now func() time.Time) *runLog {
	return &runLog{dir: filepath.Join(home, "runs"), id: id, now: now}
}

// Event implements ui.View.
func (r *runLog) Event(e ui.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	at := r.now()
	line := append(ui.EncodeEvent(e, at), '\n')
	if _, ok := e.(ui.TaskStarted); ok && r.f == nil && r.err == nil {
		r.open()
	}
	r.trace.event(e, at)
	switch {
	case r.err != nil:
	case r.f == nil:
		if len(r.early) < 1000 {
			r.early = append(r.early, line)
		}
	default:
		_, r.err = r.w.Write(line)
		if _, chatty := e.(ui.TaskLog); !chatty && r.err == nil {
			r.err = r.w.Flush() // what happened survives a kill
		}
	}
}

func (r *runLog) open() {
	if r.err = os.MkdirAll(r.dir, 0o700); r.err != nil {
		return
	}
	r.f, r.err = os.OpenFile(filepath.Join(r.dir, r.id+".jsonl"), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if r.err != nil {
		return
	}
	r.w = bufio.NewWriter(r.f)
	for _, l := range r.early {
		_, _ = r.w.Write(l) // an error stays in the writer and is seen by Flush
	}
	r.early = nil
}

// Log implements ui.View.
func (r *runLog) Log(line string) { r.Event(ui.Note{Text: line}) }

// Close implements ui.View; see finish.
func (r *runLog) Close() {}

// finish completes log and trace, sweeps old ones and adds the history line. A
// run without a task and without looking leaves nothing at all.
func (r *runLog) finish(command string, e ui.BuildFinished, keep bool) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.f != nil {
		r.err = errors.Join(r.err, r.w.Flush(), r.f.Close())
		r.err = errors.Join(r.err, os.WriteFile(filepath.Join(r.dir, r.id+".trace.json"), r.trace.encode(), 0o600))
		r.err = errors.Join(r.err, sweepRuns(r.dir))
	}
	if !keep && r.f == nil {
		return r.err
	}
	h := historyLine{V: 1, Time: r.now().UTC(), Command: command, Logged: r.f != nil, BuildFinished: e}
	return errors.Join(r.err, appendHistory(r.dir, h))
}

func appendHistory(dir string, h historyLine) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	b, err := json.Marshal(h)
	if err != nil {
		return err
	}
	f, err := os.OpenFile(filepath.Join(dir, "history.jsonl"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(append(b, '\n'))
	return errors.Join(err, f.Close())
}

// sweepRuns removes all but the newest logs and traces. Names sort by time.
func sweepRuns(dir string) error {
	ids, err := loggedRuns(dir)
	if err != nil {
		return err
	}
	for len(ids) > keepRuns {
		err = errors.Join(err, os.Remove(filepath.Join(dir, ids[0]+".jsonl")))
		if e := os.Remove(filepath.Join(dir, ids[0]+".trace.json")); e != nil && !errors.Is(e, fs.ErrNotExist) {
			err = errors.Join(err, e)
		}
		ids = ids[1:]
	}
	return err
}

// loggedRuns are the runs that left a log, oldest first.
func loggedRuns(dir string) ([]string, error) {
	es, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var out []string
	for _, e := range es {
		if id, ok := strings.CutSuffix(e.Name(), ".jsonl"); ok && id != "history" {
			out = append(out, id)
		}
	}
	return out, err
}

// readHistory returns the runs, oldest first. Lines that cannot be read, such
// as a half one after a power cut, are left out.
func readHistory(home string) ([]historyLine, error) {
	f, err := os.Open(filepath.Join(home, "runs", "history.jsonl"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // read only
	var out []historyLine
	err = eachLine(f, func(line []byte) {
		var h historyLine
		if json.Unmarshal(line, &h) == nil && h.V == 1 {
			out = append(out, h)
		}
	})
	slices.SortStableFunc(out, func(a, b historyLine) int { return a.Time.Compare(b.Time) })
	if len(out) > keepHistory {
		out = out[len(out)-keepHistory:]
	}
	return out, err
}

// loggedEvent is one line of a run's log.
type loggedEvent struct {
	Event      string        `json:"event"`
	Time       time.Time     `json:"time"`
	Task       string        `json:"task"`
	Host       string        `json:"host"`
	Status     string        `json:"status"`
	Reason     string        `json:"reason"`
	Attempt    int           `json:"attempt"`
	DurationMS int64         `json:"duration_ms"`
	Line       string        `json:"line"`
	Text       string        `json:"text"`
	Error      *ui.TaskError `json:"error"`
}

// readRun calls each with the events of a run's log.
func readRun(home, id string, each func(raw []byte, e loggedEvent)) error {
	f, err := os.Open(filepath.Join(home, "runs", id+".jsonl"))
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }() // read only
	return eachLine(f, func(line []byte) {
		var e loggedEvent
		if json.Unmarshal(line, &e) == nil && e.Event != "" {
			each(line, e)
		}
	})
}

// eachLine reads lines of any length that are fit to be events; a line beyond
// the limit ends it with an error.
func eachLine(r io.Reader, each func([]byte)) error {
	sc := bufio.NewScanner(r)
	sc.Buffer(make([]byte, 0, 64<<10), 4<<20)
	for sc.Scan() {
		if len(sc.Bytes()) > 0 {
			each(sc.Bytes())
		}
	}
	return sc.Err()
}

// findRun resolves what was typed: a whole ID, the unique beginning of one, or
// "last".
func findRun(home, word string) (string, error) {
	ids, err := loggedRuns(filepath.Join(home, "runs"))
	if err != nil {
		return "", err
	}
	if word == "last" && len(ids) > 0 {
		return ids[len(ids)-1], nil
	}
	var found []string
	for _, id := range ids {
		if id == word {
			return id, nil
		}
		if strings.HasPrefix(id, word) {
			found = append(found, id)
		}
	}
	switch len(found) {
	case 1:
		return found[0], nil
	case 0:
		hint := "no run has left a log yet"
		if len(ids) > 0 {
			hint = "logs are kept of " + strings.Join(ids, ", ")
		}
		return "", usagef(hint, "no log of run %q", word)
	}
	return "", usagef("give more of the name: "+strings.Join(found, ", "), "%q begins the names of %d runs", word, len(found))
}

// compareFinished sorts tasks by how long they took, longest first.
func compareFinished(a, b loggedEvent) int {
	return cmp.Or(-cmp.Compare(a.DurationMS, b.DurationMS), strings.Compare(a.Task, b.Task))
}

func runTime(t time.Time) string { return t.Local().Format("2006-01-02 15:04:05") }

func countText(b *ui.BuildFinished) string {
	var parts []string
	add := func(n int, what string) {
		if n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, what))
		}
	}
	add(b.Ran, "ran")
	add(b.Fresh, "fresh")
	add(b.Spared, "spared")
	add(b.Unverified, "unverified")
	add(b.Failed, "failed")
	add(b.Blocked, "blocked")
	if len(parts) == 0 {
		return "nothing"
	}
	return strings.Join(parts, ", ")
}
