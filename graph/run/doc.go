// Package run decides what is stale and runs it. It knows the graph and the
// vocabulary of identity (cache/fp), and asks four interfaces for the rest: a
// Work (what tasks do), a Recorder (what is remembered), a Clock and a Sink
// (who wants to hear of it). It never knows bbolt, SSH or what a task does.
//
// Three rules:
//
//   - There is one decision, Decide in decide.go: pure, and the same for build,
//     plan, status and explain.
//   - A task's state changes in one function, sched.set in state.go, which
//     keeps the counters in step. Everything mutable belongs to the one
//     goroutine of Build; other goroutines post messages to it.
//   - Before Do a pending record is durable; only after Do succeeded a done
//     record is written. So wherever a build dies, the next one knows.
//
// The model is verifying traces on a topological scheduler: whether a task is
// stale is decided when everything it needs is finished, from the digests of
// what those declared and its own parts. Reading order: work.go and options.go
// (the contracts), decide.go, plan.go, state.go, scheduler.go, sequence.go.
package run
