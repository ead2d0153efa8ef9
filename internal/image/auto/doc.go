// Package auto keeps the images of pools current without a person: it finds the pools,
// has a donor chosen for each (package donors), and captures it (package capture). Pools
// are captured in parallel; a failure in one does not stop the others.
//
// The choice is checked again under the pool's lock, before anything is changed. A donor
// that is gone by then, or is refused for reasons of its own, is followed by the next
// one. An interrupted capture of the pool is resumed with its own donor, whatever the
// rules say.
package auto
