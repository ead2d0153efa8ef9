package azsim

import (
	"strconv"
	"strings"
)

// computerNameDigits is how many base 36 digits Azure puts behind the prefix of
// a Uniform scale set to form the host name of an instance.
const computerNameDigits = 6

// instanceName is the ARM name of an instance, which IMDS also gives: "pool1_12".
func instanceName(scaleSet string, id int) string {
	return scaleSet + "_" + strconv.Itoa(id)
}

// computerName is the host name of an instance: the prefix and the instance id
// in base 36. From id 10 on it holds an upper-case letter, which Kubernetes then
// writes in lower case.
func computerName(prefix string, id int) string {
	digits := strings.ToUpper(strconv.FormatInt(int64(id), 36))
	if pad := computerNameDigits - len(digits); pad > 0 {
		digits = strings.Repeat("0", pad) + digits
	}
	return prefix + digits
}

// parseInstanceID reads the decimal id of a Uniform instance as clients send it.
func parseInstanceID(s string) (int, bool) {
	id, err := strconv.Atoi(s)
	if err != nil || id < 0 || s != strconv.Itoa(id) {
		return 0, false
	}
	return id, true
}
