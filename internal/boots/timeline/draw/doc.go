// Package draw shows a Timeline: as text for a terminal, as a self-contained HTML
// page, as SVG, as JSON of a published schema, and as OpenTelemetry spans.
//
// It decides nothing about a boot: what is said here is in the Timeline.
// Everything that came from a node is data, never markup.
package draw
