package ui

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func clock() (func() time.Time, func(time.Duration)) {
	t := time.Date(2026, 12, 1, 12, 0, 0, 0, time.UTC)
	return func() time.Time { return t }, func(d time.Duration) { t = t.Add(d) }
}

// ticker returns what lets a second pass in a view and waits until it is drawn.
func ticker(ticks chan<- time.Time, now func() time.Time, step func(time.Duration)) func() {
	return func() {
		step(time.Second)
		ticks <- now()
		synctest.Wait()
	}
}

// screen is a small terminal: it knows what the live view writes and nothing
// else, and fails on anything else.
type screen struct {
	t          *testing.T
	cols, rows int
	lines      []string // all that ever was, the last `rows` are seen
	y, x       int
	writes     int
}

func newScreen(t *testing.T, cols, rows int) *screen {
	t.Helper()
	return &screen{t: t, cols: cols, rows: rows, lines: []string{""}}
}

func (s *screen) Size() (int, int) { return s.cols, s.rows }

func (s *screen) Write(p []byte) (int, error) {
	s.writes++
	for r := []rune(string(p)); len(r) > 0; {
		switch r[0] {
		case '\r':
			s.x = 0
		case '\n':
			s.down()
		case '\x1b':
			end := slices.IndexFunc(r[2:], func(c rune) bool { return c >= '@' }) + 2
			arg := string(r[2:end])
			switch r[end] {
			case 'A':
				n := 0
				if _, err := fmt.Sscan(arg, &n); err != nil {
					s.t.Fatalf("escape %q", string(r[:end+1]))
				}
				s.y -= n
				if s.y < 0 || s.y < len(s.lines)-s.rows {
					s.t.Fatalf("moved up beyond the screen")
				}
			case 'J':
				s.lines = s.lines[:s.y+1]
				s.lines[s.y] = string([]rune(s.lines[s.y])[:min(s.x, len([]rune(s.lines[s.y])))])
			case 'm':
			default:
				s.t.Fatalf("escape %q", string(r[:end+1]))
			}
			r = r[end:]
		default:
			if s.x == s.cols {
				s.down()
				s.x = 0
			}
			l := []rune(s.lines[s.y])
			for len(l) <= s.x {
				l = append(l, ' ')
			}
			l[s.x] = r[0]
			s.lines[s.y] = string(l)
			s.x++
		}
		r = r[1:]
	}
	return len(p), nil
}

func (s *screen) down() {
	s.y++
	if s.y == len(s.lines) {
		s.lines = append(s.lines, "")
	}
}

func (s *screen) String() string { return strings.Join(s.lines, "\n") }

func TestFancy(t *testing.T) { synctest.Test(t, testFancy) }

func testFancy(t *testing.T) {
	now, step := clock()
	scr := newScreen(t, 60, 24)
	ticks := make(chan time.Time)
	f := NewFancy(scr, Options{Now: now}, ticks)
	tick := ticker(ticks, now, step)
	f.Event(BuildStarted{Cluster: "demo", RunID: "r", Selected: 3})
	f.Event(TaskStarted{Task: "etcd-setup.certs/master-1", Host: "master-1", Attempt: 1, Reason: "never built"})
	f.Event(TaskStarted{Task: "etcd-setup.binary/master-1", Host: "master-1", Attempt: 1})
	f.Event(TaskLog{Task: "etcd-setup.binary/master-1", Line: "downloading\x1b[31m etcd"})
	tick()
	want := "0/3 done, 2 running  1.0s\n" +
		"    1.0s  etcd-setup.binary/master-1  downloading etcd\n" +
		"    1.0s  etcd-setup.certs/master-1"
	if scr.String() != want {
		t.Errorf("screen:\n%s\nwant:\n%s", scr, want)
	}
	f.Event(TaskFinished{Task: "etcd-setup.certs/master-1", Status: "ran", Reason: "never built", DurationMS: 1500})
	f.Log("a word from elsewhere")
	tick()
	want = "[1/3] ran etcd-setup.certs/master-1 1.5s  never built\na word from elsewhere\n" +
		"1/3 done, 1 running  2.0s\n" +
		"    2.0s  etcd-setup.binary/master-1  downloading etcd"
	if scr.String() != want {
		t.Errorf("screen:\n%s\nwant:\n%s", scr, want)
	}
	f.Event(TaskFinished{Task: "etcd-setup.binary/master-1", Status: "failed", DurationMS: 10, Error: &TaskError{Class: "ssh", Message: "disk full"}})
	f.Close()
	f.Event(Note{Text: "too late"})
	want = "[1/3] ran etcd-setup.certs/master-1 1.5s  never built\na word from elsewhere\n" +
		"[2/3] FAILED etcd-setup.binary/master-1 10ms: disk full\n    downloading etcd\n"
	if scr.String() != want {
		t.Errorf("after Close:\n%s\nwant:\n%s", scr, want)
	}
}

