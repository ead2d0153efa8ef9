// Package auto keeps the images of pools current without a person: it finds the pools,
// has a donor chosen for each (package donors), and captures it by the engine's one
// door. Pools are worked on side by side; one that fails stops no other.
//
// What was chosen is judged once more when the pool is held for the capture, before
// anything is changed. A donor that is gone by then, or that the engine refuses for
// reasons of its own, is followed by the next one. An interrupted capture of the pool is
// resumed with its own donor, whatever the rules say.
package auto
