package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// access is how to reach a project of the Hetzner Cloud.
type access struct {
	token, endpoint string
	hint            string // where the token came from, for errors
}

// hetznerAccess finds the token as the hcloud program does: HCLOUD_TOKEN,
// HCLOUD_TOKEN_FILE, then the context HCLOUD_CONTEXT (or the active one) of its
// cli.toml. The token itself is in no message.
func (a *app) hetznerAccess() (access, error) {
	acc := access{endpoint: strings.TrimSpace(a.getenv("HCLOUD_ENDPOINT"))}
	refuse := func(hint, format string, args ...any) (access, error) {
		return access{}, &exitError{code: ExitCloud, class: classCloud, err: fmt.Errorf(format, args...), hint: hint}
	}
	if t := a.getenv("HCLOUD_TOKEN"); strings.TrimSpace(t) != "" {
		acc.token, acc.hint = strings.TrimSpace(t), "the token is the one in HCLOUD_TOKEN"
		return acc, nil
	}
	if f := a.getenv("HCLOUD_TOKEN_FILE"); f != "" {
		data, err := os.ReadFile(f)
		if err != nil {
			return refuse("HCLOUD_TOKEN_FILE names a file with the project's token", "reading the token: %w", err)
		}
		acc.token, acc.hint = strings.TrimSpace(string(data)), "the token is the one in "+f
		if acc.token == "" {
			return refuse("put the project's token into it", "token file %s is empty", f)
		}
		return acc, nil
	}
	file := a.hcloudConfig()
	data, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return refuse("set HCLOUD_TOKEN (or HCLOUD_TOKEN_FILE) to the token of the project; the hcloud program's contexts work too",
			"no token for the Hetzner Cloud")
	}
	if err != nil {
		return refuse("set HCLOUD_TOKEN instead", "reading the token: %w", err)
	}
	active, contexts := parseHcloudConfig(string(data))
	if c := a.getenv("HCLOUD_CONTEXT"); c != "" {
		active = c
	}
	token, ok := contexts[active]
	if !ok || token == "" {
		return refuse("hcloud context list shows those there are, HCLOUD_CONTEXT names one", "context %q has no token in %s", active, file)
	}
	acc.token, acc.hint = token, fmt.Sprintf("the token is the one of context %s in %s", active, file)
	return acc, nil
}

// hcloudConfig is where the hcloud program keeps its contexts.
func (a *app) hcloudConfig() string {
	if f := a.getenv("HCLOUD_CONFIG"); f != "" {
		return f
	}
	if x := a.getenv("XDG_CONFIG_HOME"); filepath.IsAbs(x) {
		return filepath.Join(x, "hcloud", "cli.toml")
	}
	return filepath.Join(a.getenv("HOME"), ".config", "hcloud", "cli.toml")
}

// parseHcloudConfig reads the two things hk wants of cli.toml: the active
// context and each context's token. The file is written by a program in a fixed
// form, which this reads line by line; anything else in it is skipped.
func parseHcloudConfig(text string) (active string, tokens map[string]string) {
	tokens = map[string]string{}
	section, name, token := "", "", ""
	keep := func() {
		if name != "" {
			tokens[name] = token
		}
		name, token = "", ""
	}
	for line := range strings.SplitSeq(text, "\n") {
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, "[") {
			if strings.HasPrefix(line, "[[") {
				keep()
			}
			section = strings.Trim(line, "[] ")
			continue
		}
		key, value, ok := strings.Cut(line, "=")
		if !ok || strings.HasPrefix(line, "#") {
			continue
		}
		key, value = strings.TrimSpace(key), tomlString(value)
		switch {
		case section == "" && key == "active_context":
			active = value
		case section == "contexts" && key == "name":
			name = value
		case section == "contexts" && key == "token":
			token = value
		}
	}
	keep()
	return active, tokens
}

// tomlString takes the quotes off a TOML string.
func tomlString(s string) string {
	s = strings.TrimSpace(s)
	if len(s) < 2 {
		return s
	}
	q := s[0]
	if q != '"' && q != '\'' {
		return s
	}
	if i := strings.IndexByte(s[1:], q); i >= 0 {
		return s[1 : 1+i]
	}
	return s
}