// A window that becomes narrower wraps the old area; it must still be found.
func TestFancyResizeAndPause(t *testing.T) { synctest.Test(t, testFancyResizeAndPause) }

func testFancyResizeAndPause(t *testing.T) {
	now, step := clock()
	scr := newScreen(t, 80, 24)
	ticks := make(chan time.Time)
	f := NewFancy(scr, Options{Now: now}, ticks)
	f.Event(BuildStarted{Selected: 1})
	f.Event(TaskStarted{Task: strings.Repeat("x", 60)})
	tick := ticker(ticks, now, step)
	tick()
	rewrap(scr, 40)
	tick()
	if got := strings.Count(scr.String(), "1 running"); got != 1 {
		t.Errorf("%d areas on the screen:\n%s", got, scr)
	}
	f.Pause()
	if s := strings.TrimSpace(scr.String()); s != "" {
		t.Errorf("after Pause: %q", s)
	}
	tick()
	if s := strings.TrimSpace(scr.String()); s != "" {
		t.Errorf("drawn while paused: %q", s)
	}
	f.Resume()
	if !strings.Contains(scr.String(), "1 running") {
		t.Errorf("after Resume: %q", scr)
	}
	// A question is alone on the screen, also behind other views.
	Aside(Tee{NewJSON(io.Discard, Options{Now: now}), f}, func() {
		tick()
		if s := strings.TrimSpace(scr.String()); s != "" {
			t.Errorf("beside a question: %q", s)
		}
	})
	if !strings.Contains(scr.String(), "1 running") {
		t.Errorf("after a question: %q", scr)
	}
	f.Close()
}

// rewrap does what a terminal does when it becomes narrower.
func rewrap(s *screen, cols int) {
	var out []string
	for _, l := range s.lines {
		r := []rune(l)
		for len(r) > cols {
			out = append(out, string(r[:cols]))
			r = r[cols:]
		}
		out = append(out, string(r))
	}
	s.cols, s.lines = cols, out
	s.y, s.x = len(out)-1, len([]rune(out[len(out)-1]))
}

// A flood of finished tasks must not become a flood of drawings.
func TestFancyBoundsDrawings(t *testing.T) {
	now, _ := clock()
	scr := newScreen(t, 80, 24)
	f := NewFancy(scr, Options{Now: now}, make(chan time.Time))
	for i := range 1000 {
		f.Event(TaskFinished{Task: fmt.Sprintf("a.b/h-%d", i), Status: "ran"})
	}
	f.Close()
	if scr.writes > 3 {
		t.Errorf("%d writes within one moment", scr.writes)
	}
	if n := strings.Count(scr.String(), "ran a.b/"); n != 1000 {
		t.Errorf("%d of 1000 lines are there", n)
	}
}

func TestPlain(t *testing.T) {
	now, _ := clock()
	var b bytes.Buffer
	p := NewPlain(&b, Options{Now: now})
	p.Event(BuildStarted{Selected: 12})
	p.Event(TaskStarted{Task: "a.b", Attempt: 1, Reason: "forced"})
	p.Event(TaskLog{Task: "a.b", Line: "one"})
	p.Event(TaskRetry{Task: "a.b", Attempt: 1, Error: TaskError{Class: "cloud", Message: "locked"}, WaitMS: 1000})
	p.Event(TaskStarted{Task: "a.b", Attempt: 2, Reason: "forced"})
	p.Event(TaskFinished{Task: "a.b", Status: "failed", Attempt: 2, DurationMS: 65000, Error: &TaskError{Class: "cloud", Message: "locked"}})
	p.Event(TaskFinished{Task: "a.c", Status: "blocked", Reason: "needs a.b"})
	p.Event(TaskFinished{Task: "a.d", Status: "fresh"})
	want := "start a.b: forced\n" +
		"retry a.b: attempt 1 failed: locked; again in 1.0s\n" +
		"start a.b (attempt 2): forced\n" +
		"[ 1/12] FAILED a.b 1m05s: locked\n    one\n"
	if b.String() != want {
		t.Errorf("got:\n%s\nwant:\n%s", b.String(), want)
	}
}

