// Package agents changes the pools of an elastic cluster: it scales, resizes, stops,
// starts, reimages, restarts and replaces agents, with their Nodes drained before and
// Ready after.
//
// Nothing is journaled. What is to be done is read from Azure and from the Nodes at
// the start, so an interrupted command goes on when it is run again; what cannot be
// read there, when a reimage of a pool began and which agent is being replaced, is a
// tag of its scale set. Errors are *fleet.Error.
package agents
