// Command mutants plants bugs in Ortet, one at a time, and reports what finds
// each: the simulation's seeds, another test, or nothing.
//
//	mutants                 every planted bug
//	mutants -only NAME      one of them
//	mutants -seeds 1000     seeds to play for each (default 1000)
//	mutants -tests=false    seeds only
//	mutants -patience 40m   longer than ten minutes for a run of seeds or of a suite
//
// A planted bug is a text in planted/SET/NAME.txt: why a user would suffer, the
// file, and which text in it becomes which:
//
//	# The snapshot is deleted before the version is made.
//	file internal/engine/image.go
//	<<<<
//	return before
//	====
//	return after
//	>>>>
//
// The first text stands exactly once in the file, so that a bug that no longer
// applies is an error and not a bug that nothing finds. The checkout is never
// changed: the go command's -overlay shows the changed files to the compiler.
//
// Results are kept in Ortet's cache under a key of all Go sources, the scenarios
// and the planted text, so an interrupted run goes on where it was.
package main
