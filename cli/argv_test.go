package cli

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	ucli "github.com/urfave/cli/v2"
	"pgregory.net/rapid"
)

// sample is a small tree with what hk's own has: a leaf, a group, a remote
// command.
func sample() []*ucli.Command {
	return []*ucli.Command{
		{
			Name: "build", ArgsUsage: "TARGET…",
			Flags: []ucli.Flag{boolFlag("force", ""), outputFlag(), &ucli.IntFlag{Name: "jobs"}, verboseFlag()},
		},
		{Name: "etcd", Subcommands: []*ucli.Command{
			{Name: "members", Flags: []ucli.Flag{outputFlag()}},
			{Name: "snapshot", Subcommands: []*ucli.Command{{Name: "save", Flags: []ucli.Flag{outputFlag(), stringFlag("file", "", "")}}}},
		}},
		{Name: "ssh", ArgsUsage: "CLUSTER/HOST [-- CMD]", Flags: []ucli.Flag{verboseFlag()}},
	}
}

func TestArrange(t *testing.T) {
	for _, tc := range []struct{ in, want string }{
		{"build demo --force", "build --force demo"},
		{"build --force demo", "build --force demo"},
		{"--force build demo", "build --force demo"},
		{"-o json build demo -v", "build -o json -v demo"},
		{"build demo -o=json demo:etcd-setup", "build -o=json demo demo:etcd-setup"},
		{"build demo --jobs 3 --force", "build --jobs 3 --force demo"},
		{"build --jobs -1 demo", "build --jobs -1 demo"},
		{"build h", "build h"},
		{"build -- --force", "build -- --force"},
		{"etcd -o json snapshot save demo", "etcd snapshot save -o json demo"},
		{"etcd snapshot save demo --file x", "etcd snapshot save --file x demo"},
		{"ssh demo/master-1 -v -- ls -la --force", "ssh -v demo/master-1 -- ls -la --force"},
		{"ssh demo/master-1 --", "ssh demo/master-1 --"},
		{"build - demo", "build - demo"},
	} {
		c, err := arrange(sample(), strings.Fields(tc.in))
		if err != nil {
			t.Errorf("arrange(%q): %v", tc.in, err)
			continue
		}
		if got := strings.Join(c.argv, " "); got != tc.want {
			t.Errorf("arrange(%q) = %q, want %q", tc.in, got, tc.want)
		}
	}
}

func TestArrangeRefuses(t *testing.T) {
	for _, tc := range []struct{ in, msg, hint string }{
		{"biuld demo", "unknown command `hk biuld`", "did you mean `hk build`?"},
		{"etcd snap save", "unknown command `hk etcd snap`", "did you mean `hk etcd snapshot`?"},
		{"frobnicate", "unknown command `hk frobnicate`", "see hk help"},
		{"build demo --froce", "unknown flag --froce for `hk build`", "did you mean --force?"},
		{"etcd members demo --force", "unknown flag --force for `hk etcd members`", "it is a flag of hk build"},
		{"build demo --jobs", "flag --jobs needs a value", "see hk build --help"},
		{"build --jobs --force demo", "flag --jobs needs a value", "see hk build --help"},
		{"build --jobs -- demo", "flag --jobs needs a value", "see hk build --help"},
		{"ssh demo/master-1 ls -la", "unknown flag -la for `hk ssh`", "put `--` before the command to run: hk ssh … -- CMD"},
		{"--force", "unknown flag --force for `hk`", "it is a flag of hk build"},
	} {
		_, err := arrange(sample(), strings.Fields(tc.in))
		if err == nil || !isUsage(err) {
			t.Errorf("arrange(%q): error %v, want a usage error", tc.in, err)
			continue
		}
		if got := err.Error(); got != tc.msg {
			t.Errorf("arrange(%q): %q, want %q", tc.in, got, tc.msg)
		}
		if got := hintsOf(err); len(got) != 1 || got[0] != tc.hint {
			t.Errorf("arrange(%q): hints %q, want %q", tc.in, got, tc.hint)
		}
	}
}

