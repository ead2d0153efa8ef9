package operator

import (
	"regexp"
	"strings"
)

var flag = regexp.MustCompile(`--[a-z-]+`)

// forReaders has a command's message in one line, with the fields by which an object says what a flag
// does.
func forReaders(message string) string {
	one := strings.ReplaceAll(strings.ReplaceAll(message, "\n  - ", "; "), "\n", " ")
	return flag.ReplaceAllStringFunc(one, field)
}

// field returns the field for a flag that a way out names. Others, as --again of a command that somebody
// is to type, stay.
func field(flag string) string {
	switch flag {
	case "--accept-pool-credentials":
		return "spec.capture.acceptPoolCredentials"
	case "--accept-secret":
		return "spec.capture.acceptSecrets"
	case "--allow-owned":
		return "spec.allowOwned"
	case "--allow-rolling":
		return "spec.allowRolling"
	case "--deallocate":
		return "spec.capture.deallocate"
	case "--exclude-from-latest":
		return "spec.capture.excludeFromLatest"
	case "--force":
		return "spec.capture.forceDrain"
	case "--keep-extension":
		return "spec.capture.extensions.keep"
	case "--remove-secrets":
		return "spec.capture.removeSecrets"
	case "--scan-images":
		return "spec.capture.scanImages"
	case "--tune":
		return "spec.capture.tune"
	}
	return flag
}
