package kubenode

import (
	"slices"
	"strings"

	"hk/remote"
)

// JobError explains a failed run of kubeadm by its own words. What its
// preflight refuses it will refuse again; everything else may have been a bad
// moment.
func JobError(host, op string, r *remote.JobResult) error {
	if r.Code == 0 {
		return nil
	}
	text := reasons(string(r.Stderr))
	if text == "" {
		text = LastLines(string(r.Stdout), 8)
	}
	return &remote.HostError{
		Host: host, Op: op, Code: r.Code, Stderr: text,
		Again: !strings.Contains(string(r.Stderr), "preflight checks failed"),
	}
}

// reasons are the lines of kubeadm that say why it stopped, without the many
// warnings around them; the last lines if there are none.
func reasons(stderr string) string {
	var out []string
	for line := range strings.Lines(stderr) {
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, "[ERROR ") || strings.HasPrefix(line, "error") {
			out = append(out, line)
		}
	}
	if len(out) == 0 {
		return LastLines(stderr, 8)
	}
	return strings.Join(slices.Compact(out), "\n")
}

// LastLines are the last n lines of a text.
func LastLines(s string, n int) string {
	lines := strings.Split(strings.TrimSpace(s), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}
