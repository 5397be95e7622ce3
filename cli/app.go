package cli

import (
	"context"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"time"

	ucli "github.com/urfave/cli/v2"

	"hk/cli/ui"
)

// Version of hk; `make build` sets it with -ldflags.
var (
	version = "dev"
	commit  = ""
)

// Streams are what a command may touch of the process it runs in.
type Streams struct {
	In  io.Reader
	Out io.Writer
	Err io.Writer
	// Signals are the interrupts sent to the process.
	Signals <-chan os.Signal
}

// app is one run of hk.
type app struct {
	Streams
	cmd    *command // as typed, in order
	words  []string // as typed
	ended  bool     // the last event of a build was told
	now    func() time.Time
	getenv func(string) string
	color  bool // stderr is a terminal that wants colours
	debug  bool // HK_DEBUG: tell stack traces
}

// Run runs one command line, the program's name included, and returns the exit
// code. It is all of hk but for the process around it.
func Run(args []string, s Streams) (code int) {
	a := &app{Streams: s, now: time.Now, getenv: os.Getenv}
	a.color = isTerminal(s.Err) && a.getenv("NO_COLOR") == "" && a.getenv("TERM") != "dumb"
	a.debug = a.getenv("HK_DEBUG") != ""
	defer func() {
		if r := recover(); r != nil {
			a.fail(&exitError{code: ExitBug, class: classBug, hint: bugHint, err: fmt.Errorf("bug: %v", r)})
			fmt.Fprintf(a.Err, "%s\n", debug.Stack())
			code = ExitBug
		}
	}()
	if len(args) > 0 {
		args = args[1:]
	}
	return a.run(args)
}

const bugHint = "this is an error in hk itself; please report it with the text below"

func (a *app) run(words []string) int {
	if len(words) > 0 && words[0] == completeWord {
		a.complete(words[1:])
		return ExitOK
	}
	cmds := a.commands()
	c, err := arrange(cmds, words)
	a.cmd, a.words = c, words
	if err != nil {
		return a.fail(a.lastEvent(err))
	}
	switch {
	case c.ver:
		return a.fail(a.printVersion(false))
	case c.help || len(c.path) == 0:
		a.help(cmds, c.path)
		return ExitOK
	case len(c.leaf().Subcommands) > 0:
		return a.fail(c.missingCommand())
	}
	ctx, stop := a.interruptible()
	defer stop()
	err = a.library(cmds).RunContext(ctx, append([]string{"hk"}, c.argv...))
	return a.fail(a.lastEvent(err))
}

// lastEvent tells the last event of a build whose command line was wrong: a
// program that reads `build -o json` finds build_finished whatever happened.
func (a *app) lastEvent(err error) error {
	l := a.cmd.leaf()
	if err == nil || a.ended || l == nil || l.Name != "build" || !asksJSON(a.words) {
		return err
	}
	v := judge(err)
	e := ui.BuildFinished{Exit: v.code, Error: &ui.BuildError{Class: v.class, Message: err.Error()}}
	if h := hintsOf(err); len(h) > 0 {
		e.Error.Hint = &h[0]
	}
	for _, w := range a.cmd.args() {
		if t, terr := parseTarget(w); terr == nil && e.Cluster == "" {
			e.Cluster = t.Cluster
		}
	}
	fmt.Fprintf(a.Out, "%s\n", ui.EncodeEvent(e, a.now()))
	return err
}

// asksJSON looks for -o json in words that could not be parsed.
func asksJSON(words []string) bool {
	for i, w := range words {
		switch w {
		case "-o=json", "--output=json", "-output=json", "--o=json":
			return true
		case "-o", "--output", "-output", "--o":
			if i+1 < len(words) && words[i+1] == "json" {
				return true
			}
		case "--":
			return false
		}
	}
	return false
}

// library is the urfave app: it converts flag values and calls the action. All
// words were checked before, so whatever it complains about is a usage error.
func (a *app) library(cmds []*ucli.Command) *ucli.App {
	usage := func(_ *ucli.Context, err error, _ bool) error {
		return usagef("see "+a.cmd.name()+" --help", "%s", err)
	}
	var walk func([]*ucli.Command)
	walk = func(cmds []*ucli.Command) {
		for _, c := range cmds {
			c.HideHelp, c.OnUsageError = true, usage
			walk(c.Subcommands)
		}
	}
	walk(cmds)
	return &ucli.App{
		Name: "hk", HideHelp: true, HideVersion: true, Commands: cmds, OnUsageError: usage,
		Reader: a.In, Writer: a.Out, ErrWriter: a.Err,
		DisableSliceFlagSeparator: true,
		// Exit codes are decided in one place, fail; os.Exit inside the
		// library would skip deferred calls (urfave/cli#1089).
		ExitErrHandler: func(*ucli.Context, error) {},
	}
}

// fail prints an error and returns its exit code; nil is success.
func (a *app) fail(err error) int {
	if err == nil {
		return ExitOK
	}
	v := judge(err)
	if v.code == ExitInterrupted {
		fmt.Fprintln(a.Err, "interrupted")
		return v.code
	}
	for _, p := range problems(err) {
		p.Write(a.Err, ui.Style{Color: a.color})
	}
	return v.code
}

// missingCommand is the error of a command that is only a group.
func (c *command) missingCommand() error {
	names := visibleNames(c.leaf().Subcommands)
	return usagef("see "+c.name()+" --help", "`%s` needs a command: %s", c.name(), orList(names))
}

// interruptible ends the context at the first signal. Commands with a safe
// point of their own (build, destroy) take the signals themselves.
func (a *app) interruptible() (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(context.Background())
	if a.Signals == nil || handlesSignals(a.cmd.leaf()) {
		return ctx, cancel
	}
	go func() {
		select {
		case <-a.Signals:
			cancel()
		case <-ctx.Done():
			return
		}
		// A command that does not end at once after the first is left by the
		// second.
		<-a.Signals
		os.Exit(ExitInterrupted)
	}()
	return ctx, cancel
}
