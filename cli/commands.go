package cli

import ucli "github.com/urfave/cli/v2"

// commands is every command of hk. Commands of later work are not listed rather
// than listed and empty.
func (a *app) commands() []*ucli.Command {
	return []*ucli.Command{
		a.cmdInit(), a.cmdPlan(), a.cmdBuild(),
		a.cmdGraph(), a.cmdExplain(), a.cmdStatus(), a.cmdWait(), a.cmdPhases(), a.cmdPreflight(), a.cmdConfig(), a.cmdHistory(), a.cmdLogs(),
		a.cmdKubeconfig(), a.cmdSSH(), a.cmdEtcd(), a.cmdCerts(), a.cmdDestroy(), a.cmdUnlock(),
		a.cmdLab(),
		a.cmdCache(),
		a.cmdHelp(a.commands), a.cmdCompletion(), a.cmdVersion(),
	}
}

// handlesSignals names the commands that stop at a safe point of their own.
func handlesSignals(c *ucli.Command) bool {
	return c != nil && (c.Name == "build" || c.Name == "destroy")
}
