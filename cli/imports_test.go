package cli

import (
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// The rules of DESIGN, "the house", asked of the compiler's own list of
// imports. depguard says the same, with reasons, for each import line; this one
// cannot be switched off by a comment and sees what comes in through others.

type listed struct {
	ImportPath   string
	Standard     bool
	Imports      []string
	TestImports  []string
	XTestImports []string
	Deps         []string
}

func goList(t *testing.T, args ...string) map[string]*listed {
	t.Helper()
	cmd := exec.Command("go", append([]string{"list", "-json=ImportPath,Standard,Imports,Deps"}, args...)...)
	cmd.Dir = ".."
	out, err := cmd.Output()
	if err != nil {
		if ee, ok := errors.AsType[*exec.ExitError](err); ok {
			t.Fatalf("go list: %v: %s", err, ee.Stderr)
		}
		t.Skipf("there is no go command to ask: %v", err)
	}
	all := map[string]*listed{}
	for d := json.NewDecoder(strings.NewReader(string(out))); ; {
		p := &listed{}
		if err := d.Decode(p); errors.Is(err, io.EOF) {
			return all
		} else if err != nil {
			t.Fatal(err)
		}
		all[p.ImportPath] = p
	}
}

func TestImportRules(t *testing.T) {
	all := goList(t, "-deps", ".", "./...")
	for _, r := range []struct {
		room  string // packages of the module the rule is about
		never string // what they must not depend on, directly or not
		why   string
	}{
		{`^hk/graph$`, `^hk/|zerolog|^net$|^os/exec$`, "graph knows no clusters, clouds, clocks or files"},
		{`^hk/graph/run$`, `^hk/(cache$|tasks|remote|cli)|bbolt|^net/http$`, "the scheduler asks interfaces"},
		{`^hk/graph/draw$`, `^hk/(cache|tasks|remote|cli)`, "drawing takes values"},
		{`^hk/cache$`, `^hk/(graph|tasks|remote|cli)|zerolog`, "the store knows names and bytes"},
		{`^hk/cache/fp$`, `^hk/|\.`, "identity is the standard library alone"},
		{`^hk/tasks(/|$)`, `^hk/(cache$|remote/|cli)|bbolt|hcloud-go|urfave|crypto/ssh/agent`, "tasks know interfaces, not implementations"},
		{`^hk/remote(/|$)`, `^hk/(tasks|graph|cache|cli)|urfave`, "remote knows no phases"},
		{`^hk/remote/(ssh|hcloud|kube|etcd)$`, `^hk/remote/`, "one room, one outside thing"},
		{`^hk/remote/lab`, `^hk/remote/(ssh|hcloud|kube|etcd|sim)`, "the lab is a cloud, not a client of one"},
	} {
		room, never := regexp.MustCompile(r.room), regexp.MustCompile(r.never)
		found := false
		for path, p := range all {
			if !room.MatchString(path) {
				continue
			}
			found = true
			for _, d := range p.Deps {
				// "." stands for any module that is not the standard library.
				if std := all[d]; r.never == `^hk/|\.` && std != nil && std.Standard {
					continue
				}
				if never.MatchString(d) && d != path {
					t.Errorf("%s depends on %s: %s", path, d, r.why)
				}
			}
		}
		if !found {
			t.Errorf("no package is %s", r.room)
		}
	}
	for path, p := range all {
		if slices.Contains(p.Imports, "hk/cli") && path != "hk" {
			t.Errorf("%s imports cli, which main alone may", path)
		}
	}
}

// What costs every start of hk, or is another way of doing what is chosen, must
// not be linked.
func TestForbiddenModules(t *testing.T) {
	all := goList(t, "-deps", ".")
	for _, bad := range []string{
		"k8s.io/client-go/kubernetes", "k8s.io/client-go/kubernetes/scheme", "k8s.io/kubectl", "sigs.k8s.io/controller-runtime", "helm.sh/helm",
		"github.com/spf13/cobra", "github.com/spf13/viper", "github.com/stretchr/testify", "github.com/pkg/errors",
		"gopkg.in/yaml.v3", "github.com/goccy/go-graphviz", "net/http/pprof",
	} {
		for path := range all {
			if path == bad || strings.HasPrefix(path, bad+"/") {
				t.Errorf("bin/hk links %s", path)
			}
		}
	}
}
