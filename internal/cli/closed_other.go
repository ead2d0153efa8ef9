//go:build !unix

package cli

import "os"

// OnClosedPipe does nothing: there is no SIGPIPE.
func OnClosedPipe(func(), ...*os.File) {}
