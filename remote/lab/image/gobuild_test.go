package image

import (
	"os"
	"slices"
	"strings"
	"testing"
)

// What the user's environment says must not change what is built, but where modules
// come from is the user's business.
func TestGoEnv(t *testing.T) {
	env := goEnv([]string{"GOFLAGS=-tags=x -mod=vendor", "GOOS=plan9", "CGO_ENABLED=1", "GOPROXY=off", "HOME=/home/u", "GOWORK=/w"}, false)
	for _, want := range []string{"GOFLAGS=-mod=mod -buildvcs=false -trimpath", "GOOS=linux", "CGO_ENABLED=0", "GOPROXY=off", "HOME=/home/u", "GOWORK=off"} {
		if !slices.Contains(env, want) {
			t.Errorf("no %s in %q", want, env)
		}
	}
	if n := strings.Count(strings.Join(env, "\n"), "GOFLAGS="); n != 1 {
		t.Errorf("GOFLAGS is set %d times", n)
	}
	if !slices.Contains(goEnv(nil, true), "CGO_ENABLED=1") {
		t.Error("cgo is off where it was asked for")
	}
}

func TestGoMod(t *testing.T) {
	g := goModule{name: "x", requires: []string{"example.org/a@v1.2.3"}, replaces: map[string]string{"example.org/b": "v0.2.0"}}
	want := "module hk.invalid/x\n\ngo 1.26.0\n\nrequire example.org/a v1.2.3\n\nreplace example.org/b => example.org/b v0.2.0\n"
	if got := g.goMod(); got != want {
		t.Errorf("got:\n%s\nwant:\n%s", got, want)
	}
}

func TestStagingModules(t *testing.T) {
	goMod := t.TempDir() + "/go.mod"
	text := "module k8s.io/kubernetes\n\ngo 1.26.0\n\nreplace (\n\tk8s.io/api => ./staging/src/k8s.io/api\n\tk8s.io/apimachinery => ./staging/src/k8s.io/apimachinery\n\texample.org/x => example.org/y v1.0.0\n)\n"
	if err := os.WriteFile(goMod, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	got, err := stagingModules(t.Context(), goMod)
	if err != nil || strings.Join(got, " ") != "k8s.io/api k8s.io/apimachinery" {
		t.Errorf("got %v, %v", got, err)
	}
	if err := os.WriteFile(goMod, []byte("module k8s.io/kubernetes\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := stagingModules(t.Context(), goMod); err == nil {
		t.Error("a go.mod without staging modules was accepted")
	}
}
