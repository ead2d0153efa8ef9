// Package engine is the only loop that changes a pool: observe, decide, record,
// act. CLI, Job and controller are doors to it, so that crash safety is written
// and tested once.
package engine
