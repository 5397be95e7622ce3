package cli

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"hk/remote/sim"
)

var update = flag.Bool("update", false, "write the expected outputs of scripts and golden files anew")

// TestMain lets scripts run hk inside the test binary.
func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"hk": func() {
		signals := make(chan os.Signal, 3)
		signal.Notify(signals, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
		os.Exit(Run(os.Args, Streams{In: os.Stdin, Out: os.Stdout, Err: os.Stderr, Signals: signals}))
	}})
}

// Scripts are cli/testdata/script/AREA_CASE.txtar: commands and the files they
// need. `exits N hk …` demands an exit code.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:           filepath.Join("testdata", "script"),
		UpdateScripts: *update,
		Setup: func(e *testscript.Env) error {
			if err := writeTestKey(filepath.Join(e.WorkDir, "demo.key")); err != nil {
				return err
			}
			e.Setenv("HK_HOME", filepath.Join(e.WorkDir, "home"))
			e.Setenv("HOME", e.WorkDir)
			e.Setenv("HK_LAB_HOME", filepath.Join(e.WorkDir, "labs"))
			for _, v := range []string{"HCLOUD_TOKEN", "HCLOUD_TOKEN_FILE", "HCLOUD_ENDPOINT", "HCLOUD_CONTEXT", "KUBECONFIG", "XDG_STATE_HOME", "XDG_CONFIG_HOME", "CI", "NO_COLOR"} {
				e.Setenv(v, "")
			}
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"exits":   cmdExits,
			"sim":     cmdSim,
			"inorder": cmdInOrder,
			"replace": cmdReplace,
			"waitfor": cmdWaitFor,
		},
	})
}

// cmdExits runs a program and demands its exit code: exits 2 hk build nope.
func cmdExits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits CODE PROGRAM [ARGS…]")
	}
	err := ts.Exec(args[1], args[2:]...)
	code := "0"
	if err != nil {
		code = strings.TrimPrefix(err.Error(), "exit status ")
	}
	if code != args[0] {
		ts.Fatalf("%s: exit %s, want %s", strings.Join(args[1:], " "), code, args[0])
	}
}

// cmdSim does something to a simulated world behind hk's back:
//
//	sim WORLD off|on|gone MACHINE
//	sim WORLD pod|kept-pod MACHINE NAME
func cmdSim(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 3 {
		ts.Fatalf("usage: sim WORLD VERB MACHINE [NAME]")
	}
	w, err := sim.Open(sim.Options{Path: ts.MkAbs(args[0])})
	ts.Check(err)
	defer func() { ts.Check(w.Close()) }()
	ctx, machine := context.Background(), args[2]
	switch verb := args[1]; verb {
	case "off", "on":
		err = w.SetPower(ctx, machine, verb == "on")
	case "pod", "kept-pod":
		err = w.PutPod(ctx, machine, args[3], verb == "kept-pod")
	case "gone":
		inv, ierr := w.Cloud().Inventory(ctx)
		ts.Check(ierr)
		err = fmt.Errorf("there is no %s", machine)
		for _, s := range inv.Servers {
			if s.Name == machine {
				err = w.Cloud().DeleteServer(ctx, s.ID)
			}
		}
	default:
		ts.Fatalf("sim: what is %s?", verb)
	}
	ts.Check(err)
}

// cmdInOrder demands that stdout's lines hold the texts in this order.
func cmdInOrder(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) == 0 {
		ts.Fatalf("usage: inorder TEXT…")
	}
	rest := ts.ReadFile("stdout")
	for _, a := range args {
		i := strings.Index(rest, a)
		if i < 0 {
			ts.Fatalf("%q does not follow", a)
		}
		rest = rest[i+len(a):]
	}
}

// cmdReplace replaces a text in a file: replace FILE OLD NEW.
func cmdReplace(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 3 {
		ts.Fatalf("usage: replace FILE OLD NEW")
	}
	file := ts.MkAbs(args[0])
	old := ts.ReadFile(args[0])
	if !strings.Contains(old, args[1]) {
		ts.Fatalf("%s does not hold %q", args[0], args[1])
	}
	ts.Check(os.WriteFile(file, []byte(strings.Replace(old, args[1], args[2], 1)), 0o600))
}

// writeTestKey puts a key where configs of scripts name it; scripts about init
// begin without one.
func writeTestKey(file string) error {
	_, err := makeKey(file, "test")
	return err
}

// cmdWaitFor waits until a file is there: waitfor FILE.
func cmdWaitFor(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: waitfor FILE")
	}
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(time.Minute); time.Now().Before(end); <-tick.C {
		if _, err := os.Stat(ts.MkAbs(args[0])); err == nil {
			return
		}
	}
	ts.Fatalf("%s did not appear", args[0])
}
