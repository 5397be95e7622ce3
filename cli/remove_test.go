package cli

import (
	"bufio"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"hk/remote/sim"
)

// TestRemovalSurvivesKills removes two masters of three and a worker of two with
// an hk that is killed after its third event, the next one after its sixth, and
// so on, until one comes to its end: it leaves what an undisturbed one leaves.
func TestRemovalSurvivesKills(t *testing.T) {
	dir := t.TempDir()
	if err := writeTestKey(filepath.Join(dir, "demo.key")); err != nil {
		t.Fatal(err)
	}
	hk := func(args ...string) *exec.Cmd {
		cmd := exec.CommandContext(t.Context(), os.Args[0]) // this test's own program, which runs hk
		cmd.Args = append([]string{"hk"}, args...)          // by this name
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "HK_HOME="+filepath.Join(dir, "home"), "HOME="+dir, "CI=1")
		return cmd
	}
	config := func(masters, workers string) {
		t.Helper()
		text := "name: demo\ncloud: sim\nssh: {key: demo.key}\nendpoint: {external: load-balancer}\n" +
			"masters: {count: " + masters + "}\nworkers: [{count: " + workers + "}]\n"
		if err := os.WriteFile(filepath.Join(dir, "demo.yaml"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	config("3", "2")
	if out, err := hk("build", "demo", "--quiet").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	config("1", "1")
	kills := 0
	for flags := []string{"--update", "--confirm", "demo"}; ; flags = nil { // agreed to once
		cmd := hk(append([]string{"build", "demo", "-o", "json"}, flags...)...)
		last, done := killAfter(t, cmd, 3*(kills+1))
		if done {
			if !strings.Contains(last, `"exit":0`) {
				t.Fatalf("after %d kills: %s", kills, last)
			}
			break
		}
		kills++
	}
	if kills < 3 {
		t.Errorf("killed %d times only", kills)
	}
	t.Logf("killed %d times", kills)
	if last, _ := killAfter(t, hk("build", "demo", "--verify", "full", "-o", "json"), 1<<30); !strings.Contains(last, `"ran":0,`) {
		t.Errorf("afterwards: %s", last)
	}
	w, err := sim.Open(sim.Options{Path: filepath.Join(dir, "demo.sim"), Now: time.Now})
	if err != nil {
		t.Fatal(err)
	}
	var left []string
	for key, value := range w.Dump() {
		for _, host := range []string{"master-2", "master-3", "worker-2"} {
			// alloc.json keeps the index, and masters a copy of it.
			if strings.Contains(string(value), "demo-"+host) || strings.HasPrefix(key, "etcd/") && strings.Contains(string(value), host) {
				left = append(left, key)
			}
		}
	}
	slices.Sort(left)
	if len(left) > 0 {
		t.Errorf("the world still knows them: %v", left)
	}
	if err := w.Close(); err != nil {
		t.Error(err)
	}
}

// killAfter runs a build and kills it after some of its events; done if it ended
// before, with its last line.
func killAfter(t *testing.T, cmd *exec.Cmd, events int) (last string, done bool) {
	t.Helper()
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	for n := 1; lines.Scan(); n++ {
		last = lines.Text()
		if n == events {
			err = cmd.Process.Kill()
			break
		}
	}
	if err != nil && !errors.Is(err, os.ErrProcessDone) {
		t.Fatal(err)
	}
	_ = cmd.Wait() // the last line says it
	return last, strings.Contains(last, `"event":"build_finished"`)
}
