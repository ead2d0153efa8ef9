// Package azsim is a simulated Azure: one http.Handler that answers as Azure
// Resource Manager does, whose zero value works.
package azsim
