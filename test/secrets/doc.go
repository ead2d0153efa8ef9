// Package secrets measures what Ortet finds of secrets: on a disk that becomes an
// image (internal/node/generalize) and in what is published of a node
// (internal/boots/verdict). It is all tests.
//
// Two corpora are planted, and their strings are made from -seed, with real key
// material, alphabets and check digits, so that no rule can know them:
//
//   - TestImage plants secrets on the tree of a small node, one per file, and lets the
//     agent generalise it: each is removed, refused or shipped. TestNearMisses does
//     the same with files that look like secrets and hold none; TestCleanTrees
//     with trees of real systems.
//   - TestEvidence passes groups of log lines through the redactor: nothing of a
//     secret may be left, and TestReadable says which lines have to stay readable.
//
// Two more were held out, and run once before what they missed was mended:
// TestHeldOutImage and TestHeldOutEvidence, then TestBlind… of the blind corpus.
//
// The corpora are written from what tools write, without knowledge of the rules: a
// secret that is not found is a fact to report, never a reason to change a
// plant. bounds_test.go says what share has to be found; -v prints the tables.
package secrets
