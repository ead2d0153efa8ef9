// Package apply makes a machine as a configuration says: it renders the document into
// files, validates them, changes them, activates what changed and nothing else, and keeps
// the result only if the machine is healthy within a deadline. Otherwise everything goes
// back to what the machine had, and the answer says why.
//
// Going back is the same code with the two documents exchanged. What is not a file, the
// values of sysctls and whether units run, has its baseline in machine.json.
package apply
