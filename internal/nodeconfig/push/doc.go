// Package push brings a configuration (package nodeconfig) to the live nodes of a
// pool: the canary's userData and its answer, the scale set's model, then the other
// nodes in waves.
//
// Nothing is journaled. What is wanted and what is reached are in Azure and on the
// Nodes, and a ConfigMap for each pool has the last documents; so a push that was killed
// goes on when it is run again. The resourceVersion of that ConfigMap settles which of
// two pushes gets a generation.
package push
