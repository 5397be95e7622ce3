// Package draw writes a task graph for people and for other programs: as a tree
// of text, for Graphviz, for Mermaid, as JSON and as an SVG of its own. The same
// graph and states give the same bytes, every time.
//
// It knows graphs and words for states; it does not know where states come from.
package draw
