package cli

import (
	"errors"
	"testing"
)

func TestWhatIsNoPoolIsRefused(t *testing.T) {
	const set = "/providers/Microsoft.Compute/virtualMachineScaleSets/"
	var usage usageError
	for _, arg := range []string{"/subscriptions/s", "/subscriptions/s/resourceGroups/g" + set + "p/virtualMachines/1", "a/b", "pool one"} {
		if err := checkPool(arg); !errors.As(err, &usage) {
			t.Errorf("%q is taken for a pool: %v", arg, err)
		}
	}
}
