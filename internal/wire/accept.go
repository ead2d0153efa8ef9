package wire

import (
	"fmt"
	"path"
	"strings"
)

// MaxAcceptedSecrets bounds how many paths --accept-secret names.
const MaxAcceptedSecrets = 100

// CheckAcceptedSecret returns what is wrong with a path of --accept-secret: one file, or a
// folder that ends in "/" with all below it. The whole disk cannot be accepted.
func CheckAcceptedSecret(at string) error {
	clean := strings.TrimSuffix(at, "/")
	if len(clean) < 2 || clean[0] != '/' || path.Clean(clean) != clean || checkText("path", at, 1<<10) != nil {
		return fmt.Errorf("%q: want the absolute path of a file, or of a folder with / at its end", clip(at))
	}
	return nil
}

// AcceptsSecret reports whether one of the paths of --accept-secret covers a file.
func AcceptsSecret(accepted []string, file string) bool {
	for _, at := range accepted {
		if at == file || strings.HasSuffix(at, "/") && strings.HasPrefix(file, at) {
			return true
		}
	}
	return false
}