// The field names are a contract: absent values are null, never missing.
func TestEventJSON(t *testing.T) {
	at := time.Date(2026, 12, 1, 12, 0, 0, 5e6, time.UTC)
	run := "r1"
	for _, tc := range []struct {
		e    Event
		want string
	}{
		{
			BuildStarted{Cluster: "demo", RunID: "r1", Selected: 3},
			`{"v":1,"event":"build_started","time":"2026-12-01T12:00:00.005Z","cluster":"demo","uid":null,"run_id":"r1"}`,
		},
		{
			TaskStarted{Task: "a.b/h", Attempt: 1, Reason: "forced", Host: "h"},
			`{"v":1,"event":"task_started","time":"2026-12-01T12:00:00.005Z","task":"a.b/h","attempt":1,"reason":"forced"}`,
		},
		{
			TaskRetry{Task: "a.b", Attempt: 1, Error: TaskError{"cloud", "locked"}, WaitMS: 5},
			`{"v":1,"event":"task_retry","time":"2026-12-01T12:00:00.005Z","task":"a.b","attempt":1,"error":{"class":"cloud","message":"locked"},"wait_ms":5}`,
		},
		{
			TaskFinished{RunID: "r1", Task: "a.b", Phase: "a", Status: "ran", Reason: "forced", Attempt: 1, DurationMS: 7},
			`{"v":1,"event":"task_finished","time":"2026-12-01T12:00:00.005Z","run_id":"r1","task":"a.b","phase":"a","host":"","status":"ran","reason":"forced","attempt":1,"duration_ms":7,"error":null}`,
		},
		{
			BuildFinished{Cluster: "demo", RunID: &run, Ran: 1, WallMS: 2, CriticalPathMS: 3, APICalls: 4},
			`{"v":1,"event":"build_finished","time":"2026-12-01T12:00:00.005Z","cluster":"demo","run_id":"r1","ran":1,"fresh":0,"spared":0,"unverified":0,"failed":0,"blocked":0,"wall_ms":2,"critical_path_ms":3,"api_calls":4,"exit":0,"error":null}`,
		},
		{
			BuildFinished{Cluster: "demo", Exit: 6, Error: &BuildError{Class: "config", Message: "no"}},
			`{"v":1,"event":"build_finished","time":"2026-12-01T12:00:00.005Z","cluster":"demo","run_id":null,"ran":0,"fresh":0,"spared":0,"unverified":0,"failed":0,"blocked":0,"wall_ms":0,"critical_path_ms":0,"api_calls":0,"exit":6,"error":{"class":"config","message":"no","hint":null}}`,
		},
	} {
		if got := string(EncodeEvent(tc.e, at)); got != tc.want {
			t.Errorf("%T:\n%s\nwant:\n%s", tc.e, got, tc.want)
		}
	}
}

func TestJSONView(t *testing.T) {
	now, _ := clock()
	for _, verbose := range []bool{false, true} {
		var b bytes.Buffer
		j := NewJSON(&b, Options{Now: now, Verbose: verbose})
		j.Event(Note{Text: "x"})
		j.Event(TaskLog{Task: "a.b", Line: "x"})
		j.Event(TaskFinished{Task: "a.b", Status: "fresh"})
		j.Event(BuildFinished{})
		lines := strings.Split(strings.TrimSpace(b.String()), "\n")
		if want := 1 + map[bool]int{true: 1}[verbose]; len(lines) != want {
			t.Errorf("verbose %v: %d lines, want %d: %s", verbose, len(lines), want, b.String())
		}
		for _, l := range lines {
			if !json.Valid([]byte(l)) {
				t.Errorf("not JSON: %s", l)
			}
		}
	}
}

func TestProblem(t *testing.T) {
	file := filepath.Join(t.TempDir(), "demo.yaml")
	if err := os.WriteFile(file, []byte("name: demo\n\tmastres: 3\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	p := Problem{Message: `unknown key "mastres"`, File: file, Line: 2, Col: 2, Details: []string{"one"}, Hints: []string{"did you mean \"masters\"?", "two\nlines"}}
	p.Write(&b, Style{})
	want := "error: " + file + ":2:2: unknown key \"mastres\"\n" +
		"    2 | \tmastres: 3\n" +
		"      | \t^\n" +
		"  one\n" +
		"hint: did you mean \"masters\"?\n" +
		"hint: two\n      lines\n"
	if b.String() != want {
		t.Errorf("got:\n%s\nwant:\n%s", b.String(), want)
	}
}

func TestTable(t *testing.T) {
	st := Style{Color: true}
	tb := NewTable("A", "BEE")
	tb.Row(st.Red("x"), "one")
	tb.Row("longer", "")
	var b bytes.Buffer
	tb.Write(&b)
	want := "A       BEE\n\x1b[31mx\x1b[0m       one\nlonger  -\n"
	if b.String() != want {
		t.Errorf("got %q, want %q", b.String(), want)
	}
}
