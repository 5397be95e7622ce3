// Package spec is the cluster's config: the one strict YAML file, its defaults
// and rules, what changed between two of them, and the desired hosts that
// follow from it.
//
// Its rules: everything that is wrong with a file is said at once, each with
// line, column and what to write instead; a value that was not given and one
// that was given as its default are the same; nothing here asks the world.
//
// Start reading at spec.go (the types), then load.go (how a file becomes one),
// fields.go (every field with its words, its class of change) and expand.go.
package spec
