package kubenode

import (
	"strings"

	"hk/remote"
)

// JobError explains a failed job by its last words. What kubeadm's preflight
// refuses it will refuse again; everything else may have been a bad moment.
func JobError(host, op string, r *remote.JobResult) error {
	if r.Code == 0 {
		return nil
	}
	text := LastLines(string(r.Stderr), 12)
	if text == "" {
		text = LastLines(string(r.Stdout), 12)
	}
	return &remote.HostError{
		Host: host, Op: op, Code: r.Code, Stderr: text,
		Again: !strings.Contains(text, "preflight checks failed"),
	}
}

// LastLines are the last n lines of a text.
func LastLines(s string, n int) string {
	lines := strings.Split(strings.TrimSpace(s), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}
