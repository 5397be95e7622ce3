package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestHetznerAccess(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "token")
	write := func(name, text string) string {
		p := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(p), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(p, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return p
	}
	write("token", "  from-file\n")
	write("empty", "\n")
	cfg := write("hcloud/cli.toml", `active_context = "prod"

[[contexts]]
name = "prod"
token = "prod-token" # a remark
[contexts.preferences]
token = "not this one"

[[contexts]]
  name = 'test'
  token = 'test-token'
`)
	for _, tc := range []struct {
		name  string
		env   map[string]string
		token string
		err   string
	}{
		{"variable, trimmed", map[string]string{"HCLOUD_TOKEN": " abc \n", "HCLOUD_TOKEN_FILE": file}, "abc", ""},
		{"blank variable counts as none", map[string]string{"HCLOUD_TOKEN": " ", "HCLOUD_TOKEN_FILE": file}, "from-file", ""},
		{"empty file", map[string]string{"HCLOUD_TOKEN_FILE": filepath.Join(dir, "empty")}, "", "is empty"},
		{"missing file", map[string]string{"HCLOUD_TOKEN_FILE": filepath.Join(dir, "none")}, "", "reading the token"},
		{"active context", map[string]string{"XDG_CONFIG_HOME": dir}, "prod-token", ""},
		{"named context", map[string]string{"HCLOUD_CONFIG": cfg, "HCLOUD_CONTEXT": "test"}, "test-token", ""},
		{"unknown context", map[string]string{"HCLOUD_CONFIG": cfg, "HCLOUD_CONTEXT": "nope"}, "", `context "nope"`},
		{"nothing", map[string]string{"HOME": filepath.Join(dir, "nowhere")}, "", "no token"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			a := &app{getenv: func(k string) string { return tc.env[k] }}
			acc, err := a.hetznerAccess()
			if tc.err == "" && (err != nil || acc.token != tc.token) {
				t.Errorf("token %q, %v; want %q", acc.token, err, tc.token)
			}
			if tc.err != "" && (err == nil || !strings.Contains(err.Error(), tc.err) || judge(err).code != ExitCloud) {
				t.Errorf("error %v, want one with %q and exit 7", err, tc.err)
			}
		})
	}
}
