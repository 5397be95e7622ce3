package cli

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	ucli "github.com/urfave/cli/v2"
)

// completeWord is the hidden first word the shells' scripts call hk with,
// followed by the words typed, the last of which is being completed.
const completeWord = "__complete"

// The library's own bash script keeps words with `:` whole and never trims the
// candidates, so `hk build demo:et<TAB>` would repeat the cluster's name; this
// one ends in __ltrim_colon_completions. Candidates come from files alone: no
// lock, no network.
const bashScript = `# hk completion for bash; load it with:  source <(hk completion bash)
_hk() {
  local cur words cword
  if declare -F _get_comp_words_by_ref >/dev/null; then
    _get_comp_words_by_ref -n : cur words cword
  else
    cur=${COMP_WORDS[COMP_CWORD]} words=("${COMP_WORDS[@]}") cword=$COMP_CWORD
  fi
  local IFS=$'\n'
  COMPREPLY=($(compgen -W "$(hk __complete "${words[@]:1:cword}" 2>/dev/null)" -- "$cur"))
  if [[ ${#COMPREPLY[@]} -eq 1 && ${COMPREPLY[0]} == *[:/] ]]; then
    compopt -o nospace
  fi
  if declare -F __ltrim_colon_completions >/dev/null; then
    __ltrim_colon_completions "$cur"
  fi
}
complete -o default -F _hk hk
`

const zshScript = `#compdef hk
# hk completion for zsh; load it with:  source <(hk completion zsh)
_hk() {
  local -a candidates
  candidates=("${(@f)$(hk __complete "${(@)words[2,CURRENT]}" 2>/dev/null)}")
  compadd -S '' -- "${(@)candidates:#}"
}
compdef _hk hk
`

func (a *app) cmdCompletion() *ucli.Command {
	return &ucli.Command{
		Name: "completion", Category: catSelf, Usage: "completion script for bash or zsh", ArgsUsage: "bash|zsh",
		UsageText: "source <(hk completion bash)\nhk completion zsh >\"${fpath[1]}/_hk\"",
		Action: func(*ucli.Context) error {
			args, err := a.wantArgs(1, 1)
			if err != nil {
				return err
			}
			switch args[0] {
			case "bash":
				fmt.Fprint(a.Out, bashScript)
			case "zsh":
				fmt.Fprint(a.Out, zshScript)
			default:
				return usagef("bash and zsh are known", "no completion for shell %q", args[0])
			}
			return nil
		},
	}
}

// complete prints the candidates for the last word, one a line.
func (a *app) complete(words []string) {
	cur := ""
	if len(words) > 0 {
		cur = words[len(words)-1]
		words = words[:len(words)-1]
	}
	cmds := a.commands()
	for _, c := range a.candidates(cmds, words, cur) {
		if strings.HasPrefix(c, cur) {
			fmt.Fprintln(a.Out, c)
		}
	}
}

func (a *app) candidates(cmds []*ucli.Command, words []string, cur string) []string {
	if slices.Contains(words, "--") {
		return nil
	}
	arity := flagArity(cmds)
	subs := cmds
	var leaf *ucli.Command
	for i := 0; i < len(words); i++ {
		w := words[i]
		if len(w) > 1 && w[0] == '-' {
			f, last := takeFlag(words, i, arity)
			if f.bare && i == len(words)-1 {
				return flagValues(f.name)
			}
			i = last
			continue
		}
		if len(subs) == 0 {
			continue
		}
		k := slices.IndexFunc(subs, func(c *ucli.Command) bool { return c.HasName(w) })
		if k < 0 {
			return nil
		}
		leaf, subs = subs[k], subs[k].Subcommands
	}
	switch {
	case strings.HasPrefix(cur, "-"):
		return flagCandidates(leaf)
	case len(subs) > 0:
		return visibleNames(subs)
	case leaf != nil:
		return a.argCandidates(leaf, cur)
	}
	return nil
}

func flagCandidates(c *ucli.Command) []string {
	out := []string{"--help"}
	if c == nil {
		return append(out, "--version")
	}
	for _, f := range c.Flags {
		if !hiddenFlag(f) {
			out = append(out, "--"+f.Names()[0])
		}
	}
	slices.Sort(out)
	return out
}

func flagValues(name string) []string {
	switch name {
	case "output", "o":
		return []string{"json", "text"}
	case "verify":
		return []string{"full", "off", "quick"}
	case "format":
		return []string{"dot", "json", "mermaid", "svg", "text"}
	case "cloud":
		return []string{"hetzner", "lab", "sim"}
	case "for":
		return []string{"gone", "phase=", "ready"}
	}
	return nil
}

// argCandidates completes clusters, then what may follow one.
func (a *app) argCandidates(c *ucli.Command, cur string) []string {
	switch {
	case strings.HasPrefix(c.ArgsUsage, "TARGET"), strings.HasPrefix(c.ArgsUsage, "[TARGET"):
		return a.targetCandidates(cur)
	case strings.Contains(c.ArgsUsage, "CLUSTER/HOST"):
		if name, _, ok := strings.Cut(cur, "/"); ok {
			return prefixed(name+"/", a.knownHosts(name))
		}
		return suffixed(a.knownClusters(), "/")
	case strings.Contains(c.ArgsUsage, "CLUSTER"), strings.Contains(c.ArgsUsage, "NAME"):
		return a.knownClusters()
	case c.Name == "completion":
		return []string{"bash", "zsh"}
	case c.Name == "help":
		return append(visibleNames(a.commands()), "tasks")
	}
	return nil
}

func (a *app) targetCandidates(cur string) []string {
	head, _, hasHost := strings.Cut(cur, "/")
	name, kind, hasKind := strings.Cut(head, ":")
	switch {
	case hasHost:
		return prefixed(head+"/", a.knownHosts(name))
	case hasKind:
		phases, parts := kindWords()
		if phase, _, ok := strings.Cut(kind, "."); ok {
			return prefixed(name+":"+phase+".", parts[phase])
		}
		return prefixed(name+":", phases)
	}
	return a.knownClusters()
}

func prefixed(p string, words []string) []string {
	out := make([]string, len(words))
	for i, w := range words {
		out[i] = p + w
	}
	return out
}

func suffixed(words []string, s string) []string {
	out := make([]string, len(words))
	for i, w := range words {
		out[i] = w + s
	}
	return out
}

// knownClusters are those with a config here or credentials in the state
// directory.
func (a *app) knownClusters() []string {
	var out []string
	files, _ := filepath.Glob("*.yaml") // the pattern is a constant and valid
	for _, f := range files {
		name := strings.TrimSuffix(f, ".yaml")
		if wordRE.MatchString(name) && looksLikeConfig(f, name) {
			out = append(out, name)
		}
	}
	if home, err := a.home(); err == nil {
		dirs, _ := os.ReadDir(filepath.Join(home, "clusters")) // none is fine
		for _, d := range dirs {
			if d.IsDir() && wordRE.MatchString(d.Name()) {
				out = append(out, d.Name())
			}
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// looksLikeConfig keeps other YAML files out of the candidates.
func looksLikeConfig(file, name string) bool {
	data, err := os.ReadFile(file)
	return err == nil && strings.Contains("\n"+string(data), "\nname: "+name)
}
