// Package tasks says what runs: a kind of task is a value with typed inputs, a
// declared state, a run and a verification. One room below for each phase; in
// spec the config, in cluster what is found and decided before a build.
//
// Its rules: Inputs is pure and its result is the fingerprint; Run and Verify
// see nothing but it and the world; only a verified run makes a record. It must
// never know how SSH or HTTP works, and never print.
//
// Start reading at kind.go (what a kind is), then work.go (how the engine's
// questions are answered), then a small phase such as network.
package tasks
