package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"time"

	ucli "github.com/urfave/cli/v2"

	"hk/cli/ui"
)

func (a *app) cmdHistory() *ucli.Command {
	return &ucli.Command{
		Name: "history", Category: catLook, Usage: "runs of the past, or the tasks of one", ArgsUsage: "[RUN]",
		Description: "RUN is a run's name, the beginning of it, or `last`. Logs of the last five runs that started a\n" +
			"task are kept.",
		UsageText: "hk history\nhk history last\nhk history -o json",
		Flags:     []ucli.Flag{outputFlag()},
		Action: func(c *ucli.Context) error {
			args, err := a.wantArgs(0, 1)
			if err != nil {
				return err
			}
			f, err := outputForm(c)
			if err != nil {
				return err
			}
			home, err := a.home()
			if err != nil {
				return err
			}
			if len(args) == 1 {
				return a.historyOf(home, args[0], f)
			}
			return a.historyAll(home, f)
		},
	}
}

func (a *app) historyAll(home string, f form) error {
	list, err := readHistory(home)
	if err != nil {
		return stateError(home, err)
	}
	if f == asJSON {
		if list == nil {
			list = []historyLine{}
		}
		return a.printJSON(map[string]any{"v": 1, "runs": list})
	}
	t := ui.NewTable("RUN", "CLUSTER", "ENDED", "TOOK", "EXIT", "TASKS", "COMMAND")
	for _, h := range list {
		id := "-"
		if h.RunID != nil {
			id = *h.RunID
		}
		t.Row(id, h.Cluster, runTime(h.Time), ui.Duration(time.Duration(h.WallMS)*time.Millisecond), h.Exit, countText(&h.BuildFinished), h.Command)
	}
	t.Write(a.Out)
	return nil
}

func (a *app) historyOf(home, word string, f form) error {
	id, err := findRun(home, word)
	if err != nil {
		return err
	}
	var tasks []loggedEvent
	err = readRun(home, id, func(_ []byte, e loggedEvent) {
		if e.Event == "task_finished" && e.Attempt > 0 {
			tasks = append(tasks, e)
		}
	})
	if err != nil {
		return stateError(home, err)
	}
	slices.SortStableFunc(tasks, compareFinished)
	if f == asJSON {
		type row struct {
			Task       string        `json:"task"`
			Host       string        `json:"host"`
			Status     string        `json:"status"`
			Reason     string        `json:"reason"`
			Attempt    int           `json:"attempt"`
			DurationMS int64         `json:"duration_ms"`
			Error      *ui.TaskError `json:"error"`
		}
		rows := make([]row, 0, len(tasks))
		for _, e := range tasks {
			rows = append(rows, row{e.Task, e.Host, e.Status, e.Reason, e.Attempt, e.DurationMS, e.Error})
		}
		return a.printJSON(map[string]any{"v": 1, "run_id": id, "tasks": rows})
	}
	t := ui.NewTable("TASK", "STATUS", "TOOK", "ATTEMPTS", "REASON")
	for _, e := range tasks {
		reason := e.Reason
		if e.Error != nil {
			reason = e.Error.Message
		}
		t.Row(e.Task, e.Status, ui.Duration(time.Duration(e.DurationMS)*time.Millisecond), e.Attempt, reason)
	}
	fmt.Fprintf(a.Out, "run %s, longest first\n", id)
	t.Write(a.Out)
	return nil
}

func (a *app) cmdLogs() *ucli.Command {
	return &ucli.Command{
		Name: "logs", Category: catLook, Usage: "events and output of a run", ArgsUsage: "RUN [TASK]",
		Description: "RUN is a run's name, the beginning of it, or `last`. With TASK (etcd-setup.certs/master-1) only\n" +
			"what concerns it.",
		UsageText: "hk logs last\nhk logs last install-masters.control-plane/master-1\nhk logs last -o json",
		Flags:     []ucli.Flag{outputFlag()},
		Action: func(c *ucli.Context) error {
			args, err := a.wantArgs(1, 2)
			if err != nil {
				return err
			}
			f, err := outputForm(c)
			if err != nil {
				return err
			}
			home, err := a.home()
			if err != nil {
				return err
			}
			id, err := findRun(home, args[0])
			if err != nil {
				return err
			}
			task := ""
			if len(args) == 2 {
				task = args[1]
			}
			return a.printLog(home, id, task, f)
		},
	}
}

func (a *app) printLog(home, id, task string, f form) error {
	names, shown := []string{}, false
	err := readRun(home, id, func(raw []byte, e loggedEvent) {
		if e.Task != "" && !slices.Contains(names, e.Task) {
			names = append(names, e.Task)
		}
		if task != "" && e.Task != task {
			return
		}
		shown = true
		if f == asJSON {
			fmt.Fprintf(a.Out, "%s\n", raw)
			return
		}
		if l := logText(e, task != ""); l != "" {
			fmt.Fprintln(a.Out, e.Time.Local().Format("15:04:05.000"), l)
		}
	})
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, os.ErrPermission) {
		return stateError(home, err)
	}
	if err == nil && task != "" && !shown {
		hint := "hk history " + id + " lists its tasks"
		if s := closest(task, names); s != "" {
			hint = "did you mean " + s + "?"
		}
		return usagef(hint, "run %s has nothing of task %q", id, task)
	}
	return err
}

func logText(e loggedEvent, one bool) string {
	who := e.Task + ": "
	if one {
		who = ""
	}
	switch e.Event {
	case "task_started":
		return fmt.Sprintf("%sstarted: %s", who, e.Reason)
	case "task_log":
		return who + "| " + e.Line
	case "task_retry":
		return fmt.Sprintf("%sattempt %d failed: %s", who, e.Attempt, errMessage(e.Error))
	case "task_finished":
		s := fmt.Sprintf("%s%s in %s", who, e.Status, ui.Duration(time.Duration(e.DurationMS)*time.Millisecond))
		if e.Error != nil {
			s += ": " + e.Error.Message
		} else if e.Status != "ran" {
			s = fmt.Sprintf("%s%s: %s", who, e.Status, e.Reason)
		}
		return s
	case "note":
		return e.Text
	}
	return e.Event
}

func errMessage(e *ui.TaskError) string {
	if e == nil {
		return ""
	}
	return e.Message
}
