// Package cli is what the user typed and what the user sees: words, flags,
// targets, exit codes, questions, and the wiring of everything else into one
// run. It is imported by main alone.
//
// Three rules:
//
//   - stdout carries the answer, stderr everything else; `-o json` is another
//     form of the same answer, on every command.
//   - Whatever is wrong with what was typed is said in one message with its
//     place and the next step, before anything is changed anywhere.
//   - This is the only room that knows implementations: wire.go makes a world
//     of them, and exit.go and errors.go turn their errors into exit codes.
//
// It must never decide what is stale (graph/run does), what may be done to a
// cluster (tasks/cluster does) or how a machine is changed (tasks does).
//
// Start reading at app.go (one run of hk), argv.go (how words become a
// command), then builder.go (the steps of a build) and site.go (one cluster
// with its world and records). Commands are one a file, cmd_VERB.go.
package cli
