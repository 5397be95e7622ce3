// Command hk builds and keeps Kubernetes clusters on Hetzner Cloud the way a
// build system builds a program.
package main

import (
	"os"
	"os/signal"
	"syscall"

	"hk/cli"
)

func main() {
	// Three are kept: start nothing new, cancel, leave.
	signals := make(chan os.Signal, 3)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	os.Exit(cli.Run(os.Args, cli.Streams{In: os.Stdin, Out: os.Stdout, Err: os.Stderr, Signals: signals}))
}
