// Package mistakes runs the real ortet as its users do, without a terminal, on what goes
// wrong most: a wrong name, a broken file, a server that does not answer, rights that are
// missing. It is all tests.
//
// testdata/today.txt holds what is printed and the exit code of each row, and is checked.
// testdata/at-2ad2160.txt is what an earlier ortet printed on the same rows, to compare
// with; it is written once, by a program of that commit:
//
//	go test ./test/mistakes -args -ortet PROGRAM -limit 6m -file testdata/at-2ad2160.txt -update
//
// Seconds are written down and not checked. A row that outlasts its limit is killed, and
// written down as hung.
package mistakes
