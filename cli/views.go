package cli

import (
	"os"
	"os/signal"
	"syscall"

	"hk/cli/ui"
)

// buildView chooses how a build is shown. The answer of `-o json` is the events
// on stdout; people see the live view on a terminal and one line per event off
// it, both on stderr.
func (a *app) buildView(f form, o ui.Options) ui.View {
	var people ui.View
	switch {
	case f == asJSON && (o.Quiet || !isTerminal(a.Err) || isTerminal(a.Out)):
		// A reader of the events needs no second telling.
		people = notesOnly{ui.NewPlain(a.Err, o)}
	case a.liveTerminal() && !o.Quiet:
		people = a.liveView(o)
	default:
		people = ui.NewPlain(a.Err, o)
	}
	if f == asJSON {
		return ui.Tee{ui.NewJSON(a.Out, o), people}
	}
	return people
}

// liveTerminal reports whether stderr can show the live view.
func (a *app) liveTerminal() bool {
	return isTerminal(a.Err) && a.getenv("CI") == "" && a.getenv("TERM") != "dumb"
}

// liveView draws on stderr and steps aside while hk is stopped (Ctrl-Z): the
// shell writes there meanwhile.
func (a *app) liveView(o ui.Options) ui.View {
	f := a.Err.(*os.File)
	v := ui.NewFancy(tty{f, int(f.Fd())}, o, nil)
	tstp := make(chan os.Signal, 1)
	signal.Notify(tstp, syscall.SIGTSTP)
	done := make(chan struct{})
	go func() {
		for {
			select {
			case <-tstp:
				v.Pause()
				// Ours was caught; this one cannot be.
				_ = syscall.Kill(syscall.Getpid(), syscall.SIGSTOP)
				v.Resume()
			case <-done:
				signal.Stop(tstp)
				return
			}
		}
	}()
	return closing{v, func() { close(done) }}
}

// closing is a live view with something more to close.
type closing struct {
	*ui.Fancy
	more func()
}

// Close implements ui.View.
func (c closing) Close() {
	c.Fancy.Close()
	c.more()
}

// notesOnly passes on what is not an event of the contract.
type notesOnly struct{ ui.View }

// Event implements ui.View.
func (n notesOnly) Event(e ui.Event) {
	if note, ok := e.(ui.Note); ok {
		n.View.Event(note)
	}
}