func TestArrangeHelp(t *testing.T) {
	for _, in := range []string{"build demo --help", "-h build", "build -h --froce", "--help etcd snapshot save"} {
		c, err := arrange(sample(), strings.Fields(in))
		if err != nil || !c.help {
			t.Errorf("arrange(%q): help %v, error %v", in, c.help, err)
		}
	}
	if c, err := arrange(sample(), []string{"--version"}); err != nil || !c.ver {
		t.Errorf("--version: %v %v", c.ver, err)
	}
}

// A flag name must mean the same on every command: arrange decides whether it
// takes a value before it knows the command.
func TestFlagsAgree(t *testing.T) {
	a := &app{}
	arity := map[string]bool{}
	var walk func(cmds []*ucli.Command)
	walk = func(cmds []*ucli.Command) {
		for _, c := range cmds {
			for _, f := range c.Flags {
				for _, n := range f.Names() {
					if was, ok := arity[n]; ok && was != takesValue(f) {
						t.Errorf("flag %s of %s takes a value here and not elsewhere, or the reverse", n, c.Name)
					}
					arity[n] = takesValue(f)
				}
			}
			if len(c.Subcommands) > 0 && len(c.Flags) > 0 {
				t.Errorf("group %s has flags of its own", c.Name)
			}
			walk(c.Subcommands)
		}
	}
	walk(a.commands())
}

// Any order of the same words means the same, and arranging twice changes
// nothing.
func TestArrangeAnyOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		flags := rapid.SliceOfNDistinct(rapid.SampledFrom([][]string{
			{"--force"}, {"-o", "json"}, {"--jobs=4"}, {"-v"},
		}), 0, 4, func(f []string) string { return f[0] }).Draw(t, "flags")
		args := rapid.SliceOfN(rapid.StringMatching(`[a-z][a-z:./*-]{0,8}`), 0, 3).Draw(t, "args")
		want, err := arrange(sample(), slices.Concat([]string{"build"}, slices.Concat(flags...), args))
		if err != nil {
			t.Fatal(err)
		}
		seed := rapid.Uint64().Draw(t, "seed")
		words := mix(rand.New(rand.NewPCG(seed, 1)), flags, slices.Concat([]string{"build"}, args))
		got, err := arrange(sample(), words)
		if err != nil {
			t.Fatalf("%q: %v", words, err)
		}
		if !slices.Equal(got.argv, want.argv) || !slices.Equal(got.pos, args) {
			t.Fatalf("%q: %q, want %q", words, got.argv, want.argv)
		}
		again, err := arrange(sample(), got.argv)
		if err != nil || !slices.Equal(again.argv, got.argv) {
			t.Fatalf("not idempotent: %q then %q (%v)", got.argv, again.argv, err)
		}
	})
}

// mix interleaves flags with words, keeping the order of each.
func mix(r *rand.Rand, flags [][]string, words []string) []string {
	var out []string
	for len(flags)+len(words) > 0 {
		if len(words) == 0 || len(flags) > 0 && r.IntN(2) == 0 {
			out = append(out, flags[0]...)
			flags = flags[1:]
		} else {
			out = append(out, words[0])
			words = words[1:]
		}
	}
	return out
}

func FuzzArrange(f *testing.F) {
	for _, s := range []string{"build demo --force", "--jobs\x00build", "ssh a/b\x00--\x00ls\x00-la", "etcd\x00snapshot\x00save\x00-o", "-o\x00\x00-\x00--=x"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		words := strings.Split(s, "\x00")
		c, err := arrange(sample(), words)
		if err != nil {
			if !isUsage(err) {
				t.Fatalf("%q: %v is not a usage error", words, err)
			}
			return
		}
		if c.help || c.ver {
			return
		}
		again, err := arrange(sample(), c.argv)
		if err != nil {
			t.Fatalf("%q arranged to %q, which is refused: %v", words, c.argv, err)
		}
		if !slices.Equal(again.argv, c.argv) || !slices.Equal(again.pos, c.pos) || !slices.Equal(again.rest, c.rest) {
			t.Fatalf("%q: %q then %q", words, c.argv, again.argv)
		}
	})
}
