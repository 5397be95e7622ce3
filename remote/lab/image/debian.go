package image

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strings"
)

// suite is the Debian release of the machines: Hetzner's image is debian-12.
const suite = "bookworm"

// source is one place that packages come from, as the computer is configured.
type source struct {
	uri        string
	suite      string
	components []string
}

// line is the source in sources.list format.
func (s source) line() string {
	return fmt.Sprintf("deb %s %s %s", s.uri, s.suite, strings.Join(s.components, " "))
}

// debianSources reads the computer's own apt configuration and returns the entries
// for this Debian release with component main, the plain release first. So hk knows
// no mirror by name, and a computer that is told to use a local one is obeyed.
func debianSources(etcApt string) ([]source, error) {
	files, err := filepath.Glob(filepath.Join(etcApt, "sources.list.d", "*"))
	if err != nil {
		return nil, err
	}
	sort.Strings(files)
	files = append([]string{filepath.Join(etcApt, "sources.list")}, files...)
	var all []source
	for _, name := range files {
		data, err := os.ReadFile(name)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		switch filepath.Ext(name) {
		case ".list":
			all = append(all, parseOneLine(string(data))...)
		case ".sources":
			all = append(all, parseDeb822(string(data))...)
		}
	}
	var ours []source
	seen := map[string]bool{}
	for _, s := range all {
		if (s.suite != suite && !strings.HasPrefix(s.suite, suite+"-")) || !slices.Contains(s.components, "main") || seen[s.uri+s.suite] {
			continue
		}
		seen[s.uri+s.suite] = true
		s.components = []string{"main"}
		ours = append(ours, s)
	}
	sort.SliceStable(ours, func(i, j int) bool { return ours[i].suite == suite && ours[j].suite != suite })
	if len(ours) == 0 || ours[0].suite != suite {
		return nil, fmt.Errorf("no entry for Debian %s with component main in %s/sources.list*", suite, etcApt)
	}
	return ours, nil
}

// parseOneLine reads the classic "deb [options] uri suite components" format.
func parseOneLine(text string) []source {
	var out []source
	sc := bufio.NewScanner(strings.NewReader(text))
	for sc.Scan() {
		line, _, _ := strings.Cut(sc.Text(), "#")
		rest, ok := strings.CutPrefix(strings.TrimSpace(line), "deb ")
		if !ok {
			continue
		}
		rest = strings.TrimSpace(rest)
		if strings.HasPrefix(rest, "[") {
			_, rest, ok = strings.Cut(rest, "]")
			if !ok {
				continue
			}
		}
		f := strings.Fields(rest)
		if len(f) < 3 {
			continue
		}
		out = append(out, source{uri: f[0], suite: f[1], components: f[2:]})
	}
	return out
}

// parseDeb822 reads stanzas of "Field: value" lines; a value goes on in lines that
// start with white space.
func parseDeb822(text string) []source {
	var out []source
	fields := map[string]string{}
	last := ""
	flush := func() {
		if slices.Contains(strings.Fields(fields["types"]), "deb") && !strings.EqualFold(fields["enabled"], "no") {
			for u := range strings.FieldsSeq(fields["uris"]) {
				for s := range strings.FieldsSeq(fields["suites"]) {
					out = append(out, source{uri: u, suite: s, components: strings.Fields(fields["components"])})
				}
			}
		}
		fields, last = map[string]string{}, ""
	}
	sc := bufio.NewScanner(strings.NewReader(text))
	for sc.Scan() {
		line := sc.Text()
		switch {
		case strings.HasPrefix(line, "#"):
		case strings.TrimSpace(line) == "":
			flush()
		case line[0] == ' ' || line[0] == '\t':
			fields[last] += " " + strings.TrimSpace(line)
		default:
			name, value, _ := strings.Cut(line, ":")
			last = strings.ToLower(strings.TrimSpace(name))
			fields[last] = strings.TrimSpace(value)
		}
	}
	flush()
	return out
}

// hostPackages are what this room needs on the computer itself. The lab's own needs
// come with Options.ExtraPackages.
func hostPackages() []string {
	return []string{
		"debootstrap", "systemd-container", // roots, machines
		"iproute2", "iptables", "nftables", // the lab's network
		"gcc", "libc6-dev", "pkg-config", "libseccomp-dev", // runc is the one cgo program
	}
}

// installHostPackages installs what is missing of the packages, and nothing else.
func (m *maker) installHostPackages(ctx context.Context) error {
	missing, err := missingPackages(ctx, append(hostPackages(), m.extra...))
	if err != nil || len(missing) == 0 {
		return err
	}
	if os.Geteuid() != 0 {
		return fmt.Errorf("these Debian packages are missing, and only root can install them: %s", strings.Join(missing, " "))
	}
	m.logf("packages: installing %s", strings.Join(missing, " "))
	env := append(os.Environ(), "DEBIAN_FRONTEND=noninteractive", "NEEDRESTART_MODE=l", "LC_ALL=C")
	install := command{step: "packages", env: env, args: append([]string{
		"apt-get", "install", "-y", "-q", "--no-install-recommends",
		// Another apt (a timer's, say) may hold the lock for a while.
		"-o", "DPkg::Lock::Timeout=300",
	}, missing...)}
	if err := m.run(ctx, install); err == nil {
		return nil
	}
	// Most often the lists are missing or old. A third-party source that does not
	// answer must not stop us: the install says whether it was needed.
	update := command{step: "packages", env: env, args: []string{"apt-get", "update", "-q", "-o", "DPkg::Lock::Timeout=300"}}
	if err := m.run(ctx, update); err != nil {
		m.logf("packages: apt-get update had errors, going on: see %s", filepath.Join(m.dir, "log", "packages.log"))
	}
	return m.run(ctx, install)
}

// missingPackages returns those that dpkg does not call installed.
func missingPackages(ctx context.Context, want []string) ([]string, error) {
	out, err := output(ctx, "dpkg-query", "--show", "--showformat=${binary:Package} ${db:Status-Abbrev}\n")
	if err != nil {
		return nil, err
	}
	have := map[string]bool{}
	for line := range strings.Lines(out) {
		name, status, _ := strings.Cut(strings.TrimSpace(line), " ")
		name, _, _ = strings.Cut(name, ":") // libseccomp-dev:amd64
		have[name] = have[name] || strings.HasPrefix(status, "ii") || strings.HasPrefix(status, "hi")
	}
	var missing []string
	for _, name := range want {
		if !have[name] {
			missing = append(missing, name)
		}
	}
	return missing, nil
}
