package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"

	"github.com/google/renameio/v2"
	"github.com/rs/zerolog"
	ucli "github.com/urfave/cli/v2"

	"hk/cli/ui"
	"hk/remote/lab"
	"hk/remote/lab/image"
)

func (a *app) cmdLab() *ucli.Command {
	return &ucli.Command{
		Name: "lab", Category: catLab, Usage: "a Hetzner Cloud of real Linux machines on this computer",
		Description: "The lab answers the Hetzner Cloud API on the loopback address; its servers are real machines\n" +
			"(systemd, sshd, cloud-init) in namespaces of this computer. It needs Linux and root.",
		Subcommands: []*ucli.Command{
			a.cmdLabUp(), a.cmdLabDown(), a.cmdLabLs(), a.cmdLabDoctor(), a.cmdLabFaults(), a.cmdLabServe(), a.cmdLabLB(),
		},
	}
}

func labName(args []string) string {
	if len(args) > 0 {
		return args[0]
	}
	return lab.DefaultName
}

func (a *app) labOptions(name string) lab.Options {
	return lab.Options{Name: name, HomeDir: a.getenv("HK_LAB_HOME"), Log: func(l string) { fmt.Fprintln(a.Err, l) }}
}

// labError gives the lab's errors their exit codes.
func labError(name string, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, lab.ErrUnsupported):
		return &exitError{code: ExitFailed, class: classState, err: err, hint: "`cloud: sim` in the config builds the same cluster in memory, without root"}
	case errors.Is(err, lab.ErrNotFound):
		return &exitError{code: ExitUsage, class: classConfig, err: fmt.Errorf("lab %q: %w", name, err), hint: "hk lab ls lists the labs, hk lab up makes one"}
	}
	return err
}

func (a *app) cmdLabUp() *ucli.Command {
	return &ucli.Command{
		Name: "up", Usage: "bring a lab up; the first time prepares machine images and artifacts", ArgsUsage: "[LAB]",
		Description: "What is prepared is cached under the XDG cache directory; stopping and repeating is safe.",
		UsageText:   "hk lab up\nhk lab up --latency hetzner slow",
		Flags: []ucli.Flag{
			stringFlag("latency", "none", "`SPEED` of server actions: none or hetzner"),
			stringFlag("kubectl", "", "leave a kubectl of the prepared version at `FILE`"),
			boolFlag("skip-prepare", "start on what is in the cache already"),
			outputFlag(), quietFlag(),
		},
		Action: func(c *ucli.Context) error {
			args, err := a.wantArgs(0, 1)
			if err != nil {
				return err
			}
			f, err := outputForm(c)
			if err != nil {
				return err
			}
			o := a.labOptions(labName(args))
			o.Latency, o.SkipPrepare = c.String("latency"), c.Bool("skip-prepare")
			if c.Bool("quiet") {
				o.Log = nil
			}
			in, err := lab.Up(c.Context, o)
			if err != nil {
				return labError(o.Name, err)
			}
			if to := c.String("kubectl"); to != "" {
				if err := leaveKubectl(c.Context, o.Log, to); err != nil {
					return err
				}
			}
			return a.printLab(f, in)
		},
	}
}

