// Command pictures draws docs/img/*.svg from the tables of the code, so that a picture cannot
// differ from the program. It refuses to draw texts that overlap.
package main

import (
	"fmt"
	"os"
	"path/filepath"
)

// pictures are the files below docs/img and who draws them.
var pictures = map[string]func() (string, error){
	"capture-timeline.svg": captureTimeline,
	"join.svg":             joinSequence,
	"verdict.svg":          verdictOrder,
}

func main() {
	if err := draw("docs/img"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func draw(dir string) error {
	for name, picture := range pictures {
		text, err := picture()
		if err != nil {
			return fmt.Errorf("draw %s: %w", name, err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			return err
		}
	}
	return nil
}
