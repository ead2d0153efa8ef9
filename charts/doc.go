// Package charts tests the Helm charts that lie beside it: with the real helm,
// against the lists in the code and the command line's own flags.
package charts
