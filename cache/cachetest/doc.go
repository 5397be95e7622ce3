// Package cachetest holds the contract every cache.Store must pass, and a store
// in memory for tests of what is built on one.
package cachetest
