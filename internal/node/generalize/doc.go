// Package generalize removes from a copy of a node's OS disk what makes it that
// node, and proves that nothing is left by which a clone could act as it.
//
// It works on a tree (internal/node/tree) and never leaves it. In order:
//
//  1. look, and refuse a disk that is not the donor's or cannot be generalised,
//     before anything changes;
//  2. write the line into /var/log/ancestry.log, so that an interrupted run is
//     recognised by the next;
//  3. read and seal what cannot be read back from Azure;
//  4. clean by the Table;
//  5. scan the whole tree for secrets and the donor's names, failing closed; the donor's
//     own secrets, which 1 learnt, by value, others by form (internal/redact);
//  6. only then clean the table's Last rows: what 1, 3 and 5 read. A run that
//     was killed before this can be repeated without loss.
//
// Running it twice is running it once. An inspection does 1 and 5 alone, on the root
// of the donor while it runs, and passes over what the others would change.
package generalize
