// Command compare ends with exit code 0 if a file has a text, and else prints what it has.
//
//	compare FILE TEXT
package main

import (
	"fmt"
	"os"
	"strings"
)

func main() {
	text, err := os.ReadFile(os.Args[1]) // #nosec G703 -- the test's own
	if err != nil || strings.TrimSpace(string(text)) != os.Args[2] {
		fmt.Fprintf(os.Stderr, "%s has %q (%v), want %q\n", os.Args[1], text, err, os.Args[2])
		os.Exit(1)
	}
}
