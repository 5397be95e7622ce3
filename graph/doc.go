// Package graph holds kinds, the edges between them, their expansion over hosts
// into tasks, selection, and nothing else: it knows no cluster, no cloud, no
// clock and no file.
//
// There are two graphs. The KindGraph has about 60 vertices, one for each part
// of a phase, and lives in github.com/dominikbraun/graph: cycles, paths and
// neighbours are asked there. The Graph has a vertex for each task, that is a
// kind on a host or on the cluster, and is a handful of dense int32 arrays:
// 100,000 vertices in the library took 1.5 s and 379 MB, in the arrays they
// take milliseconds. Per-host tasks never enter the library.
//
// Three rules:
//
//   - No vertex appears while a build runs. What is not known before the first
//     task starts is a value some task produces, not a vertex.
//   - Task indices are a topological order, so "everything before" is a loop
//     from zero and "everything after" one from the end.
//   - A set of hosts enters through one cluster task, never by an edge from
//     each host to each other: the number of edges stays linear.
//
// Start reading at kind.go (what is declared), then build.go (which edges are
// allowed), expand.go (the arrays) and select.go (targets).
package graph