// leaveKubectl copies the prepared kubectl to a file, unless it is there.
func leaveKubectl(ctx context.Context, log func(string), to string) error {
	set, err := image.Prepare(ctx, image.Options{Log: log})
	if err != nil {
		return fmt.Errorf("preparing kubectl: %w", err)
	}
	from, err := os.Open(set.Kubectl)
	if err != nil {
		return err
	}
	defer func() { _ = from.Close() }() // read only
	if same(from, to) {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil { //nolint:gosec // a folder for programs, bin
		return err
	}
	p, err := renameio.NewPendingFile(to, renameio.WithPermissions(0o755))
	if err != nil {
		return err
	}
	defer func() { _ = p.Cleanup() }() // does nothing once replaced
	if _, err := io.Copy(p, from); err != nil {
		return err
	}
	return p.CloseAtomicallyReplace()
}

// same reports whether a copy has the size and is as new as the original.
func same(from *os.File, to string) bool {
	a, err1 := from.Stat()
	b, err2 := os.Stat(to)
	return err1 == nil && err2 == nil && a.Size() == b.Size() && !b.ModTime().Before(a.ModTime())
}

func (a *app) printLab(f form, in *lab.Info) error {
	if f == asJSON {
		return a.printJSON(struct {
			V int `json:"v"`
			*lab.Info
		}{1, in})
	}
	fmt.Fprintf(a.Out, "# lab %s is up, %s\nexport HCLOUD_ENDPOINT=%s HCLOUD_TOKEN=%s\n", in.Name, plural(in.Servers, "server"), in.Endpoint, in.Token)
	return nil
}

// printJSON writes one JSON value as the answer.
func (a *app) printJSON(v any) error {
	enc := json.NewEncoder(a.Out)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}

func (a *app) cmdLabDown() *ucli.Command {
	return &ucli.Command{
		Name: "down", Usage: "remove a lab with all its machines", ArgsUsage: "[LAB]",
		Description: "Works on whatever is left of a lab. Machines in it are lost; what was prepared stays cached.",
		UsageText:   "hk lab down\nhk lab down slow --confirm slow",
		Flags:       []ucli.Flag{confirmFlag(), quietFlag()},
		Action: func(c *ucli.Context) error {
			args, err := a.wantArgs(0, 1)
			if err != nil {
				return err
			}
			o := a.labOptions(labName(args))
			in, there := lab.Lookup(o.HomeDir, o.Name)
			if there == nil && in.Servers > 0 {
				q := fmt.Sprintf("lab %s has %s; they and their disks are lost", o.Name, plural(in.Servers, "server"))
				if err := a.confirmLoss(c, o.Name, q); err != nil {
					return err
				}
			}
			if c.Bool("quiet") {
				o.Log = nil
			}
			if err := lab.Down(c.Context, o); err != nil {
				return labError(o.Name, err)
			}
			// Whatever a lab left that cannot be read any more was looked for too.
			said := "lab " + o.Name + " is gone"
			if there != nil {
				said = "there is no lab " + o.Name
			}
			if !c.Bool("quiet") {
				fmt.Fprintln(a.Out, said)
			}
			return nil
		},
	}
}

func (a *app) cmdLabLs() *ucli.Command {
	return &ucli.Command{
		Name: "ls", Usage: "list labs", UsageText: "hk lab ls\nhk lab ls -o json", Flags: []ucli.Flag{outputFlag()},
		Action: func(c *ucli.Context) error {
			if _, err := a.wantArgs(0, 0); err != nil {
				return err
			}
			f, err := outputForm(c)
			if err != nil {
				return err
			}
			labs, err := lab.List(a.getenv("HK_LAB_HOME"))
			if err != nil {
				return err
			}
			if f == asJSON {
				if labs == nil {
					labs = []lab.Info{}
				}
				return a.printJSON(map[string]any{"v": 1, "labs": labs})
			}
			t := ui.NewTable("LAB", "STATE", "SERVERS", "LATENCY", "ENDPOINT", "DIRECTORY")
			for _, in := range labs {
				state := "stopped"
				if in.Running {
					state = "running"
				}
				t.Row(in.Name, state, in.Servers, in.Latency, in.Endpoint, in.Dir)
			}
			t.Write(a.Out)
			return nil
		},
	}
}

func (a *app) cmdLabDoctor() *ucli.Command {
	return &ucli.Command{
		Name: "doctor", Usage: "compare what a lab remembers with what there is", ArgsUsage: "[LAB]",
		Description: "Exit code 1 if something differs.",
		UsageText:   "hk lab doctor", Flags: []ucli.Flag{outputFlag()},
		Action: func(c *ucli.Context) error {
			args, err := a.wantArgs(0, 1)
			if err != nil {
				return err
			}
			f, err := outputForm(c)
			if err != nil {
				return err
			}
			name := labName(args)
			found, err := lab.Doctor(c.Context, a.labOptions(name))
			if err != nil {
				return labError(name, err)
			}
			if f == asJSON {
				if found == nil {
					found = []lab.Finding{}
				}
				err = a.printJSON(map[string]any{"v": 1, "lab": name, "findings": found})
			} else {
				for _, d := range found {
					fmt.Fprintf(a.Out, "%s: %s: %s\n", d.Kind, d.Object, d.Detail)
				}
				if len(found) == 0 {
					fmt.Fprintf(a.Out, "lab %s: nothing found\n", name)
				}
			}
			if err == nil && len(found) > 0 {
				return fmt.Errorf("lab %s: %d differences", name, len(found))
			}
			return err
		},
	}
}

func (a *app) cmdLabFaults() *ucli.Command {
	return &ucli.Command{
		Name: "faults", Usage: "make a lab's API misbehave, for tests",
		Subcommands: []*ucli.Command{a.cmdFaultsAdd(), a.cmdFaultsLs(), a.cmdFaultsRm()},
	}
}

func (a *app) cmdFaultsAdd() *ucli.Command {
	return &ucli.Command{
		Name: "add", Usage: "add a fault", ArgsUsage: "MATCH",
		Description: "MATCH is a regular expression over \"METHOD /path\". Without --nth or --every the first match is hit.",
		UsageText: "hk lab faults add 'POST /v1/servers' --nth 2 --lost\n" +
			"hk lab faults add 'POST .*' --every --status 503 --code unavailable",
		Flags: []ucli.Flag{
			&ucli.IntFlag{Name: "nth", Value: 1, Usage: "hit only the `N`th match"},
			boolFlag("every", "hit every match"),
			&ucli.IntFlag{Name: "status", Usage: "answer with HTTP `STATUS`"},
			stringFlag("code", "", "answer with the API's error `CODE`"),
			boolFlag("reset", "reset the connection, nothing done"),
			boolFlag("lost", "do it, then reset the connection"),
			&ucli.IntFlag{Name: "delay", Usage: "wait `MS` milliseconds first"},
			labFlag(), outputFlag(),
		},
		Action: func(c *ucli.Context) error {
			args, err := a.wantArgs(1, 1)
			if err != nil {
				return err
			}
			in, f, err := a.runningLab(c)
			if err != nil {
				return err
			}
			ft := lab.Fault{
				Match: args[0], Every: c.Bool("every"), Status: c.Int("status"), Code: c.String("code"),
				Reset: c.Bool("reset"), Lost: c.Bool("lost"), DelayMS: c.Int("delay"),
			}
			if !ft.Every {
				ft.Nth = c.Int("nth")
			}
			if ft.Status == 0 && ft.Code == "" && !ft.Reset && !ft.Lost && ft.DelayMS == 0 {
				return usagef("add --status, --code, --reset, --lost or --delay", "the fault does nothing")
			}
			ft, err = lab.AddFault(c.Context, in, ft)
			if err != nil {
				return err
			}
			if f == asJSON {
				return a.printJSON(struct {
					V int `json:"v"`
					lab.Fault
				}{1, ft})
			}
			fmt.Fprintf(a.Out, "fault %d added\n", ft.ID)
			return nil
		},
	}
}

func (a *app) cmdFaultsLs() *ucli.Command {
	return &ucli.Command{
		Name: "ls", Usage: "list faults", UsageText: "hk lab faults ls", Flags: []ucli.Flag{labFlag(), outputFlag()},
		Action: func(c *ucli.Context) error {
			if _, err := a.wantArgs(0, 0); err != nil {
				return err
			}
			in, f, err := a.runningLab(c)
			if err != nil {
				return err
			}
			list, err := lab.Faults(c.Context, in)
			if err != nil {
				return err
			}
			if f == asJSON {
				if list == nil {
					list = []lab.Fault{}
				}
				return a.printJSON(map[string]any{"v": 1, "faults": list})
			}
			t := ui.NewTable("ID", "MATCH", "WHEN", "EFFECT", "SEEN", "HITS")
			for _, ft := range list {
				t.Row(ft.ID, ft.Match, faultWhen(&ft), faultEffect(&ft), ft.Seen, ft.Hits)
			}
			t.Write(a.Out)
			return nil
		},
	}
}

func faultWhen(f *lab.Fault) string {
	if f.Every {
		return "every match"
	}
	return "match " + strconv.Itoa(f.Nth)
}

func faultEffect(f *lab.Fault) string {
	s := ""
	if f.DelayMS > 0 {
		s += fmt.Sprintf("%d ms, ", f.DelayMS)
	}
	switch {
	case f.Reset:
		s += "connection reset"
	case f.Lost:
		s += "done, answer lost"
	case f.Status != 0 || f.Code != "":
		s += fmt.Sprintf("%d %s", f.Status, f.Code)
	default:
		s += "then as usual"
	}
	return s
}

func (a *app) cmdFaultsRm() *ucli.Command {
	return &ucli.Command{
		Name: "rm", Usage: "remove a fault, or all of them", ArgsUsage: "ID|all", UsageText: "hk lab faults rm 3\nhk lab faults rm all",
		Flags: []ucli.Flag{labFlag(), outputFlag()},
		Action: func(c *ucli.Context) error {
			args, err := a.wantArgs(1, 1)
			if err != nil {
				return err
			}
			var id int64
			if args[0] != "all" {
				if id, err = strconv.ParseInt(args[0], 10, 64); err != nil || id < 1 {
					return usagef("hk lab faults ls lists them", "%q is not a fault's number", args[0])
				}
			}
			in, _, err := a.runningLab(c)
			if err != nil {
				return err
			}
			return lab.RemoveFault(c.Context, in, id)
		},
	}
}

func (a *app) runningLab(c *ucli.Context) (*lab.Info, form, error) {
	f, err := outputForm(c)
	if err != nil {
		return nil, "", err
	}
	name := c.String("lab")
	if name == "" {
		name = lab.DefaultName
	}
	in, err := lab.Lookup(a.getenv("HK_LAB_HOME"), name)
	if err != nil {
		return nil, "", labError(name, err)
	}
	if !in.Running {
		return nil, "", &exitError{code: ExitCloud, class: classCloud, err: fmt.Errorf("lab %s is not running", name), hint: "hk lab up " + name}
	}
	return in, f, nil
}

// cmdLabServe is the daemon `hk lab up` starts.
func (a *app) cmdLabServe() *ucli.Command {
	return &ucli.Command{
		Name: "serve", Hidden: true, Usage: "the lab's daemon", ArgsUsage: "LAB",
		Flags: []ucli.Flag{stringFlag("latency", "", "`SPEED` of server actions"), stringFlag("cache", "", "cache `DIR`")},
		Action: func(c *ucli.Context) error {
			args, err := a.wantArgs(1, 1)
			if err != nil {
				return err
			}
			o := a.labOptions(args[0])
			o.Latency, o.CacheDir = c.String("latency"), c.String("cache")
			// Nobody watches a daemon: its log says when.
			daemon := zerolog.New(a.Err).With().Timestamp().Logger()
			o.Log = func(l string) { daemon.Info().Msg(l) }
			if err := lab.Serve(c.Context, o); err != nil && !errors.Is(err, context.Canceled) {
				return err
			}
			return nil
		},
	}
}

// cmdLabLB is one load balancer's proxy.
func (a *app) cmdLabLB() *ucli.Command {
	return &ucli.Command{
		Name: "lb", Hidden: true, Usage: "a load balancer of a lab", ArgsUsage: "DIR",
		Action: func(c *ucli.Context) error {
			args, err := a.wantArgs(1, 1)
			if err != nil {
				return err
			}
			if err := lab.ServeLB(c.Context, args[0]); err != nil && !errors.Is(err, context.Canceled) {
				return err
			}
			return nil
		},
	}
}
