// Package fault is how a scenario's happenings come to requests to Kubernetes:
// it names and counts requests, and carries out the faults that they meet. A
// playing in memory and one on a real API server use the same, so that a
// scenario means the same on both.
//
// Faults are at the level of HTTP: what answers behind them is an API server,
// real or simulated, and does not know of them.
package fault
