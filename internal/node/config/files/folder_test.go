package files

import (
	"errors"
	"testing"
)

// The rule alone, where the test cannot make files of other users. After a path has come
// to a user's folder or link, it stays with that user.
func TestHole03OnlyRootLeadsElsewhere(t *testing.T) {
	for _, c := range []struct {
		what   string
		owners []int
		unsafe bool
	}{
		{"all of root's", []int{0, 0, 0}, false},
		{"into a user's folder", []int{0, 0, 1000, 1000}, false},
		{"from a user's folder to root's", []int{0, 1000, 0}, true},
		{"from a user's link to the root folder", []int{0, 1000, 0, 0}, true},
		{"from one user to another", []int{0, 1000, 1001}, true},
		{"by way of another user", []int{0, 1000, 1000, 1001, 1000}, true},
	} {
		var last step
		var err error
		for _, uid := range c.owners {
			if err == nil {
				err = last.to(step{"/x", uid})
			}
		}
		if errors.Is(err, ErrUnsafe) != c.unsafe {
			t.Errorf("%s: %v", c.what, err)
		}
	}
}
