// Package prototype decides and does nothing: from what was observed it says what is
// wrong, which steps a capture or rollback has, which of them are done, which
// versions to prune. Every function is pure; time comes in as a value.
package prototype
