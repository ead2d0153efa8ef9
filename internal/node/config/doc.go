// Package config is the agent's part of live configuration: it reads the signed document
// in its machine's userData, has package apply make the machine like it, and answers at
// its own Node.
//
// Everything follows from what the metadata service, the disk and the Node say now; the
// annotation ortet.io/configuration-wanted only makes the agent read the userData earlier.
package config
