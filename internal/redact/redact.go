package redact

import "github.com/ortet/ortet/internal/wire"

// Rule is a kind of secret that is found, for people.
type Rule struct {
	Name  string // stable: reports and docs use it
	Class wire.SecretClass
	Finds string // what, in one phrase
}

// Piece is a part of a file, or a line of a log, that is looked at together.
type Piece struct {
	Path    string // within the disk, without a leading slash; "" for evidence
	Data    []byte
	Whole   bool // Data is the whole file
	Vendor  bool // lies where only the distribution's packages write
	Program bool // is an ELF file
}

// Hit is where a secret lies. From and To are offsets of bytes of Data that hold its
// value: without its name, quotes and the space around it.
type Hit struct {
	Rule     string
	Class    wire.SecretClass
	From, To int
}
