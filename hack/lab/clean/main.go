//go:build linux

// Command clean takes away what labs that were killed left on the host:
// machines, mounts, loop devices, network namespaces. Labs that run are left
// alone.
//
//	go run ./hack/lab/clean
package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/ortet/ortet/azsim/machine"
)

func main() {
	if err := clean(os.TempDir()); err != nil {
		fmt.Fprintln(os.Stderr, "clean:", err)
		os.Exit(1)
	}
}

// clean looks for folders of machines where the lab's tests make them, and leaves
// those in use alone, so that make elastic can run beside make lab. Files stay: logs
// say what happened, and the next run deletes them.
func clean(temporary string) error {
	var errs error
	for _, pattern := range []string{"ortet-lab-*/lock", "ortet-machine-*/lock", "ortet-lab-*/machine/lock", "ortet-lab-*/azure/machine/lock", "ortet-elastic/azure/machine/lock"} {
		locks, err := filepath.Glob(filepath.Join(temporary, pattern))
		errs = errors.Join(errs, err)
		for _, lock := range locks {
			dir := filepath.Dir(lock)
			if err := machine.Clean(dir); errors.Is(err, machine.ErrInUse) {
				fmt.Fprintf(os.Stderr, "clean: %s is in use and stays as it is\n", dir)
			} else {
				errs = errors.Join(errs, err)
			}
		}
	}
	return errs
}
