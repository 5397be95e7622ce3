package image

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sort"
	"strings"
)

// goModule is one generated module and the programs it builds. A module of our own,
// instead of `go install PACKAGE@VERSION`, works for modules with replace directives
// too, and gives programs the names they are known by.
type goModule struct {
	name     string
	version  string
	requires []string          // MODULE@VERSION
	replaces map[string]string // MODULE -> VERSION of the same module
	programs map[string]string // program -> package
	sources  map[string]string // file in the module -> text, for programs of our own
	ldflags  string
	tags     string
	cgo      bool
	// complete, if set, fills in what is only known once modules were downloaded. It
	// must depend on name, version and requires alone: what it returns is not in the key.
	complete func(ctx context.Context, m *maker, g goModule) (goModule, error)
}

// step is the step that builds the module; its output is a folder with bin/ in it.
func (g goModule) step() step {
	s := step{name: g.name + "-" + g.version, recipe: 1, output: filepath.Join("build", g.name+"-"+g.version)}
	s.inputs = append([]string{g.ldflags, g.tags, fmt.Sprint(g.cgo)}, g.requires...)
	for _, m := range []map[string]string{g.replaces, g.programs, g.sources} {
		for _, k := range sortedKeys(m) {
			s.inputs = append(s.inputs, k, m[k])
		}
	}
	return s
}

// goMod is the text of the generated go.mod.
func (g goModule) goMod() string {
	var b strings.Builder
	fmt.Fprintf(&b, "module hk.invalid/%s\n\ngo 1.26.0\n", g.name)
	for _, r := range g.requires {
		fmt.Fprintf(&b, "\nrequire %s\n", strings.Replace(r, "@", " ", 1))
	}
	for _, m := range sortedKeys(g.replaces) {
		fmt.Fprintf(&b, "\nreplace %s => %s %s\n", m, m, g.replaces[m])
	}
	return b.String()
}

// build builds the module's programs and returns the folder they are in.
func (m *maker) build(ctx context.Context, g goModule) (string, error) {
	out, err := m.do(ctx, g.step(), func(ctx context.Context, tmp string) error {
		if err := m.goBuilds.Acquire(ctx, 1); err != nil {
			return err
		}
		defer m.goBuilds.Release(1)
		if g.complete != nil {
			var err error
			if g, err = g.complete(ctx, m, g); err != nil {
				return err
			}
		}
		if err := makeFolder(filepath.Join(tmp, "bin")); err != nil {
			return err
		}
		files := map[string]string{"go.mod": g.goMod()}
		maps.Copy(files, g.sources)
		for name, text := range files {
			path := filepath.Join(tmp, name)
			if err := makeFolder(filepath.Dir(path)); err != nil {
				return err
			}
			if err := writePublic(path, []byte(text), 0o644); err != nil {
				return err
			}
		}
		m.logf("%s: building %s", g.step().name, strings.Join(sortedKeys(g.programs), " "))
		return m.goBuild(ctx, g, tmp)
	})
	if err != nil {
		return "", err
	}
	return filepath.Join(out, "bin"), nil
}

// goBuild runs the go command once per program, or once for all where the programs
// are named like their packages: then the command compiles what they share once and
// links in parallel.
func (m *maker) goBuild(ctx context.Context, g goModule, dir string) error {
	goTool, err := findGo()
	if err != nil {
		return err
	}
	base := []string{goTool, "build", "-v", "-ldflags", "-s -w " + g.ldflags}
	if g.tags != "" {
		base = append(base, "-tags", g.tags)
	}
	var together []string
	for _, name := range sortedKeys(g.programs) {
		pkg := g.programs[name]
		if strings.HasSuffix(pkg, "/"+name) {
			together = append(together, pkg)
			continue
		}
		args := append(slices.Clone(base), "-o", filepath.Join("bin", name), pkg)
		if err := m.run(ctx, g.command(dir, args)); err != nil {
			return err
		}
	}
	if len(together) == 0 {
		return nil
	}
	args := append(append(slices.Clone(base), "-o", "bin/"), together...)
	return m.run(ctx, g.command(dir, args))
}

// command is isolated so that compilers and linkers do not outlive a killed hk: they
// are the go command's children, not ours.
func (g goModule) command(dir string, args []string) command {
	return command{step: g.step().name, dir: dir, env: goEnv(os.Environ(), g.cgo), isolated: os.Geteuid() == 0, args: args}
}

// goEnv is the caller's environment with everything fixed that would change what is
// built. Where modules come from and where they are cached stays the user's choice.
func goEnv(environ []string, cgo bool) []string {
	fixed := map[string]string{
		"GOFLAGS": "-mod=mod -buildvcs=false -trimpath", "GOWORK": "off", "GO111MODULE": "on", "GOTOOLCHAIN": "local",
		"GOOS": "linux", "GOARCH": arch, "GOAMD64": "v1", "GOEXPERIMENT": "", "GODEBUG": "", "GOBIN": "", "GOROOT": "",
		"CGO_ENABLED": "0", "CGO_CFLAGS": "", "CGO_LDFLAGS": "", "CC": "gcc", "LC_ALL": "C", "PWD": "",
	}
	if cgo {
		fixed["CGO_ENABLED"] = "1"
	}
	var env []string
	for _, kv := range environ {
		name, _, _ := strings.Cut(kv, "=")
		if _, ok := fixed[name]; !ok {
			env = append(env, kv)
		}
	}
	for _, name := range sortedKeys(fixed) {
		if fixed[name] != "" {
			env = append(env, name+"="+fixed[name])
		}
	}
	return env
}

// findGo finds the go command also where sudo has cut PATH down.
func findGo() (string, error) {
	if path, err := exec.LookPath("go"); err == nil {
		return path, nil
	}
	const usual = "/usr/local/go/bin/go"
	if _, err := os.Stat(usual); err == nil {
		return usual, nil
	}
	return "", errors.New("the go command is neither in PATH nor in /usr/local/go/bin; it builds the lab's programs")
}

// moduleInfo is what the go command says of a downloaded module.
type moduleInfo struct {
	Dir   string
	GoMod string
	Info  string
	Error string
}

// downloadModule fetches a module into Go's module cache.
func (m *maker) downloadModule(ctx context.Context, dir, module string) (moduleInfo, error) {
	goTool, err := findGo()
	if err != nil {
		return moduleInfo{}, err
	}
	cmd := exec.CommandContext(ctx, goTool, "mod", "download", "-json", module)
	cmd.Dir, cmd.Env = dir, goEnv(os.Environ(), false)
	out, runErr := cmd.Output()
	var info moduleInfo
	if err := json.Unmarshal(out, &info); err != nil {
		return moduleInfo{}, fmt.Errorf("downloading %s: %w", module, errors.Join(runErr, err))
	}
	if info.Error != "" {
		return moduleInfo{}, fmt.Errorf("downloading %s: %s", module, info.Error)
	}
	return info, runErr
}

func sortedKeys(m map[string]string) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	sort.Strings(keys)
	return keys
}
