// Package prepare holds the script that patches a donor before its disk is captured.
package prepare

import _ "embed"

// Patch is the script, for a POSIX shell. Exit code 10 means that a restart is needed.
//
//go:embed patch.sh
var Patch string
