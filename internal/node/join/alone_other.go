//go:build !unix

package join

import "os"

// lock does nothing: only nodes that run Linux join.
func lock(*os.File) error { return nil }
