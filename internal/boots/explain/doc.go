// Package explain judges what people paste of a node that did not come up: logs, consoles,
// states and errors, as they are on a machine, in a mail or in a ticket. It is pure: text
// in, a Report out; it knows neither cluster nor cloud, and internal/cli prints.
//
// Read takes a text in within bounds, whatever it is. Explain takes off what a paste puts
// around it (clean.go), finds the form that it is in and the facts of that form (forms.go,
// arm.go, kubectl.go, journal.go), sorts lines by machine and boot (machines.go), and has package
// verdict judge each machine's. Each line keeps its number in the file.
//
// A reason is the judge's alone. Where it gives none, signs.go says whether something
// failed: a line counts only if it is of what a node needs to come up, and was not got over.
// Without such a line, and without one that says that all is well, the result is Unclear.
//
// What is read is of others: lines are redacted before they are given out.
package explain
