// Package ui is what people and programs see of hk: the printer of errors,
// tables, the JSON form of events, plain lines and the live view.
//
// Its rules: the answer goes to stdout and everything else to stderr; text and
// JSON are two forms of the same values, so that neither is an afterthought;
// only one writer owns the terminal at any time. It must never decide anything.
package ui
